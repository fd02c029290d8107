"""docs/batching.md: its code runs as printed, and its diagram shows what the library gives."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import samplekit as sk
from samplekit.training import compute_loss, packed_logprobs, target_logprobs

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


def test_every_block_runs_and_the_packed_loss_is_that_of_the_samples_alone():
    model, given = tiny_model(), samples()
    num_trained = sum(sample.num_trained for sample in given)
    names = {
        "model": model, "samples": given, "pad_id": 0, "num_trained": num_trained,
        "packed_logprobs": packed_logprobs, "compute_loss": compute_loss,
    }  # fmt: skip
    assert len(BLOCKS) == 2
    exec(BLOCKS[0].replace("batch(rows, 8)", "batch(rows, 8, drop_last=False)"), names)
    assert names["output"].logits.shape == (1, 4097, 40)
    exec(BLOCKS[1], names)
    alone = compute_loss(target_logprobs(model, given), given, sk.GRPO(), normalizer=num_trained)
    assert names["loss"].loss.item() == pytest.approx(alone.loss.item(), abs=1e-12)


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
