"""`samplekit serve --model FOLDER` trains a Qwen3 with the real Qwen tokenizer, in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import torch
from peft import PeftModel
from real_tokenizers import qwen3
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

import samplekit as sk
from samplekit.client import Client
from samplekit.training import compute_loss, target_logprobs

TOKEN = "a-token-that-nobody-may-see"
CHATS = [
    {"messages": [{"role": "user", "content": f"What is {n} plus {n}?"}, {"role": "assistant", "content": str(2 * n)}]}
    for n in range(12)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("qwen3-tiny")
    tokenizer = qwen3()
    tokenizer.save_pretrained(path)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=512, eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def serving(folder, tmp_path_factory):
    """A served folder: its URL, its operation log, and everything that the process printed."""
    log = tmp_path_factory.mktemp("logs") / "operations.jsonl"
    printed = log.with_name("printed.txt")
    with printed.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", "from samplekit.cli import main; main()", "serve", "--model", str(folder), "--port",
             "0", "--operation-log", str(log), "--verbose"],
            stdout=subprocess.PIPE, stderr=stream, text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "SAMPLEKIT_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        with process:
            banner = process.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+", banner)
            assert url is not None, (banner, printed.read_text())
            yield url.group(), log, printed
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 130


@pytest.fixture(scope="module")
def samples(folder):
    template = sk.ChatTemplate.load(str(folder), thinking=False)
    return sk.SampleBuilder(template).build(CHATS).samples


def train(client, folder, samples, rank):
    """Train four steps; give the losses, the loss after them, and the checkpoint's id."""
    with client.session(base_model=str(folder), lora_rank=rank) as session:
        losses = []
        for _ in range(4):
            step = session.forward_backward(samples, sk.CrossEntropy())
            session.optim_step(learning_rate=1e-2)
            losses.append(step.result().mean_loss)
        after = session.forward(samples, sk.CrossEntropy()).result().mean_loss
        return losses, after, session.save_inference_checkpoint().result().id


def mean_loss(model, samples):
    with torch.no_grad():
        total = compute_loss(target_logprobs(model.eval(), samples), samples, sk.CrossEntropy()).loss
    return float(total) / sum(sample.num_trained for sample in samples)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # peft, of an adapted output head
@pytest.mark.parametrize("rank", [4, None])
def test_a_qwen3_folder_trains_and_its_checkpoint_loads(serving, folder, samples, tmp_path, rank):
    url, _, _ = serving
    with Client(base_url=url, api_key=TOKEN) as client:
        losses, after, checkpoint = train(client, folder, samples, rank)
        assert losses[0] == pytest.approx(mean_loss(AutoModelForCausalLM.from_pretrained(folder), samples), rel=1e-4)
        assert after < losses[3] < losses[0] - 0.3
        client.download(checkpoint, tmp_path / "merged", variant="merged")
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
        assert mean_loss(merged, samples) == pytest.approx(after, rel=1e-4)
        assert AutoTokenizer.from_pretrained(tmp_path / "merged").vocab_size == qwen3().vocab_size
        if rank is not None:
            client.download(checkpoint, tmp_path / "adapter", variant="adapter")
            base = AutoModelForCausalLM.from_pretrained(folder)
            adapted = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
            assert mean_loss(adapted, samples) == pytest.approx(after, rel=1e-4)


def test_every_operation_is_a_line_of_the_log_and_no_log_tells_the_token(serving, folder, samples):
    url, log, printed = serving
    with Client(base_url=url, api_key=TOKEN) as client, client.session(base_model=str(folder)) as session:
        session.forward_backward(samples, sk.CrossEntropy()).result()
        session.optim_step(learning_rate=1e-3).result()
        with pytest.raises(sk.OperationFailedError):
            session.optim_step(learning_rate=1e-3).result()  # nothing was accumulated
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [line for line in lines if line["session"] == session.id]
    assert [line["kind"] for line in mine] == ["forward-backward", "optim-step", "optim-step"]
    assert [line["status"].rpartition("_")[2] for line in mine] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert [line["step"] for line in mine] == [0, 1, 1]
    assert all(line["seconds"] > 0 and line["operation"].startswith("op-") for line in mine)
    assert "error_message" in mine[2]
    told = log.read_text() + printed.read_text()
    assert "it/s" not in printed.read_text()  # no progress bar of transformers where nobody watches
    assert session.id in printed.read_text()  # --verbose
    assert TOKEN not in told
    assert "Bearer" not in told


def test_a_wrong_token_is_refused_and_not_logged(serving):
    url, log, printed = serving
    with Client(base_url=url, api_key="another-token-of-somebody") as client, pytest.raises(sk.StatusError) as caught:
        client.supported_models()
    assert caught.value.status == 401
    assert "another-token" not in log.read_text() + printed.read_text()
