"""Every call of the tinker layer of the vendor's SDK (together 3.1.1, tinker 0.23.1), sync and async: nothing is left out.

The calls are listed by looking at the layer itself: one that it has and this page does not know fails. What they train
is held in test_vendor_tinker.py.
"""

import asyncio
import functools
import inspect
import signal

import numpy as np
import pytest
from vendor_world import Case, public

from samplekit.server import LocalService
from samplekit.wire import names as wire

try:
    import tinker
    import together.post_training.tinker as layer
except ImportError as error:  # another version of tinker, as the bench extra installs, lacks modules it reads
    pytest.skip(f"together's tinker layer: {error}; pip install 'together[tinker]==3.1.1'", allow_module_level=True)

CLASSES = (layer.ServiceClient, layer.TrainingClient, layer.SamplingClient, layer.APIFuture)
# The layer refuses it itself, before any request.
REFUSED = {"ServiceClient.create_rest_client": "does not support RestClient"}
PROMPT = layer.ModelInput.from_ints([100, 101, 102])
INPUTS = {"target_tokens": np.array([101, 102, 103], np.int64), "weights": np.array([0, 1, 1], np.float32)}
DATUM = layer.Datum(
    model_input=PROMPT, loss_fn_inputs={name: layer.TensorData.from_numpy(found) for name, found in INPUTS.items()}
)
SCORE = {"data": [DATUM], "loss_fn": "cross_entropy"}
DRAW = {"prompt": PROMPT, "num_samples": 2, "sampling_params": layer.SamplingParams(max_tokens=2, seed=1)}
ADAM = {"adam_params": layer.AdamParams(learning_rate=1e-4, beta1=0.9, beta2=0.95, eps=1e-8)}
LORA = {"base_model": "samplekit/tiny", "rank": 2}


class World:
    """A service, one client that trains, and what it has saved; opened clients are closed in the end."""

    def __init__(self, service):
        self.service = service
        self.opened = []

    @functools.cached_property
    def clients(self):
        return layer.ServiceClient(base_url=self.service.url, api_key="key")

    def open(self):
        return self.keep(self.clients.create_lora_training_client(**LORA))

    def keep(self, found):
        if isinstance(found, layer.TrainingClient):
            self.opened.append(found)
        return found

    @functools.cached_property
    def training(self):
        return self.open()

    @functools.cached_property
    def sampling(self):
        return self.training.save_weights_and_get_sampling_client()

    @functools.cached_property
    def state(self):
        return {"path": self.training.save_state("kept").result().path}

    def future(self):
        return self.training.forward(**SCORE)

    def runs(self, client):
        return self.service.service.sessions[client._session.session_id].status == wire.SessionStatus.RUNNING


@pytest.fixture(scope="module")
def world(loaded):
    handler = signal.getsignal(signal.SIGTERM)  # the layer sets its own
    with LocalService(model=loaded, token="key") as service:
        found = World(service)
        yield found
        for client in found.opened:
            client.close()
    signal.signal(signal.SIGTERM, handler)


def loss_fn(data, leaves):
    return -leaves[0].sum(), {"mine": 2.0}


def on(find, expect, **arguments):
    return Case(lambda w: arguments, expect, find)


def service_client(arguments):
    return Case(arguments, lambda found, w: w.runs(found), lambda w: w.clients)


def training(expect, **arguments):
    return on(lambda w: w.training, expect, **arguments)


def sampling(expect, **arguments):
    return on(lambda w: w.sampling, expect, **arguments)


def has_loss(found, _):
    return found.metrics["loss:sum"] > 0


CALLS = {
    "ServiceClient.create_lora_training_client": service_client(lambda w: LORA),
    "ServiceClient.create_training_client_from_state": service_client(lambda w: w.state),
    "ServiceClient.create_training_client_from_state_with_optimizer": service_client(lambda w: w.state),
    "TrainingClient.forward": training(lambda found, _: len(found.loss_fn_outputs) == 1, **SCORE),
    "TrainingClient.forward_backward": training(has_loss, **SCORE),
    "TrainingClient.forward_backward_custom": training(
        lambda found, _: found.metrics == {"mine": 2.0}, data=[DATUM], loss_fn=loss_fn
    ),
    "TrainingClient.optim_step": Case(
        lambda w: w.training.forward_backward(**SCORE).result() and ADAM,
        lambda found, _: isinstance(found, layer.OptimStepResponse),
        lambda w: w.training,
    ),
    "TrainingClient.save_state": training(lambda found, _: found.path, name="one"),
    "TrainingClient.save_weights_for_sampler": training(lambda found, _: found.path, name="two"),
    "TrainingClient.save_weights_and_get_sampling_client": training(
        lambda found, _: len(found.sample(**DRAW).result().sequences) == 2
    ),
    "TrainingClient.close": Case(lambda w: {}, lambda _, w: not w.runs(w.opened[-1]), World.open),
    "SamplingClient.sample": sampling(
        lambda found, _: [len(item.tokens) for item in found.sequences] == [2, 2], **DRAW
    ),
    "SamplingClient.compute_logprobs": sampling(lambda found, _: found[0] is None and len(found) == 3, prompt=PROMPT),
    "APIFuture.result": on(World.future, lambda found, _: len(found.loss_fn_outputs) == 1, timeout=60.0),
}


def calls():
    return [f"{owner.__name__}.{name}" for owner in CLASSES for name in public(owner)]


def named(name):
    """`APIFuture` is the layer's name of a class that calls itself otherwise."""
    return name.replace(f"{layer.APIFuture.__name__}.", "APIFuture.").removesuffix("_async")


async def awaited(call, arguments):
    found = await call(**arguments)
    return await found if isinstance(found, layer.APIFuture) else found


@pytest.mark.parametrize("name", [name for name in calls() if name not in REFUSED])
def test_a_call(world, name):
    case = CALLS[named(name)]
    call = getattr(case.target(world), name.rpartition(".")[2])
    arguments = case.arguments(world)
    if name.endswith("_async"):
        found = asyncio.run(awaited(call, arguments))
    else:
        found = call(**arguments)
        found = found.result() if isinstance(found, layer.APIFuture) else found
    assert case.expect(world.keep(found), world)


def test_what_the_layer_refuses_it_refuses_by_name(world):
    with pytest.raises(tinker.TinkerError, match=REFUSED["ServiceClient.create_rest_client"]):
        world.clients.create_rest_client()


def test_the_table_names_nothing_that_the_layer_lacks():
    assert {named(name) for name in calls()} == {*CALLS, *REFUSED}


def test_no_class_of_the_layer_with_calls_of_its_own_is_forgotten():
    exported = [getattr(layer, name) for name in layer.__all__]
    assert {item for item in exported if inspect.isclass(item)} == set(CLASSES)
