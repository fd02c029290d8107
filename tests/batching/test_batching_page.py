"""docs/batching.md: its code runs as printed, and its diagram shows what the library gives."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from transformers import LlamaConfig, LlamaForCausalLM

import samplekit as sk
from samplekit.cli.pack import pack_command
from samplekit.training import PackingCollator, compute_loss, target_logprobs

PAGE = (Path(__file__).parents[2] / "docs/batching.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
DIAGRAM = [1, 11, 12, 2, 1, 21, 22, 2]
SAMPLE_LENGTHS = (6, 9, 7, 12, 5)


def tiny_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().eval()


def samples():
    rng = np.random.default_rng(0)
    return [
        sk.build_sample(
            rng.integers(3, 40, length), [0, 0] + [1] * (length - 2),
            logprobs=-rng.random(length), advantages=float(rng.normal()),
        )
        for length in SAMPLE_LENGTHS
    ]  # fmt: skip


def printed(name, *, comment=""):
    """The numbers of one line of the diagram."""
    (line,) = (
        line for line in PAGE.splitlines() if re.match(rf"{name}\s+-?\d", line) and line.rstrip().endswith(comment)
    )
    return [int(value) for value in re.findall(r"(?<!\S)-?\d+(?!\S)", line.split("  padding")[0].split("[")[0])]


def run_blocks(names, start, stop=""):
    """Execute the page's blocks from the one that holds some words up to the one that holds others."""
    first = next(place for place, block in enumerate(BLOCKS) if start in block)
    last = next((place for place, block in enumerate(BLOCKS) if stop and stop in block), len(BLOCKS))
    assert first < last
    for block in BLOCKS[first:last]:
        exec(block, names)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the page's readers have: a model, its tokenizer, and a file of samples in the folder where they work."""
    monkeypatch.chdir(tmp_path)
    sk.write_samples("samples.jsonl", samples())
    tokenizer = sk.ChatTemplate.load("samplekit/tiny").tokenizer
    return {"model": tiny_model(), "tokenizer": tokenizer, "pad_id": 0}


def test_the_first_blocks_run_and_the_packed_loss_is_that_of_the_samples_alone(names):
    run_blocks(names, "import samplekit as sk", "from datasets import Dataset")
    given = samples()
    assert names["output"].logits.shape == (1, 4097, 40)
    assert names["sizes"] == [2, 1, 2]
    assert [len(batch) for batch in names["by_tokens"]] == [5]
    assert names["mask"].shape == (1, 1, 4097, 4097)
    num_trained = sum(sample.num_trained for sample in given)
    assert names["num_trained"] == num_trained
    alone = compute_loss(target_logprobs(names["model"], given), given, sk.GRPO(), normalizer=num_trained)
    assert names["loss"].loss.item() == pytest.approx(alone.loss.item(), abs=1e-12)


def test_without_drop_last_fewer_rows_than_a_batch_takes_train_nothing():
    assert list(sk.batch([[1, 2]], 8)) == []
    assert "drop_last=False" in BLOCKS[0]


@pytest.fixture
def counts(monkeypatch):
    """How many tokens each batch trains that a trainer hands to the model."""
    seen = []
    plain = PackingCollator.__call__

    def counting(self, features):
        found = plain(self, features)
        seen.append(int((found["labels"] != -100).sum()))
        return found

    monkeypatch.setattr(PackingCollator, "__call__", counting)
    return seen


@pytest.mark.filterwarnings("ignore")  # what the trainers and their libraries warn of is theirs
def test_the_blocks_of_trainers_run_and_train_what_the_samples_train(names, counts):
    run_blocks(names, "import samplekit as sk", "numbers = batch")
    exec("from samplekit.training import compute_loss, packed_logprobs", names)
    num_trained = sum(sample.num_trained for sample in samples())
    before = [parameter.detach().clone() for parameter in names["model"].parameters()]
    run_blocks(names, "from datasets import Dataset", "from trl")
    assert any((now != then).any() for now, then in zip(names["model"].parameters(), before, strict=True))
    assert sum(counts) == 3 * num_trained  # three epochs
    counts.clear()
    run_blocks(names, "from trl", "target_logprobs")
    assert sum(counts) == 3 * num_trained
    counts.clear()
    run_blocks(names, "target_logprobs", "import numpy as np")
    assert names["held_out"].item() > 0
    assert sum(counts[:2]) == num_trained
    counts.clear()
    for suffix in ("npz", "parquet"):
        packing = ["samples.jsonl", "-o", f"rows.{suffix}", "--max-length", "4097", "--pad-id", "0"]
        assert CliRunner().invoke(pack_command, packing, catch_exceptions=False).exit_code == 0
    run_blocks(names, "import numpy as np")
    assert len(names["items"]) == 1
    assert sum(counts) == 3 * num_trained


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_that_removes_columns_trains_every_token(names, counts):
    """What the page warns of."""
    run_blocks(names, "import samplekit as sk", "numbers = batch")
    block = next(block for block in BLOCKS if "from datasets import Dataset" in block)
    exec(block.replace("remove_unused_columns=False", "max_steps=2"), names)
    assert sum(counts[:2]) == sum(SAMPLE_LENGTHS) - len(SAMPLE_LENGTHS)


def test_the_diagram_shows_what_the_library_gives():
    (row,) = sk.pack([sk.Record(DIAGRAM[:4]), sk.Record(DIAGRAM[4:])], 9, pad_id=0, strategy="next_fit")
    assert printed("token") == row.tokens.tolist()
    assert printed("document_ids") == row.document_ids.tolist()
    assert printed("positions") == row.per_token["positions"].tolist()
    assert row.seq_lens.tolist() == [4, 4]
    batch = sk.SampleBatch([row])
    plain = batch.to_training(return_labels=True)
    masked = batch.to_training(return_labels=True, mask_boundaries=True)
    assert printed("reads") == plain["input_ids"][0].tolist()
    assert printed("label", comment="   return_labels=True") == plain["labels"][0].tolist()
    assert printed("label", comment="and mask_boundaries=True") == masked["labels"][0].tolist()
    assert printed("cu_seqlens") == sk.SampleBatch([row]).to_training(return_cu_seqlens=True)["cu_seqlens"][0].tolist()
