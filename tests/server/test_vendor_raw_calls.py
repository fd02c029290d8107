"""Every call of the raw resources under `client.post_training` (together 3.1.1), sync and async: nothing is left out.

The calls are listed by looking at the SDK itself: one that it has and this page does not know fails. The clients on top
are in test_vendor_client_calls.py; what they train is held in test_sdk.py and test_vendor_sdk.py.
"""

import asyncio
import time
from pathlib import Path

import pytest
from together import AsyncTogether, NotFoundError, Together
from together._resource import AsyncAPIResource, SyncAPIResource
from vendor_world import ADAM, CUSTOM, LORA, ONE, RESOURCES, SHORT, SYNC, TOKENS, Case, World, public

from samplekit.server import LocalService

# What the SDK offers and the service does not answer, by the beginning of the name: see docs/service.md.
NOT_IMITATED = {"prepare_for_fp4_inference.": "quantisation jobs"}


def raw(expect, **constant):
    return Case(lambda w: constant, expect)


def in_session(expect, **constant):
    return Case(lambda w: {"session_id": w.session_id, **constant}, expect)


def is_submitted(found, _):
    return found.id and found.status.startswith("TRAINING_OPERATION_STATUS_")


SUBMITS = {
    "forward_backward": ONE,
    "custom_forward_backward": CUSTOM,
    "optim_step": ADAM,
    "weights_sync": SYNC,
    "sample": {"model_inputs": [TOKENS], "sampling_params": SHORT},
    "create_inference_checkpoint": {},
    "create_training_checkpoint": {},
}


def submitted(body):
    return Case(lambda w: {"session_id": w.session_id, "idempotency_key": w.new_key(), **body}, is_submitted)


def retrieved(name):
    """The first answer, and those after it: what was submitted ends well."""
    retrieve = f"retrieve_{name.removeprefix('create_')}"

    def arguments(w):
        if name == "optim_step":
            w.operation("forward_backward", **ONE)  # a step applies something
        return {"session_id": w.session_id, "operation_id": w.operation(name, **SUBMITS[name])}

    def ends(found, w):
        for _ in range(1000):
            if found.status == "TRAINING_OPERATION_STATUS_COMPLETED":
                return found.output is not None
            assert found.status != "TRAINING_OPERATION_STATUS_FAILED", found.error
            time.sleep(0.01)
            found = getattr(w.client.post_training.operations, retrieve)(found.id, session_id=w.session_id)
        return False

    return Case(arguments, ends)


def listed(ours):
    return lambda found, w: ours(w) in [item.id for item in found.data]


RAW = {
    "supported_models.get": raw(lambda found, _: [item.base_model for item in found.data] == ["samplekit/tiny"]),
    "model_resources.create": raw(lambda found, _: found.status == "MODEL_RESOURCES_STATUS_READY", **RESOURCES),
    "model_resources.retrieve": Case(
        lambda w: {"model_resources_id": w.resources_id}, lambda found, w: found.id == w.resources_id
    ),
    "model_resources.list": raw(listed(lambda w: w.resources_id), limit=100),
    "model_resources.estimate_cost": raw(lambda found, _: found.price_per_hour == 0, **RESOURCES),
    "model_resources.extend_expiry": Case(
        lambda w: {"model_resources_id": w.resources_id, "seconds": 7200}, lambda found, w: found.id == w.resources_id
    ),
    "model_resources.stop": Case(
        lambda w: {"model_resources_id": w.fresh_resources(), "force": True},
        lambda found, _: found.status in {"MODEL_RESOURCES_STATUS_STOPPING", "MODEL_RESOURCES_STATUS_STOPPED"},
    ),
    "sessions.create": Case(
        lambda w: {"model_resources_id": w.fresh_resources(), "display_name": "raw", **LORA},
        lambda found, _: found.display_name == "raw",
    ),
    "sessions.retrieve": in_session(lambda found, w: found.id == w.session_id),
    "sessions.update": Case(
        lambda w: {"session_id": w.session_id, "display_name": "renamed"},
        lambda found, _: found.display_name == "renamed",
    ),
    "sessions.list": Case(lambda w: {"model_resources_id": w.resources_id}, listed(lambda w: w.session_id)),
    "sessions.stop": Case(
        lambda w: {"session_id": w.fresh_session()},
        lambda found, _: found.status in {"TRAINING_SESSION_STATUS_STOPPING", "TRAINING_SESSION_STATUS_STOPPED"},
    ),
    "checkpoints.retrieve": Case(lambda w: {"id": w.checkpoint_id}, lambda found, w: found.id == w.checkpoint_id),
    "checkpoints.list": Case(
        lambda w: {"session_id": w.session_id, "type": "CHECKPOINT_TYPE_INFERENCE", "limit": 100},
        lambda found, w: found.meta.limit == 100 and all(item.session_id == w.session_id for item in found.data),
    ),
    "checkpoints.download": Case(
        lambda w: {"id": w.checkpoint_id, "variant": "CHECKPOINT_VARIANT_ADAPTER"},
        lambda found, _: "adapter_model.safetensors" in [item.filename for item in found.data],
    ),
    **{f"operations.{name}": submitted(body) for name, body in SUBMITS.items()},
    **{f"operations.retrieve_{name.removeprefix('create_')}": retrieved(name) for name in SUBMITS},
}


@pytest.fixture(scope="module")
def world(loaded):
    with LocalService(model=loaded, token="key") as service, World(service) as found:
        yield found


def raw_calls(client, kind):
    """ "resource.method" of every resource under client.post_training, without its raw and streaming faces."""
    tree = client.post_training
    parts = {name: getattr(tree, name) for name in dir(tree) if not name.startswith(("_", "with_"))}
    assert all(isinstance(part, kind) for part in parts.values())
    return [f"{name}.{method}" for name, part in parts.items() for method in public(type(part))]


BLOCKING = raw_calls(Together(api_key="key"), SyncAPIResource)
AWAITED = raw_calls(AsyncTogether(api_key="key"), AsyncAPIResource)


def imitated(names):
    return [name for name in names if not name.startswith(tuple(NOT_IMITATED))]


@pytest.mark.parametrize("name", imitated(BLOCKING))
def test_a_raw_call(world, name):
    part, _, method = name.partition(".")
    call = getattr(getattr(world.client.post_training, part), method)
    assert RAW[name].expect(call(**RAW[name].arguments(world)), world)


@pytest.mark.parametrize("name", imitated(AWAITED))
def test_a_raw_call_that_is_awaited(world, name):
    part, _, method = name.partition(".")

    async def call(arguments):
        async with world.asynchronous() as client:
            return await getattr(getattr(client.post_training, part), method)(**arguments)

    assert RAW[name].expect(asyncio.run(call(RAW[name].arguments(world))), world)


def test_the_table_names_nothing_that_the_sdk_lacks_and_leaves_out_what_the_page_says():
    assert sorted(RAW) == sorted(imitated(BLOCKING)) == sorted(imitated(AWAITED))
    assert len(set(BLOCKING) - set(imitated(BLOCKING))) == 6
    page = " ".join((Path(__file__).parents[2] / "docs" / "service.md").read_text().split())
    gaps = page.partition("## What the local service does not imitate")[2]
    assert all(reason in gaps for reason in NOT_IMITATED.values())


def test_what_is_not_imitated_is_refused_as_unknown(world):
    with pytest.raises(NotFoundError):
        world.client.post_training.prepare_for_fp4_inference.list()
