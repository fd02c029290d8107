"""The names, order and defaults of the signatures page, and one face for blocking and async."""

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
    TrainResult,
)

EXPECTED = {
    (Client, "__init__"): "self, *, base_url=None, api_key=None, timeout=300.0, max_retries=7, transport=None, "
    "max_answer_bytes=1073741824",
    (Client, "supported_models"): "self",
    (Client, "estimate_cost"): "self, *, base_model=None, lora_rank=None, num_generators=1",
    (Client, "session"): "self, *, base_model=None, lora_rank=None, lora_alpha=None, lora_seed=None, num_generators=1, "
    "name=None, resume_from=None, lora_dropout=None, lora_train_unembed=None, metadata=None, load_optimizer=None",
    (Client, "attach"): "self, session_id",
    (Client, "download"): "self, checkpoint_id, folder, *, variant='adapter'",
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
    (Session, "save_inference_checkpoint"): "self",
    (Session, "save_training_checkpoint"): "self",
    (Session, "rename"): "self, name",
    (Session, "annotate"): "self, metadata",
    (Session, "forward"): "self, samples, loss",
    (Session, "forward_backward"): "self, samples, loss, *, return_logprobs=False",
    (Session, "custom_forward_backward"): "self, samples, gradients",
    (Session, "optim_step"): "self, *, learning_rate=None, beta1=None, beta2=None, eps=None, weight_decay=None, "
    "grad_clip_norm=None, muon=None",
    (Session, "generate"): "self, prompts, *, num_samples=1, max_tokens=None, temperature=1.0, top_p=1.0, top_k=-1, "
    "stop=(), seed=None, prompt_logprobs=False, topk_prompt_logprobs=0, return_routed_experts=False",
    (Session, "weights_sync"): "self, kind='synchronous'",
    (Session, "operation"): "self, id, kind, *, prompts=None",
    (Session, "batches"): "self, samples, *, batch_size=None, max_tokens=None, epochs=1, seed=0",
    (Session, "stop"): "self",
    (Session, "detach"): "self",
    (Operation, "result"): "self, timeout=300.0",
    (Operation, "done"): "self",
}
ASYNC = {Client: AsyncClient, Session: AsyncSession, Operation: AsyncOperation, Resources: AsyncResources}


def spelled(function):
    parameters = [
        item.replace(annotation=inspect.Parameter.empty) for item in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters)).strip("()")


@pytest.mark.parametrize(("cls", "name"), EXPECTED)
def test_signatures_are_those_of_the_page(cls, name):
    assert spelled(getattr(cls, name)) == EXPECTED[cls, name]


@pytest.mark.parametrize(("cls", "name"), EXPECTED)
def test_the_async_side_takes_what_the_blocking_side_takes(cls, name):
    assert spelled(getattr(ASYNC[cls], name)) == EXPECTED[cls, name]


def test_the_local_services_signatures_are_those_of_the_page():
    """Imported here alone: they load torch."""
    from samplekit.server import LocalService, create_app

    expected = "self, *, model='samplekit/tiny', port=0, token=None, state_dir=None"
    assert spelled(LocalService.__init__) == expected
    assert spelled(create_app) == "model='samplekit/tiny', *, token=None, state_dir=None"


@pytest.mark.parametrize("cls", ASYNC)
def test_both_sides_show_the_same_names(cls):
    def public(owner):
        return {name for name in dir(owner) if not name.startswith("_")}

    assert public(cls) == public(ASYNC[cls])


def test_operations_and_results_have_the_pages_attributes():
    assert {"id", "kind", "idempotency_key", "done", "result"} <= set(dir(Operation))
    assert {"loss", "metrics", "logprobs", "num_trained"} <= set(TrainResult.__dataclass_fields__)
    assert isinstance(TrainResult.mean_loss, property)
