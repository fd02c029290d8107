"""Conversations from files: streamed rows, faults named path:line."""

import gzip

import orjson
import pytest

import samplekit as sk
from samplekit.files import read_rows

ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}


def lines(*rows):
    return b"".join((row if isinstance(row, bytes) else orjson.dumps(row)) + b"\n" for row in rows)


def test_rows_carry_their_source_or_their_place(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_bytes(lines(ROW, {**ROW, "source": "mine"}))
    assert [row["source"] for row in sk.read_chats(path)] == [f"{path}:1", "mine"]


def test_several_files_are_one_stream(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(lines(ROW))
    rows = list(sk.read_chats([tmp_path / "a.jsonl", str(tmp_path / "b.jsonl")]))
    assert [row["source"] for row in rows] == [f"{tmp_path / 'a.jsonl'}:1", f"{tmp_path / 'b.jsonl'}:1"]


def test_a_byte_order_mark_blank_lines_and_a_missing_last_newline_are_fine(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines(ROW) + b"\n   \n" + orjson.dumps(ROW))
    assert [row["source"] for row in sk.read_chats(path)] == [f"{path}:1", f"{path}:4"]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_an_empty_file_has_no_rows(tmp_path, ending):
    path = tmp_path / f"empty.{ending}"
    sk.write_samples(path, [])
    assert list(sk.read_chats(path)) == []


FAULTS = [
    (b"{bad", "is not JSON"),
    (b"\xff\xfe", "is not JSON"),
    (b'{"messages": NaN}', "is not JSON: NaN at character 13, for which JSON has no number"),
    ('{"\u00e9": [-Infinity]}'.encode(), "is not JSON: Infinity at character 8, for which JSON has no number"),
    (b"[1]", "is a JSON list, expected an object"),
    (b"null", "is a JSON NoneType, expected an object"),
    ({"text": "x"}, "holds no 'messages' (found text)"),
    ({}, "holds no 'messages' (found nothing)"),
    ({"messages": []}, "has messages of []"),
    ({"messages": None}, "holds no 'messages' (found messages: null)"),
    ({"messages": "hi"}, "has messages of 'hi'"),
    ({"messages": [ROW["messages"][0], "hi"]}, "messages[1] is 'hi'"),
    ({"messages": [{"content": "x"}]}, "messages[0] is {'content': 'x'}, expected an object with a role"),
    ({"messages": [{"role": 5}]}, "messages[0] is {'role': 5}"),
    ({**ROW, "tools": "f"}, "has tools of 'f'"),
]


@pytest.mark.parametrize(("bad", "what"), FAULTS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_fault_is_named_by_path_and_line_wherever_it_stands(tmp_path, bad, what, place):
    rows = [ROW, ROW]
    rows.insert(place, bad)
    path = tmp_path / "chats.jsonl"
    path.write_bytes(lines(*rows))
    with pytest.raises(sk.FileFormatError) as caught:
        list(sk.read_chats(path))
    assert str(caught.value).startswith(f"{path}:{place + 1} {what}")
    assert (caught.value.path, caught.value.line) == (str(path), place + 1)
    assert "on_fault=" in caught.value.__notes__[0]


def test_a_reader_that_takes_faults_gets_every_other_row(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_bytes(lines(*(part for bad, _ in FAULTS for part in (ROW, bad))))
    faults = []
    rows = list(sk.read_chats(path, on_fault=faults.append))
    assert len(rows) == len(FAULTS)
    assert [fault.line for fault in faults] == list(range(2, 2 * len(FAULTS) + 1, 2))


def test_missing_files_folders_and_cut_archives_are_named(tmp_path):
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(lines(*[ROW] * 5))[:-4])
    no_archive = tmp_path / "no.jsonl.gz"
    no_archive.write_bytes(lines(ROW))
    for path, what in (
        (tmp_path / "none.jsonl", "does not exist"),
        (tmp_path, "is a folder"),
        (cut, "cut short"),
        (no_archive, "damaged"),
    ):
        with pytest.raises(sk.FileFormatError, match=what):
            list(sk.read_chats(path))


def test_rows_of_tokens_are_read_beside_chats_and_only_where_asked(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(lines(ROW, {"tokens": [1, 2], "loss_mask": [0, 1]}))
    assert ["tokens" in row for row in read_rows(path)] == [False, True]
    with pytest.raises(sk.FileFormatError, match=":2 holds no 'messages'"):
        list(sk.read_chats(path))


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"tokens": [1, 2]}, "has loss_mask of None"),
        ({"tokens": 5, "loss_mask": [1]}, "has tokens of 5"),
        ({"tokens": [1], "loss_mask": "1"}, "has loss_mask of '1'"),
        ({"tokens": [1], "loss_mask": [1], "info": "abc"}, "has info of 'abc'"),
        ({"tokens": [1, 2], "loss_mask": [0, 1], "labels": [1]}, "also labels"),
    ],
)
def test_a_row_of_tokens_holds_what_build_sample_takes_and_nothing_else(tmp_path, row, what):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(lines(row))
    with pytest.raises(sk.FileFormatError, match=what):
        list(read_rows(path))
