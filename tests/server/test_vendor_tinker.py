"""The tinker layer of the vendor's SDK, which drives the service with another SDK's types, as whole stories.

That no call of it is left out is held in test_vendor_tinker_calls.py.

It imports with the version of tinker that together 3.1.1 pins (0.23.1, installed by the dev extra) and with few others.
"""

import asyncio
import signal

import numpy as np
import pytest
import torch

from samplekit.server import LocalService
from samplekit.wire import names as wire

try:
    import together.post_training.tinker as tinker
except ImportError as error:  # another version of tinker, as the bench extra installs, lacks modules it reads
    pytest.skip(f"together's tinker layer: {error}; pip install 'together[tinker]==3.1.1'", allow_module_level=True)

TOKENS = list(range(100, 112))
WEIGHTS = [0.0] * 4 + [1.0] * 7
ADAM = tinker.AdamParams(learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-8)
DRAW = tinker.SamplingParams(max_tokens=3, seed=5, temperature=1.0)
PROMPT = tinker.ModelInput.from_ints([100, 101, 102])
LOSSES = {
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
    "dro": {"beta": 0.1},
}


def datum(**inputs):
    arrays = {"target_tokens": np.array(TOKENS[1:], np.int64)}
    arrays |= {name: np.array(values, np.float32) for name, values in inputs.items()}
    inputs = {name: tinker.TensorData.from_numpy(values) for name, values in arrays.items()}
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(TOKENS[:-1]), loss_fn_inputs=inputs)


SUPERVISED = datum(weights=WEIGHTS)


@pytest.fixture(scope="module")
def service(loaded):
    handler = signal.getsignal(signal.SIGTERM)  # the layer sets its own
    with LocalService(model=loaded, token="key") as running:
        yield running
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def clients(service):
    return tinker.ServiceClient(base_url=service.url, api_key="key")


@pytest.fixture(scope="module")
def training(service):
    clients = tinker.ServiceClient(base_url=service.url, api_key="key")
    with clients.create_lora_training_client("samplekit/tiny", rank=4, seed=3) as client:
        yield client


def logprobs(output):
    return np.array(output.loss_fn_outputs[0]["logprobs"].data)


def loss_of(client):
    return client.forward([SUPERVISED], "cross_entropy").result().metrics["loss:sum"]


def test_cross_entropy_trains_and_its_logprobs_are_those_of_the_loss(training):
    first = training.forward_backward([SUPERVISED], "cross_entropy", return_loss_fn_outputs=True).result()
    assert logprobs(first)[:4].tolist() == [0.0] * 4
    assert first.metrics["loss:sum"] == pytest.approx(-logprobs(first).sum(), rel=1e-5)
    training.optim_step(ADAM).result()
    assert loss_of(training) < first.metrics["loss:sum"]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_ratios_is_accepted_and_trains(training, name):
    true = logprobs(training.forward([datum(weights=[1.0] * 11)], "cross_entropy").result())
    item = datum(weights=WEIGHTS, logprobs=np.minimum(true, 0), advantages=0.5 * np.array(WEIGHTS))
    output = training.forward_backward([item], name, LOSSES[name] or None, return_loss_fn_outputs=True).result()
    assert logprobs(output)[4:] == pytest.approx(true[4:], rel=1e-4, abs=1e-5)
    expected = -0.5 * true[4:].sum() if name in {"cispo", "dro"} else -0.5 * 7
    assert output.metrics["loss:sum"] == pytest.approx(expected, rel=1e-3)
    training.optim_step(ADAM).result()


def test_a_loss_of_ones_own_goes_through_custom_gradients(training):
    before = loss_of(training)

    def loss_fn(data, leaves):
        assert len(data) == 1
        return -(leaves[0] * torch.tensor(WEIGHTS)).sum(), {"mine": 2.0}

    output = training.forward_backward_custom([SUPERVISED], loss_fn).result()
    assert output.metrics == {"mine": 2.0}
    assert logprobs(output)[4:].sum() == pytest.approx(-before, rel=1e-4)
    assert (logprobs(output)[:4] < 0).all()  # scored with weights of one, so that none is masked
    training.optim_step(ADAM).result()
    assert loss_of(training) < before


@pytest.mark.parametrize("kind", ["SYNCHRONOUS", "BACKGROUND_PUBLISH", "PIPELINE"])
def test_published_weights_draw_and_score(training, kind):
    sampler = training.save_weights_and_get_sampling_client(weight_sync_type=f"WEIGHT_SYNC_TYPE_{kind}")
    drawn = sampler.sample(PROMPT, 2, DRAW, include_prompt_logprobs=True, topk_prompt_logprobs=4).result()
    assert [len(sequence.tokens) for sequence in drawn.sequences] == [3, 3]
    assert all(len(sequence.logprobs) == 3 and max(sequence.logprobs) <= 0 for sequence in drawn.sequences)
    assert {sequence.stop_reason for sequence in drawn.sequences} <= {"length", "stop"}
    assert sampler.compute_logprobs(PROMPT).result()[1:] == pytest.approx(drawn.prompt_logprobs[1:], abs=1e-5)
    likeliest = drawn.topk_prompt_logprobs[1]
    assert len(likeliest) == 4
    assert max(logprob for _, logprob in likeliest) >= drawn.prompt_logprobs[1]


def test_saved_states_go_on_with_and_without_the_optimizer(training, clients):
    training.forward_backward([SUPERVISED], "cross_entropy").result()
    training.optim_step(ADAM).result()
    state = training.save_state("kept").result().path
    weights = training.save_weights_for_sampler("served").result().path
    saved = loss_of(training)
    steps = {}
    for name, resume in (
        ("without", clients.create_training_client_from_state),
        ("with", clients.create_training_client_from_state_with_optimizer),
    ):
        with resume(state) as again:
            assert loss_of(again) == pytest.approx(saved, rel=1e-6)
            again.forward_backward([SUPERVISED], "cross_entropy").result()
            again.optim_step(ADAM).result()
            steps[name] = loss_of(again)
    training.forward_backward([SUPERVISED], "cross_entropy").result()
    training.optim_step(ADAM).result()
    assert steps["with"] == pytest.approx(loss_of(training), rel=1e-6)
    assert steps["without"] != pytest.approx(steps["with"], rel=1e-6)
    with pytest.raises(ValueError, match="CHECKPOINT_TYPE_TRAINING"):
        clients.create_training_client_from_state(weights)


def test_the_async_twins_do_the_same(clients):
    async def run():
        client = await clients.create_lora_training_client_async("samplekit/tiny", rank=2, train_unembed=False)
        async with client:
            passed = await client.forward_backward_async([SUPERVISED], "cross_entropy")
            step = await client.optim_step_async(ADAM)  # submitted before the gradient is there
            first = (await passed).metrics["loss:sum"]
            await step
            scored = await (await client.forward_async([SUPERVISED], "cross_entropy"))
            sampler = await client.save_weights_and_get_sampling_client_async()
            drawn = await sampler.sample_async(PROMPT, 1, DRAW)
            alone = await sampler.compute_logprobs_async(PROMPT)
            state = await (await client.save_state_async("kept"))
            served = await (await client.save_weights_for_sampler_async("served"))
            return first, scored.metrics["loss:sum"], drawn, alone, {state.path, served.path}

    first, second, drawn, alone, paths = asyncio.run(run())
    assert second < first
    assert len(drawn.sequences[0].tokens) == 3
    assert alone[0] is None
    assert len(alone) == 3
    assert len(paths) == 2


def test_leaving_stops_what_was_created(clients, service):
    with clients.create_lora_training_client("samplekit/tiny", rank=2) as client:
        session = service.service.sessions[client._session.session_id]
        assert session.status == wire.SessionStatus.RUNNING
    assert session.status in wire.INACTIVE_SESSIONS
