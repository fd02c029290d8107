"""The vendor's own SDK, together 3.1.1, against the local service: it cannot tell the difference."""

import pytest
import torch
from together.post_training import ModelResourcesClient

from samplekit.server import LocalService

torch.set_num_threads(1)

TOKENS = list(range(100, 140))
SAMPLE = {
    "model_input": {"chunks": [{"encoded_text": {"tokens": TOKENS[: len(TOKENS) - 1]}}]},
    "loss_fn_inputs": {
        "target_tokens": {"data": list(range(101, 140)), "dtype": "int64"},
        "weights": {"data": [0.0] * 10 + [1.0] * 29, "dtype": "float32"},
    },
}
PROMPT = {"chunks": [{"encoded_text": {"tokens": [100, 101, 102]}}]}
CROSS_ENTROPY = {"type": "cross_entropy"}


@pytest.fixture(scope="module")
def service():
    with LocalService(token="key") as running:
        yield running


@pytest.fixture(scope="module")
def resources(service):
    with ModelResourcesClient.create(
        api_key="key",
        base_url=service.url,
        base_model="samplekit/tiny",
        compute_config={"num_generator_replicas": 1},
        inactive_timeout=600,
    ) as client:
        yield client


@pytest.fixture
def session(resources):
    with resources.create_session(display_name="sdk", lora_config={"rank": 8, "seed": 7}) as client:
        yield client


def test_two_steps_of_a_lora_session_train_and_it_samples(session, service):
    first = session.trainer.forward_backward(samples=[SAMPLE], loss=CROSS_ENTROPY, return_loss_fn_outputs=True)
    logprobs = first.loss_fn_outputs[0].tensors["logprobs"]
    assert logprobs.data[:10] == [0.0] * 10
    assert -sum(logprobs.data) == pytest.approx(first.loss, rel=1e-5)
    assert session.trainer.optim_step(adam_params={"learning_rate": 1e-2}).step == "1"
    second = session.trainer.forward_backward(samples=[SAMPLE], loss=CROSS_ENTROPY)
    assert session.trainer.optim_step(adam_params={"learning_rate": 1e-2}).step == "2"
    third = session.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY)
    assert third.loss < second.loss < first.loss + 1e-6
    synced = session.trainer.weights_sync(weight_sync_type="WEIGHT_SYNC_TYPE_SYNCHRONOUS")
    assert synced.weights_version == "2"
    drawn = session.generator.sample(PROMPT, num_samples=2, sampling_params={"max_tokens": 5, "seed": 3})
    assert [len(sequence.tokens) for sequence in drawn.sequences] == [5, 5]
    assert all(len(sequence.logprobs) == 5 for sequence in drawn.sequences)
    assert drawn.policy_segments[0].version == 2
    assert session.retrieve().step == "2"
    kinds = [operation.kind for operation in service.service.sessions[session.session_id].operations.values()]
    steps = ["forward-backward", "optim-step"] * 2
    assert kinds == [*steps, "forward-backward", "weights-sync", "sample"]


def test_prompts_are_scored_with_alternatives(session):
    result = session.generator.sample(
        PROMPT, sampling_params={"max_tokens": 1}, prompt_logprobs=True, topk_prompt_logprobs=3
    )
    assert result.prompt_logprobs[0] == 0.0
    assert len(result.prompt_logprobs) == 3
    assert result.topk_prompt_logprobs[1].logprobs[0] == pytest.approx(max(result.topk_prompt_logprobs[1].logprobs))
    assert len(result.topk_prompt_logprobs[2].token_ids) == 3
    assert session.generator.compute_logprobs(PROMPT) == result.prompt_logprobs


def test_a_gradient_of_ones_own_is_taken(session):
    weights = SAMPLE["loss_fn_inputs"]["weights"]["data"]
    gradient = {"data": [-value for value in weights], "dtype": "D_TYPE_FLOAT32"}
    before = session.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss
    for _ in range(2):
        session.trainer.custom_forward_backward(samples=[SAMPLE], gradients=[gradient])
        session.trainer.optim_step(adam_params={"learning_rate": 1e-2})
    assert session.trainer.forward(samples=[SAMPLE], loss=CROSS_ENTROPY).loss < before


def test_a_policy_loss_on_completions_of_its_own(session):
    drawn = session.generator.sample(PROMPT, num_samples=4, sampling_params={"max_tokens": 6, "seed": 3})
    tokens = PROMPT["chunks"][0]["encoded_text"]["tokens"]
    samples = [
        sample_of(tokens, sequence, advantage)
        for sequence, advantage in zip(drawn.sequences, (1.0, -1.0, 0.5, 0.0), strict=True)
    ]
    settings = {
        "agg_type": "GRPO_LOSS_AGGREGATION_TYPE_TOKEN_MEAN",
        "beta": 0.1,
        "clip_low_threshold": 0.8,
        "clip_high_threshold": 1.2,
        "ratio_type": "GRPO_LOSS_RATIO_TYPE_SEQUENCE",
    }
    loss = {"type": "LOSS_TYPE_GRPO", "grpo_params": settings}
    first = session.trainer.forward_backward(samples=samples, loss=loss, return_loss_fn_outputs=True)
    assert first.metrics["loss/ratio/mean"] == pytest.approx(1, abs=1e-4)
    assert first.metrics["loss/clip/high_fraction"] == 0
    assert first.metrics["loss/kl_ref/mean"] == pytest.approx(0, abs=1e-4)
    assert first.loss == pytest.approx(-0.5 / 4, abs=1e-4)  # minus the mean advantage of tokens: 1 - 1 + 0.5 + 0
    for sequence, output in zip(drawn.sequences, first.loss_fn_outputs, strict=True):
        assert output.tensors["logprobs"].data[:2] == [0.0, 0.0]
        assert output.tensors["logprobs"].data[2:] == pytest.approx(sequence.logprobs, abs=1e-4)
    session.trainer.optim_step(adam_params={"learning_rate": 1e-2})
    second = session.trainer.forward(samples=samples, loss=loss)
    assert second.loss < first.loss
    assert second.metrics["loss/kl_ref/mean"] > 0


def sample_of(prompt, sequence, advantage):
    """A completion as the SDK's caller writes it: positions that predict the prompt count 0."""
    tokens, zeros = [*prompt, *map(int, sequence.tokens)], [0.0] * (len(prompt) - 1)
    count = len(sequence.tokens)
    arrays = {
        "weights": [*zeros, *[1.0] * count],
        "advantages": [*zeros, *[advantage] * count],
        "logprobs": [*zeros, *sequence.logprobs],
        "reference_logprobs": [*zeros, *sequence.logprobs],
    }
    inputs = {name: {"data": values, "dtype": "float32"} for name, values in arrays.items()}
    inputs["target_tokens"] = {"data": tokens[1:], "dtype": "int64"}
    return {
        "model_input": {"chunks": [{"encoded_text": {"tokens": tokens[: len(tokens) - 1]}}]},
        "loss_fn_inputs": inputs,
    }


def test_large_batches_and_results_travel_as_payloads(session, service):
    tokens = [3 + index % 2500 for index in range(201)]
    inputs = {
        "target_tokens": {"data": [3 + (index + 1) % 2500 for index in range(200)], "dtype": "int64"},
        "weights": {"data": [1.0] * 200, "dtype": "float32"},
    }
    large = {"model_input": {"chunks": [{"encoded_text": {"tokens": tokens[:200]}}]}, "loss_fn_inputs": inputs}
    result = session.trainer.forward(samples=[large] * 300, loss=CROSS_ENTROPY)
    values = [output.tensors["logprobs"].data for output in result.loss_fn_outputs]
    assert [len(item) for item in values] == [200] * 300
    assert -sum(map(sum, values)) == pytest.approx(result.loss, rel=1e-4)
    operation = service.service.operations[-1]
    assert operation.payload_id is not None
    assert b"payload_id" in operation.outcome.output
