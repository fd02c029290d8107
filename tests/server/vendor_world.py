"""What calls of the vendor's SDK are about: a service, resources, sessions, and how a call is written down."""

import functools
import inspect
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from together import AsyncTogether, Together
from together.post_training import ModelResourcesClient, SessionClient

from samplekit.server import LocalService

TOKENS = {"chunks": [{"encoded_text": {"tokens": [100, 101, 102]}}]}
SAMPLE = {
    "model_input": TOKENS,
    "loss_fn_inputs": {
        "target_tokens": {"data": [101, 102, 103], "dtype": "int64"},
        "weights": {"data": [0.0, 1.0, 1.0], "dtype": "float32"},
    },
}
ONE = {"samples": [SAMPLE], "loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"}}
CUSTOM = {"samples": [SAMPLE], "gradients": [{"data": [0.0, -0.1, -0.1]}]}
ADAM = {"adam_params": {"learning_rate": 1e-4}}
SYNC = {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"}
SHORT = {"max_tokens": 2}
LORA = {"lora_config": {"rank": 2}}
RESOURCES = {
    "base_model": "samplekit/tiny",
    "compute_config": {"num_generator_replicas": 1},
    "inactive_timeout": 600,
}


@dataclass
class World:
    """A service with a session that tests share; what ends something makes its own by `fresh_*`."""

    service: LocalService
    handles: list = field(default_factory=list)

    def __enter__(self):
        self.options = {"api_key": "key", "base_url": self.service.url}
        self.client = Together(**self.options)
        self.resources_id = self.fresh_resources()
        self.session_id = self.fresh_session(self.resources_id)
        return self

    def __exit__(self, *_):
        for kind in (SessionClient, ModelResourcesClient):
            for handle in self.handles:
                if isinstance(handle, kind):
                    with handle:
                        """Leaving stops what was not stopped or detached."""
        self.client.close()

    def keep(self, found):
        """Let what a call gave be closed in the end, if that is due."""
        self.handles.append(found)
        return found

    def fresh_resources(self):
        return self.client.post_training.model_resources.create(**RESOURCES).id

    def fresh_session(self, resources_id=None):
        found = SessionClient.create(model_resources_id=resources_id or self.fresh_resources(), **self.options, **LORA)
        found.detach()
        return found.session_id

    def resources(self):
        return self.keep(ModelResourcesClient.attach(model_resources_id=self.fresh_resources(), **self.options))

    def session(self, session_id=None):
        return self.keep(SessionClient.attach(session_id=session_id or self.fresh_session(), **self.options))

    @functools.cached_property
    def shared(self):
        return self.session(self.session_id)

    @functools.cached_property
    def checkpoint_id(self):
        return self.shared.create_inference_checkpoint().id

    def operation(self, name, **body):
        """Submit by the raw resource; give the id."""
        submit = getattr(self.client.post_training.operations, name)
        return submit(self.session_id, idempotency_key=self.new_key(), **body).id

    def new_key(self):
        return uuid.uuid4().hex

    def status_of(self, session_id):
        return self.client.post_training.sessions.retrieve(session_id).status

    def asynchronous(self):
        return AsyncTogether(**self.options)


@dataclass(frozen=True)
class Case:
    """How to call a method once, and what must be true of its answer.

    Attributes:
        arguments: keyword arguments, from the world.
        expect: of the answer and the world; anything false fails.
        target: what the method is looked up on, from the world; None for raw resources.
    """

    arguments: Callable
    expect: Callable
    target: Callable | None = None


def public(owner):
    """Names of the methods that a class defines for others."""
    return sorted(
        name
        for name, found in vars(owner).items()
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, classmethod | staticmethod))
    )
