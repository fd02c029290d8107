"""Conversations from JSON documents, Parquet files, data sets and plain rows."""

from __future__ import annotations

import gzip
import pickle
import sys

import datasets
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import samplekit as sk
from samplekit.files import read_rows

USER = {"role": "user", "content": "hi"}
ROW = {"messages": [USER, {"role": "assistant", "content": "yo"}]}
SHARED = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]}
FORMATS = [ROW, SHARED, {"instruction": "hi", "output": "yo"}, {"prompt": "hi", "completion": "yo"}]
OBJECT_CALL = {"type": "function", "function": {"name": "f", "arguments": {"city": "Oslo"}}}
TEXT_CALL = {"type": "function", "function": {"name": "f", "arguments": '{"unit": null}'}}


def calling(call):
    return {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]}


def parquet(path, rows, **options):
    columns = {key: None for row in rows for key in row}  # pyarrow takes the columns from the first row alone
    pq.write_table(pa.Table.from_pylist([{**columns, **row} for row in rows]), path, **options)
    return path


@pytest.mark.parametrize("row", FORMATS)
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json", "json.gz", "parquet"])
def test_every_format_is_read_from_every_kind_of_file(tmp_path, row, ending):
    path = tmp_path / f"chats.{ending}"
    if ending == "parquet":
        parquet(path, [row, row])
    else:
        data = orjson.dumps([row, row]) if "jsonl" not in ending else (orjson.dumps(row) + b"\n") * 2
        path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    between = ":" if "jsonl" in ending else ":row "
    assert list(sk.read_chats(path)) == [{**ROW, "source": f"{path}{between}{number}"} for number in (1, 2)]


@pytest.mark.parametrize(
    "document",
    [[ROW], {"data": [ROW]}, {"version": 1, "conversations": [ROW]}, {"messages": [ROW]}, ROW, {"prompt": "hi", "completion": "yo"}, {"rows": [SHARED]}],
)  # fmt: skip
@pytest.mark.parametrize("option", [0, orjson.OPT_INDENT_2])
def test_a_json_document_is_a_list_or_holds_one_or_is_a_row(tmp_path, document, option):
    path = tmp_path / "chats.json"
    path.write_bytes(b"\xef\xbb\xbf" + orjson.dumps(document, option=option) + b"\n")
    assert [row["messages"] for row in sk.read_chats(path)] == [ROW["messages"]]


def test_a_json_file_of_json_lines_is_read_as_such(tmp_path):
    path = tmp_path / "chats.json"
    path.write_bytes(b"\n" + orjson.dumps(ROW) + b"\n" + orjson.dumps(SHARED))
    assert [row["source"] for row in sk.read_chats(path)] == [f"{path}:2", f"{path}:3"]


@pytest.mark.parametrize("data", [b"", b" \n", b"[]", b'{"data": []}'])
def test_a_json_file_without_rows_has_none(tmp_path, data):
    path = tmp_path / "chats.json"
    path.write_bytes(data)
    assert list(sk.read_chats(path)) == []


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'[{"messages": 1},\n {bad}]', ":2 is not JSON"),
        (b"[1", ":1 is not JSON"),
        (b"3", " is a JSON int, expected a list of rows"),
        (b'{"a": [], "b": []}', " is an object with the lists a, b, expected one list of rows"),
        (b'{"a": 1}', " is an object with the lists (none)"),
        (b"[[1]]", ":row 1 is a JSON list, expected an object"),
        (b'[{"text": 1}]', ":row 1 holds no 'messages' (found text)"),
    ],
)
def test_a_bad_json_document_is_named_with_its_place(tmp_path, data, what):
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(sk.FileFormatError) as caught:
        list(sk.read_chats(path))
    assert str(caught.value).startswith(f"{path}{what}")
    assert caught.value.path == str(path)
    assert pickle.loads(pickle.dumps(caught.value)).line == caught.value.line


def test_keys_that_a_table_fills_with_null_are_absent_keys(tmp_path):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"properties": {key: {"enum": ["a"]}}}}}
        for name, key in (("f", "x"), ("g", "y"))
    ]
    rows = [
        {**calling(OBJECT_CALL), "tools": tools[:1], "weight": 1},
        {**calling({"type": "function", "function": {"name": "g", "arguments": {"zip": 3}}}), "tools": tools[1:]},
        {**ROW, "meta": None},
    ]
    for source in (parquet(tmp_path / "a.parquet", rows), datasets.Dataset.from_list(rows)):
        read = list(sk.read_chats(source))
        assert read[0]["messages"][1] == {"role": "assistant", "tool_calls": [OBJECT_CALL]}
        assert read[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"zip": 3}
        assert [row.get("tools") for row in read] == [tools[:1], tools[1:], None]
        assert read[2]["messages"] == ROW["messages"]


def test_nulls_in_arguments_of_json_text_or_of_plain_rows_survive(tmp_path):
    plain = {"type": "function", "function": {"name": "f", "arguments": {"unit": None}}}
    for source, call in (
        (parquet(tmp_path / "a.parquet", [calling(TEXT_CALL)]), TEXT_CALL),
        (datasets.Dataset.from_list([calling(TEXT_CALL)]), TEXT_CALL),
        ([calling(plain)], plain),
    ):
        assert next(sk.read_chats(source))["messages"][1]["tool_calls"] == [call]


def test_columns_a_data_set_declares_as_json_keep_their_nulls():
    json_feature = datasets.Json()
    call = {"function": {"name": datasets.Value("string"), "arguments": json_feature}}
    message = {"role": datasets.Value("string"), "content": datasets.Value("string"), "tool_calls": datasets.List(call)}
    features = datasets.Features({"messages": datasets.List(message)})
    wanted = {"function": {"name": "f", "arguments": {"unit": None}}}
    found = datasets.Dataset.from_list([calling(wanted)], features=features)
    assert next(sk.read_chats(found))["messages"] == [USER, {"role": "assistant", "tool_calls": [wanted]}]


def test_a_table_of_several_formats_is_read_row_by_row(tmp_path):
    path = parquet(
        tmp_path / "mixed.parquet", [*FORMATS, {"messages": ROW["messages"], "tools": "[]"}], row_group_size=2
    )
    assert [row["messages"] for row in sk.read_chats(path)] == [ROW["messages"]] * 5


def test_data_sets_iterables_and_lists_of_rows_are_sources():
    found = datasets.Dataset.from_list([SHARED, SHARED])
    for source in (found, found.to_iterable_dataset(), [SHARED, SHARED], (row for row in [SHARED, SHARED])):
        assert list(sk.read_chats(source)) == [{**ROW, "source": f"rows[{number}]"} for number in (0, 1)]
    assert next(sk.read_chats([{**ROW, "source": "mine"}]))["source"] == "mine"


def test_a_callers_rows_are_never_changed():
    rows = [{**SHARED, "tools": "[]"}]
    before = orjson.dumps(rows)
    list(sk.read_chats(rows))
    assert orjson.dumps(rows) == before


def test_faults_of_rows_are_named_by_their_number_and_may_be_left_out(tmp_path):
    path = parquet(tmp_path / "a.parquet", [{"messages": ROW["messages"]}, {"text": "x"}])
    bad_speaker = {"conversations": [{"from": "wizard", "value": "x"}]}
    faults = []
    sources = [path, [ROW, 3, bad_speaker, None], [path, ROW]]
    rows = [row for source in sources for row in sk.read_chats(source, on_fault=faults.append)]
    assert len(rows) == 4
    begins = [
        f"{path}:row 2 holds",
        "rows[1] is a int",
        "rows[2] conversations[0] has from 'wizard'",
        "rows[3] is a",
        f"{path}:row 2",
    ]
    assert all(str(fault).startswith(begin) for fault, begin in zip(faults, begins, strict=True))
    assert (faults[0].path, faults[0].line) == (str(path), 2)
    with pytest.raises(sk.FileFormatError, match=r"rows\[1\]"):
        list(sk.read_chats([ROW, 3]))


def test_the_format_may_be_named(tmp_path):
    both = {**ROW, **SHARED}
    with pytest.raises(sk.FileFormatError, match=r"rows\[0\] fits the formats messages and sharegpt"):
        list(sk.read_chats([both]))
    assert list(sk.read_chats(sk.read_chats([both], format="sharegpt"))) == [{**ROW, "source": "rows[0]"}]
    with pytest.raises(sk.SampleError, match="format is 'chatml'"):
        sk.read_chats([], format="chatml")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (3, "is a int"),
        (None, "is a NoneType"),
        (b"path", "is a bytes"),
        (ROW, "is a dict, expected a path or rows: pass one split of it, or a list of rows"),
        (datasets.DatasetDict({"train": datasets.Dataset.from_list([ROW])}), "is a DatasetDict"),
        (pa.Table.from_pylist([ROW]), "is a Table, expected a path or rows: pass its rows as mappings"),
    ],
)
def test_what_is_neither_path_nor_rows_is_refused_at_once(source, what):
    with pytest.raises(sk.SampleError, match=what):
        sk.read_chats(source)


def test_rows_of_tokens_are_read_from_tables_too(tmp_path):
    tokens = {"tokens": [1, 2], "loss_mask": [0, 1]}
    path = parquet(tmp_path / "a.parquet", [tokens, ROW])
    document = tmp_path / "a.json"
    document.write_bytes(orjson.dumps([tokens, ROW]))
    for source in (path, document, [tokens, ROW]):
        read = list(read_rows(source))
        assert {key: read[0][key] for key in tokens} == tokens
        assert read[1]["messages"] == ROW["messages"]
    alone = tmp_path / "b.json"
    alone.write_bytes(orjson.dumps(tokens))
    assert [row["tokens"] for row in read_rows(alone)] == [[1, 2]]


def test_missing_damaged_and_wrong_parquet_files_are_named(tmp_path):
    whole = parquet(tmp_path / "whole.parquet", [ROW] * 10)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-20])
    wrong = tmp_path / "wrong.parquet"
    wrong.write_bytes(orjson.dumps(ROW))
    folder = tmp_path / "folder.parquet"
    folder.mkdir()
    for path, what in (
        (tmp_path / "none.parquet", "does not exist"),
        (folder, "is a folder"),
        (cut, "row 1 cannot be read"),
        (wrong, "no Parquet file"),
    ):
        with pytest.raises(sk.FileFormatError, match=what):
            list(sk.read_chats(path))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = parquet(tmp_path / "a.parquet", [ROW])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(sk.MissingExtraError, match=r'pip install "samplekit\[parquet\]"') as caught:
        list(sk.read_chats(path))
    assert caught.value.extra == "parquet"


def test_big_files_are_streamed_in_order(tmp_path):
    rows = [{"prompt": f"question {number}", "completion": "a" * 200} for number in range(5000)]
    path = parquet(tmp_path / "big.parquet", rows, row_group_size=1000)
    lines = tmp_path / "big.jsonl"
    lines.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    for source in (path, lines):
        stream = sk.read_chats(source)
        assert next(stream)["messages"][0]["content"] == "question 0"
        assert [row["messages"][0]["content"] for row in stream] == [row["prompt"] for row in rows[1:]]


def test_a_builder_sees_no_filled_nulls_in_a_data_set(tmp_path):
    zipped = {"type": "function", "function": {"name": "g", "arguments": {"zip": 3}}}
    rows = [calling(OBJECT_CALL), calling(zipped)]
    found = datasets.Dataset.from_list(rows)
    builder = sk.SampleBuilder(sk.ChatTemplate.load("samplekit/tiny", thinking=False))
    plain = builder.build(rows).samples
    assert builder.build(found).samples == plain
    assert builder(found[:])["tokens"] == [sample.tokens.tolist() for sample in plain]
    arrays = {"messages": np.array([np.array(messages, dtype=object) for messages in found["messages"]], dtype=object)}
    assert builder(arrays)["tokens"] == [sample.tokens.tolist() for sample in plain]
