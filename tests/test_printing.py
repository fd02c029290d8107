"""Bodies in pieces: whichever way they are cut, together they are the JSON of every sample, and of its stand-in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import samplekit as sk
from samplekit.wire import printing
from samplekit.wire.printing import print_list
from samplekit.wire.requests import custom_body, forward_backward_body, sample_body

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=5)


@pytest.fixture(params=[1, 300, 196_608], ids="pieces of {} bytes".format, scope="module")
def piece_bytes(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printing, "_PIECE_BYTES", request.param)
        yield request.param


def sample_of(length: int, chunk_length: int, key: str | None) -> sk.Sample:
    """Give a sample whose input is in chunks, with logprobs of many digits and weights that are kept as runs."""
    ids = np.arange(3, 3 + length)
    chunks = [sk.EncodedText(ids[start : start + chunk_length]) for start in range(0, length, chunk_length)]
    inputs = {
        "target_tokens": sk.TensorData(ids + 1, "int64"),
        "weights": sk.TensorData([0] * (length // 2) + [1] * (length - length // 2), "float32"),
        "advantages": sk.TensorData(np.full(length, 1 / 3), "float32"),
        "logprobs": sk.TensorData(-np.random.default_rng(length).exponential(size=length), "float32"),
    }
    return sk.Sample(sk.ModelInput(chunks), inputs, key)


def cut_chunks(model_input: dict[str, Any]) -> dict[str, Any]:
    """Cut a model input as wire.md asks: 8 tokens for all chunks together, later ones dropped."""
    left, chunks = 8, []
    for chunk in model_input["chunks"]:
        if left > 0:
            chunks.append({"encoded_text": {"tokens": chunk["encoded_text"]["tokens"][:left]}})
            left -= len(chunks[-1]["encoded_text"]["tokens"])
    return {"chunks": chunks}


def cut_sample(sample: dict[str, Any]) -> dict[str, Any]:
    inputs = {name: {**tensor, "data": tensor["data"][:8]} for name, tensor in sample["loss_fn_inputs"].items()}
    return {**sample, "model_input": cut_chunks(sample["model_input"]), "loss_fn_inputs": inputs}


samples_of = st.lists(
    st.builds(sample_of, st.integers(1, 300), st.sampled_from([1, 3, 8, 1000]), st.none() | st.just('ke"y')),
    min_size=1,
    max_size=4,
)


@given(samples=samples_of)
def test_a_batch_and_its_stand_in(piece_bytes, samples):
    body = forward_backward_body(samples, sk.GRPO(), forward_only=True)
    wire = [sample.to_wire() for sample in samples]
    assert json.loads(b"".join(body.payload())) == {"loss": sk.GRPO().to_wire(), "samples": wire}
    stand_in = json.loads(b"".join(body.stand_in("p")))
    assert stand_in["samples"] == [cut_sample(sample) for sample in wire]
    printed = [len(sample.to_json()) for sample in samples]
    assert body.sample_sizes == tuple(size + (index > 0) for index, size in enumerate(printed))
    pieces = body.members[1:-1]
    assert all(len(piece) >= piece_bytes for piece in pieces[:-1])
    assert all(len(piece) <= piece_bytes + max(body.sample_sizes) for piece in pieces)


@given(samples=samples_of)
def test_gradients_beside_their_batch(piece_bytes, samples):
    gradients = [np.linspace(-1, 1, sample.length, dtype=np.float32) for sample in samples]
    body = custom_body(samples, gradients)
    whole, stand_in = (json.loads(b"".join(pieces)) for pieces in (body.payload(), body.stand_in("p")))
    for gradient, read, head in zip(gradients, whole["gradients"], stand_in["gradients"], strict=True):
        assert np.array(read["data"], dtype=np.float32).tobytes() == gradient.tobytes()
        assert head == {"data": read["data"][:8], "dtype": "D_TYPE_FLOAT32"}
    assert [sk.Sample.from_wire(item).model_input for item in whole["samples"]] == [
        sample.model_input for sample in samples
    ]
    assert stand_in["samples"] == [cut_sample(sample) for sample in whole["samples"]]
    assert sum(body.sample_sizes) == body.num_bytes - len(b'{"gradients":[],"samples":[]}')


@given(lengths=LENGTHS, chunk_length=st.sampled_from([1, 3, 8, 1000]))
def test_prompts(piece_bytes, lengths, chunk_length):
    prompts = [sample_of(length, chunk_length, None).model_input for length in lengths]
    body = sample_body(prompts, num_samples=1, sampling_params={})
    whole, stand_in = (json.loads(b"".join(pieces)) for pieces in (body.payload(), body.stand_in("p")))
    assert whole["model_inputs"] == [prompt.model_dump(mode="json") for prompt in prompts]
    assert stand_in["model_inputs"] == [cut_chunks(prompt) for prompt in whole["model_inputs"]]


def test_a_list_of_nothing_is_one_empty_piece():
    assert b"".join(print_list([]).pieces) == b""
    assert print_list([]).sizes == ()
