"""Every call of the clients that together.post_training exports (together 3.1.1), sync and async: nothing is left out.

The calls are listed by looking at the SDK itself: one that it has and this page does not know fails.
"""

import asyncio
import inspect

import pytest
import together.post_training as rl
from together.post_training import Generator, ModelResourcesClient, SessionClient, Trainer
from vendor_world import ADAM, CUSTOM, LORA, ONE, RESOURCES, SHORT, SYNC, TOKENS, Case, World, public

from samplekit.server import LocalService


def on(find, expect, **arguments):
    return Case(lambda w: arguments, expect, find)


def trainer(expect, **arguments):
    return on(lambda w: w.shared.trainer, expect, **arguments)


def generator(expect, **arguments):
    return on(lambda w: w.shared.generator, expect, **arguments)


async def answer():
    return 42


def is_stopped(found, _):
    return found.status.endswith("_STOPPED")


def downloading(w):
    return {"checkpoint_id": w.checkpoint_id, "variant": "CHECKPOINT_VARIANT_ADAPTER", "output_dir": w.folder}


def has_adapter(found, _):
    return "adapter_model.safetensors" in [path.name for path in found]


CLASSES = (ModelResourcesClient, SessionClient, Trainer, Generator)
# By the name of the blocking twin; the async one takes the same.
CLIENTS = {
    "ModelResourcesClient.create": Case(
        lambda w: {**w.options, **RESOURCES},
        lambda found, _: found.retrieve().status == "MODEL_RESOURCES_STATUS_READY",
        lambda w: ModelResourcesClient,
    ),
    "ModelResourcesClient.attach": Case(
        lambda w: {**w.options, "model_resources_id": w.resources_id},
        lambda found, w: found.model_resources_id == w.resources_id,
        lambda w: ModelResourcesClient,
    ),
    "ModelResourcesClient.create_session": on(
        World.resources, lambda found, w: w.status_of(found.session_id) == "TRAINING_SESSION_STATUS_RUNNING", **LORA
    ),
    "ModelResourcesClient.retrieve": on(World.resources, lambda found, _: found.base_model == "samplekit/tiny"),
    "ModelResourcesClient.extend_expiry": on(World.resources, lambda found, _: found.expires_at, seconds=7200),
    "ModelResourcesClient.stop": on(World.resources, is_stopped, force=True),
    "ModelResourcesClient.detach": on(World.resources, lambda found, _: found is None),
    "ModelResourcesClient.run": Case(lambda w: {"coro": answer()}, lambda found, _: found == 42, World.resources),
    "SessionClient.create": Case(
        lambda w: {**w.options, "model_resources_id": w.fresh_resources(), **LORA},
        lambda found, w: w.status_of(found.session_id) == "TRAINING_SESSION_STATUS_RUNNING",
        lambda w: SessionClient,
    ),
    "SessionClient.attach": Case(
        lambda w: {**w.options, "session_id": w.session_id},
        lambda found, w: found.session_id == w.session_id and found.has_generator,
        lambda w: SessionClient,
    ),
    "SessionClient.retrieve": on(World.session, lambda found, _: found.step == "0"),
    "SessionClient.create_inference_checkpoint": on(World.session, lambda found, _: found.id),
    "SessionClient.create_training_checkpoint": on(World.session, lambda found, _: found.step == "0"),
    "SessionClient.stop": on(World.session, is_stopped),
    "SessionClient.detach": on(World.session, lambda found, _: found is None),
    "SessionClient.run": Case(lambda w: {"coro": answer()}, lambda found, _: found == 42, World.session),
    "Trainer.forward": trainer(lambda found, _: found.loss > 0 and len(found.loss_fn_outputs) == 1, **ONE),
    "Trainer.forward_backward": trainer(lambda found, _: found.loss > 0, **ONE),
    "Trainer.custom_forward_backward": trainer(lambda found, _: found is not None, **CUSTOM),
    "Trainer.optim_step": Case(
        lambda w: w.shared.trainer.forward_backward(**ONE) and ADAM,
        lambda found, _: int(found.step) > 0,
        lambda w: w.shared.trainer,
    ),
    "Trainer.weights_sync": trainer(lambda found, _: int(found.weights_version) >= 0, **SYNC),
    "Generator.sample": generator(
        lambda found, _: len(found.sequences[0].tokens) == 2, prompt=TOKENS, sampling_params=SHORT
    ),
    "Generator.sample_batch": generator(
        lambda found, _: len(found) == 2, prompts=[TOKENS, TOKENS], sampling_params=SHORT
    ),
    "Generator.compute_logprobs": generator(lambda found, _: found[0] == 0.0 and len(found) == 3, prompt=TOKENS),
    "Generator.compute_logprobs_batch": generator(lambda found, _: len(found) == 2, prompts=[TOKENS, TOKENS]),
    "download_checkpoint": Case(lambda w: {**downloading(w), "client": w.client}, has_adapter, lambda w: rl),
}


@pytest.fixture(scope="module")
def world(loaded):
    with LocalService(model=loaded, token="key") as service, World(service) as found:
        yield found


def client_calls():
    functions = [name for name in rl.__all__ if inspect.isfunction(getattr(rl, name))]
    return [*functions, *(f"{cls.__name__}.{name}" for cls in CLASSES for name in public(cls))]


async def awaited(world, call, arguments):
    """Await a call; a function that takes the SDK's client takes the async one, in this loop."""
    if "client" not in arguments:
        return await call(**arguments)
    async with world.asynchronous() as client:
        return await call(**{**arguments, "client": client})


@pytest.mark.parametrize("name", client_calls())
def test_a_call_of_the_clients(world, name, tmp_path):
    world.folder = tmp_path
    case = CLIENTS[name.removesuffix("_async")]
    call = getattr(case.target(world), name.rpartition(".")[2])
    arguments = case.arguments(world)
    is_async = name.endswith("_async")
    assert inspect.iscoroutinefunction(call) is is_async
    found = asyncio.run(awaited(world, call, arguments)) if is_async else call(**arguments)
    assert case.expect(world.keep(found), world)


def test_the_table_names_nothing_that_the_sdk_lacks_and_all_but_one_have_both_faces():
    names = {name for name in client_calls() if not name.endswith("_async")}
    assert names == set(CLIENTS)
    assert names - {name.removesuffix("_async") for name in {*client_calls()} - names} == {"ModelResourcesClient.run"}


def test_no_class_of_the_sdk_with_calls_of_its_own_is_forgotten():
    classes = [getattr(rl, name) for name in rl.__all__ if inspect.isclass(getattr(rl, name))]
    own = {cls for cls in classes if cls.__module__.startswith("together.post_training") and public(cls)}
    assert own == {*CLASSES, rl.OperationFuture}  # futures are what the tinker layer gives: test_vendor_tinker.py
