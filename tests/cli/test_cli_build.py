"""`samplekit build`, as a script and as a person sees it."""

import json
import shutil
import time
from pathlib import Path

import pytest
from chats import CHATS

import samplekit as sk
from samplekit.files import check_lock, lock_path, read_lock

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
    assert "samplekit build --skip-errors" in shown
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


DATED = "{{ strftime_now('%H:%M:%S') }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def test_a_template_that_prints_the_time_prints_the_lock_s(run, write, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(Path(sk.__file__).parent / "models" / "tiny", model)
    (model / "chat_template.jinja").write_text(DATED)
    chats, out = write("chats.jsonl", *CHATS), tmp_path / "samples.jsonl"
    assert run("build", chats, "-m", model, "-o", out)[0] == 0
    first, lock = out.read_bytes(), lock_path(out).read_bytes()
    time.sleep(1.1)
    assert run("build", chats, "-m", model, "-o", out)[0] == 0
    assert (out.read_bytes(), lock_path(out).read_bytes()) == (first, lock)
    assert run("build", chats, "-m", model, "-o", out, "--clock", "2020-01-02 03:04:05")[0] == 0
    template = sk.ChatTemplate.load(str(model))
    assert template.decode(next(iter(sk.read_samples(out))).tokens.tolist()).startswith("03:04:05")


def test_several_workers_write_what_one_does(run, write, tmp_path, monkeypatch):
    monkeypatch.setattr("samplekit.cli.build_run._CHUNK", 2)
    chats = write("chats.jsonl", *CHATS, *CHATS)
    for workers in (1, 2):
        out = tmp_path / f"{workers}.jsonl"
        assert run("build", chats, "-m", "samplekit/tiny", "-o", out, "--workers", workers)[0] == 0
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()


def test_an_error_in_a_worker_names_its_row(run, write, tmp_path, monkeypatch):
    monkeypatch.setattr("samplekit.cli.build_run._CHUNK", 2)
    chats = write("chats.jsonl", *CHATS, BAD_ROWS[3][0])
    code, _, shown = run("build", chats, "-m", "samplekit/tiny", "-o", tmp_path / "s.jsonl", "--workers", 2)
    assert code == 1
    assert f"{chats}:6" in shown


def test_refused_rows_are_kept_with_their_reasons_until_none_is(run, write, tmp_path):
    out = tmp_path / "samples.jsonl"
    refused = tmp_path / "samples.jsonl.refused.jsonl"
    chats = write("chats.jsonl", *CHATS, *(bad for bad, _ in BAD_ROWS))
    assert run("build", chats, "-m", "samplekit/tiny", "-o", out, "--skip-errors")[0] == 0
    kept = [json.loads(line) for line in refused.read_text().splitlines()]
    assert sorted(item["source"] for item in kept) == sorted(f"{chats}:{line}" for line in range(6, 11))
    assert {item["source"]: item.get("text") for item in kept}[f"{chats}:6"] == "{bad"
    assert {item["source"]: item.get("row") for item in kept}[f"{chats}:10"]["tokens"] == [1, -1]
    assert all(item["code"] and item["message"] for item in kept)
    assert run("build", write("chats.jsonl", *CHATS), "-m", "samplekit/tiny", "-o", out, "--skip-errors")[0] == 0
    assert not refused.exists()


def test_merged_turns_train_the_same_tokens_in_fewer_samples(run, write, tmp_path):
    turns = [message for chat in CHATS for message in chat["messages"]]
    chats = write("chats.jsonl", {"messages": turns})
    trained = {}
    for name, flags in (("apart", []), ("merged", ["--merge"])):
        out = tmp_path / f"{name}.jsonl"
        assert run("build", chats, "-m", "samplekit/tiny", "-o", out, *flags)[0] == 0
        samples = list(sk.read_samples(out))
        trained[name] = (len(samples), sum(sample.num_trained for sample in samples))
    assert trained["apart"][0] == len(CHATS)
    assert trained["merged"] == (1, trained["apart"][1])


@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("sharegpt", {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}),
        ("alpaca", {"instruction": "q", "input": "", "output": "a"}),
        ("prompt_completion", {"prompt": "q", "completion": "a"}),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_other_formats_build_what_messages_do(run, write, tmp_path, form, row, asked):
    messages = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    wanted, found = tmp_path / "wanted.jsonl", tmp_path / "found.jsonl"
    assert run("build", write("messages.jsonl", messages), "-m", "samplekit/tiny", "-o", wanted)[0] == 0
    flags = ["--format", form] if asked else []
    assert run("build", write("rows.jsonl", row), "-m", "samplekit/tiny", "-o", found, *flags)[0] == 0
    assert list(sk.read_samples(found)) == list(sk.read_samples(wanted))


def test_a_build_never_writes_over_what_it_reads(run, write, tmp_path):
    chats = write("chats.jsonl", *CHATS)
    link = tmp_path / "link.jsonl"
    link.symlink_to(chats)
    before = chats.read_bytes()
    for output in (chats, link):
        code, _, shown = run("build", chats, "-m", "samplekit/tiny", "-o", output)
        assert (code, chats.read_bytes()) == (2, before)
        assert "would be overwritten" in shown
    side = write("s.jsonl.refused.jsonl", *CHATS)
    assert run("build", side, "-m", "samplekit/tiny", "-o", tmp_path / "s.jsonl")[0] == 2


@pytest.mark.parametrize("pair", ["stop_tokens=5", "tokenizer=1", "name_or_path=5", "nonsense"])
def test_a_template_kwarg_is_one_the_template_reads(run, write, tmp_path, pair):
    chats = write("chats.jsonl", *CHATS)
    assert run("build", chats, "-m", "samplekit/tiny", "-o", tmp_path / "s.jsonl", "--template-kwarg", pair)[0] == 2
