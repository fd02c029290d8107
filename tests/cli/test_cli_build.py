"""`samplekit build`, as a script and as a person sees it."""

import json

import pytest
from chats import CHATS

import samplekit as sk
from samplekit.files import check_lock, read_lock

SIX = {"tokens": [10, 11, 12, 13, 14, 15], "loss_mask": [0, 0, 0, 1, 1, 1]}


def test_conversations_become_samples_with_a_lock(run, write, tmp_path):
    out = tmp_path / "samples.jsonl"
    code, shown, _ = run("build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", out)
    assert code == 0
    assert "samples" in shown
    samples = list(sk.read_samples(out))
    assert len(samples) == len(CHATS)
    template = sk.ChatTemplate.load("samplekit/tiny")
    lock = check_lock(out, template)
    assert (lock["samples"]["num_samples"], lock["template"]["tokenizer"]) == (len(CHATS), "samplekit/tiny")
    assert set(lock["versions"]) >= {"python", "samplekit", "transformers", "tokenizers"}
    assert lock["fingerprint"] == template.fingerprint
    for number, sample in enumerate(samples):
        trained = sample.tokens[sample.loss_mask == 1].tolist()
        assert template.decode(trained) == f"answer {number}<|im_end|>"
        assert sample.info["source"].endswith(f"chats.jsonl:{number + 1}")


def test_a_second_run_gives_the_same_bytes(run, write, tmp_path):
    chats = write("chats.jsonl", *CHATS)
    for name in ("one.jsonl", "two.jsonl"):
        assert run("build", chats, "-m", "samplekit/tiny", "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_the_six_token_example_lines_up(run, write, tmp_path):
    out = tmp_path / "six.jsonl"
    assert run("build", write("six.jsonl.in", SIX), "-o", out)[0] == 0
    wire = json.loads(out.read_text())
    assert wire["model_input"] == {"chunks": [{"encoded_text": {"tokens": [10, 11, 12, 13, 14]}}]}
    assert wire["loss_fn_inputs"] == {
        "target_tokens": {"data": [11, 12, 13, 14, 15], "dtype": "int64"},
        "weights": {"data": [0.0, 0.0, 1.0, 1.0, 1.0], "dtype": "float32"},
    }


def test_thinking_and_template_kwargs_reach_the_template_and_the_lock(run, write, tmp_path):
    chats, out = write("chats.jsonl", *CHATS), tmp_path / "samples.jsonl"
    assert run("build", chats, "-m", "samplekit/tiny", "--thinking", "off", "-o", out)[0] == 0
    by_option = list(sk.read_samples(out))
    assert read_lock(out)["template"]["thinking"] is False
    assert run("build", chats, "-m", "samplekit/tiny", "--template-kwarg", "enable_thinking=false", "-o", out)[0] == 0
    assert list(sk.read_samples(out)) == by_option
    assert read_lock(out)["template"]["template_kwargs"] == {"enable_thinking": False}


def test_the_summary_is_json_where_a_script_asks(run, write, tmp_path):
    code, shown, _ = run(
        "build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", tmp_path / "s.jsonl", "--json"
    )
    summary = json.loads(shown)
    assert code == 0
    assert (summary["num_rows"], summary["num_samples"], summary["skipped"]) == (5, 5, [])
    assert 0 < summary["trained_share"] < 1


BAD_ROWS = [
    (b"{bad", "file_format"),
    ({"messages": []}, "file_format"),
    ({"messages": [{"role": "user", "content": "only a question"}]}, None),
    (
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<|im_end|>"}]},
        "control_token_in_content",
    ),
    ({"tokens": [1, -1], "loss_mask": [0, 1]}, "sample"),
]


@pytest.mark.parametrize(("bad", "code"), BAD_ROWS)
def test_a_row_at_fault_ends_the_build_and_leaves_no_file(run, write, tmp_path, bad, code):
    out = tmp_path / "samples.jsonl"
    chats = write("chats.jsonl", *CHATS[:2], bad)
    exit_code, _, shown = run("build", chats, "-m", "samplekit/tiny", "-o", out)
    assert exit_code == 1
    assert f"{chats}:3" in shown
    assert not out.exists()


def test_skip_errors_counts_and_names_every_row_it_leaves_out(run, write, tmp_path):
    out = tmp_path / "samples.jsonl"
    rows = [part for chat, (bad, _) in zip(CHATS, BAD_ROWS, strict=True) for part in (chat, bad)]
    code, shown, _ = run(
        "build", write("chats.jsonl", *rows), "-m", "samplekit/tiny", "-o", out, "--skip-errors", "--json"
    )
    summary = json.loads(shown)
    assert code == 0
    assert (summary["num_rows"], summary["num_samples"]) == (10, 5)
    assert sorted(item["source"].rpartition(":")[2] for item in summary["skipped"]) == ["10", "2", "4", "6", "8"]
    for item in summary["skipped"]:
        expected = dict(zip(["2", "4", "6", "8", "10"], [code for _, code in BAD_ROWS], strict=True))
        assert item["message"]
        assert expected[item["source"].rpartition(":")[2]] in (item["code"], None)


def test_nothing_to_build_is_a_fault_of_the_data_and_keeps_the_older_file(run, write, tmp_path):
    out = write("samples.jsonl", b"older")
    code, _, shown = run("build", write("empty.jsonl"), "-m", "samplekit/tiny", "-o", out)
    assert (code, out.read_bytes()) == (1, b"older\n")
    assert "gave no sample" in shown


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "Missing argument"),
        (["chats.jsonl"], "Missing option"),
        (["chats.jsonl", "-o", "x", "--thinking", "maybe"], "Invalid value"),
        (["chats.jsonl", "-o", "x", "--max-length", "1"], "Invalid value"),
    ],
)
def test_a_wrong_call_exits_with_2(run, arguments, what):
    code, _, shown = run("build", *arguments)
    assert code == 2
    assert what in shown


def test_conversations_without_a_model_are_a_wrong_call(run, write, tmp_path):
    code, _, shown = run("build", write("chats.jsonl", *CHATS), "-o", tmp_path / "s.jsonl")
    assert code == 2
    assert "--model" in shown


def test_longer_rows_of_tokens_are_refused_or_cut_as_asked(run, write, tmp_path):
    rows, out = write("six.jsonl.in", SIX), tmp_path / "six.jsonl"
    code, _, shown = run("build", rows, "-o", out, "--max-length", 5)
    assert (code, out.exists()) == (1, False)
    assert "6 values" in shown
    assert run("build", rows, "-o", out, "--max-length", 5, "--truncation", "left")[0] == 0
    assert [sample.tokens.tolist() for sample in sk.read_samples(out)] == [[11, 12, 13, 14, 15]]
    assert run("build", rows, "-o", out, "--max-length", 5, "--truncation", "right")[0] == 0
    assert [sample.tokens.tolist() for sample in sk.read_samples(out)] == [[10, 11, 12, 13, 14]]


def test_rows_of_tokens_drop_the_lock_of_the_chats_they_replace(run, write, tmp_path):
    out = tmp_path / "samples.jsonl"
    assert run("build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", out)[0] == 0
    assert run("build", write("six.jsonl.in", SIX), "-o", out)[0] == 0
    assert run("validate", out)[0] == 0
