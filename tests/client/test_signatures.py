"""One face for blocking and async, and the arguments of what stands besides the signatures page."""

from __future__ import annotations

import inspect

import pytest

from samplekit.client import (
    AsyncClient,
    AsyncOperation,
    AsyncResources,
    AsyncSession,
    Client,
    Operation,
    Resources,
    Session,
)

# Names that the signatures page does not have (tests/test_signatures_page.py holds those it has), and their arguments.
BESIDES = {
    (
        Client,
        "estimate_cost",
    ): "self, *, base_model=None, lora_rank=None, num_generators=1, lora=False, gpu_type=None, optimizer=None, "
    "muon_scaling=None, inactive_timeout=None, base_weights=None",
    (Client, "checkpoints"): "self, *, session_id=None, kind=None, base_model=None, limit=None",
    (Client, "sessions"): "self, *, status=(), created_by=None, resources_id=None, limit=None",
    (Client, "resources"): "self, *, status=(), created_by=None, limit=None",
    (Client, "attach_resources"): "self, resources_id",
    (
        Client,
        "create_resources",
    ): "self, *, base_model=None, lora=False, num_generators=1, gpu_type=None, optimizer=None, "
    "muon_scaling=None, inactive_timeout=None, base_weights=None",
    (Resources, "session"): "self, *, lora_rank=None, lora_alpha=None, lora_seed=None, name=None, resume_from=None, "
    "lora_dropout=None, lora_train_unembed=None, metadata=None, load_optimizer=None",
    (Resources, "extend"): "self, seconds",
    (Resources, "wait"): "self, timeout=3600.0",
    (Resources, "stop"): "self",
    (Session, "rename"): "self, name",
    (Session, "annotate"): "self, metadata",
}
ASYNC = {Client: AsyncClient, Session: AsyncSession, Operation: AsyncOperation, Resources: AsyncResources}


def spelled(function):
    parameters = [
        item.replace(annotation=inspect.Parameter.empty) for item in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters)).strip("()")


@pytest.mark.parametrize(("cls", "name"), BESIDES)
def test_signatures_besides_the_page_are_kept(cls, name):
    assert spelled(getattr(cls, name)) == BESIDES[cls, name]


def methods(cls):
    return [name for name in dir(cls) if not name.startswith("_") and inspect.isfunction(getattr(cls, name))]


@pytest.mark.parametrize(("cls", "name"), [(cls, name) for cls in ASYNC for name in ["__init__", *methods(cls)]])
def test_the_async_side_takes_what_the_blocking_side_takes(cls, name):
    assert spelled(getattr(ASYNC[cls], name)) == spelled(getattr(cls, name))


def test_create_app_takes_what_the_service_takes():
    """Imported here alone: it loads torch."""
    from samplekit.server import create_app

    assert spelled(create_app) == "model='samplekit/tiny', *, token=None, state_dir=None"


@pytest.mark.parametrize("cls", ASYNC)
def test_both_sides_show_the_same_names(cls):
    def public(owner):
        return {name for name in dir(owner) if not name.startswith("_")}

    assert public(cls) == public(ASYNC[cls])
