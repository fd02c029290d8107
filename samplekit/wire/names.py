"""How the service spells things: routes, headers, enums, limits and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BASE_URL = "https://api.together.ai"
ENV_API_KEY = "TOGETHER_API_KEY"
ENV_BASE_URL = "TOGETHER_BASE_URL"

# Headers, in lower case as ASGI gives them.
AUTHORIZATION = "authorization"
IDEMPOTENCY_KEY = "idempotency-key"
REQUEST_ID = "x-request-id"
RETRY_AFTER = "retry-after"
RETRY_AFTER_MS = "retry-after-ms"
SHOULD_RETRY = "x-should-retry"

# Limits of the protocol. Bytes are of compact JSON without forward_only and return_loss_fn_outputs.
INLINE_LIMIT_BYTES = 524_288  # a body of more bytes is uploaded as a payload
PAYLOAD_LIMIT_BYTES = 5 * 1024**3 - 5 * 1024**2
STAND_IN_LENGTH = 8  # values that stay of every number list of an uploaded body
SESSION_RETRIES = 7
PAYLOAD_RETRIES = 5
INACTIVE_TIMEOUT_SECONDS = (300, 86_400)
EXTEND_EXPIRY_SECONDS = (60, 86_400)
MAX_TOPK_PROMPT_LOGPROBS = 20

# Limits on what is taken from the service, for memory's sake. Answers nest about ten deep.
MAX_ANSWER_BYTES = 1024**3
MAX_ANSWER_DEPTH = 64
MAX_BODY_DEPTH = 32  # of what a caller puts into a body, which comes back inside an answer
MAX_ERROR_BYTES = 1024**2  # of an error's body; what comes after is not read

# Retrying and polling. Seconds.
RETRIED_STATUSES = frozenset({408, 409, 429})  # and 5xx
REFUSED_BEFORE_WORK = 429  # repeated even for a call without a key
MAX_RETRY_AFTER = 60.0
FIRST_BACKOFF, MAX_BACKOFF = 1.0, 10.0
FIRST_POLL, MAX_POLL = 0.5, 5.0
NOT_FOUND_GRACE = 10.0


@dataclass(frozen=True)
class Route:
    """One row of the protocol: a method and a path with its ids left open.

    Attributes:
        method: the HTTP method.
        template: the path, ids as ``{session_id}`` (starlette reads the same spelling).
        keyed: whether the call must carry an Idempotency-Key; of all calls only submitting an operation does.
        repeatable: whether it is sent again once its bytes were sent: it only reads or estimates, carries a key, or
            gives a URL for a payload.
    """

    method: str
    template: str
    keyed: bool = False
    repeatable: bool = False

    def path(self, **ids: str) -> str:
        """Give the path with its ids, each quoted so that it stays one segment."""
        names = {name for _, name, _, _ in Formatter().parse(self.template) if name}
        if names != set(ids) or not all(ids.values()):
            raise ValueError(f"{self.template} takes non-empty {sorted(names)}, got {ids}")
        return self.template.format(**{name: quote(value, safe="") for name, value in ids.items()})


_RESOURCES = "/v1/rl/model-resources"
_SESSIONS = "/v1/rl/training-sessions"
_SESSION = f"{_SESSIONS}/{{session_id}}"
_CHECKPOINTS = "/v1/rl/checkpoints"

SUPPORTED_MODELS = Route("GET", "/v1/rl/supported-models", repeatable=True)
ESTIMATE_COST = Route("POST", f"{_RESOURCES}/estimate-cost", repeatable=True)
CREATE_RESOURCES = Route("POST", _RESOURCES)
LIST_RESOURCES = Route("GET", _RESOURCES, repeatable=True)
GET_RESOURCES = Route("GET", f"{_RESOURCES}/{{resources_id}}", repeatable=True)
EXTEND_EXPIRY = Route("POST", f"{_RESOURCES}/{{resources_id}}/extend-expiry")
STOP_RESOURCES = Route("POST", f"{_RESOURCES}/{{resources_id}}/stop")
CREATE_SESSION = Route("POST", _SESSIONS)
LIST_SESSIONS = Route("GET", _SESSIONS, repeatable=True)
GET_SESSION = Route("GET", _SESSION, repeatable=True)
UPDATE_SESSION = Route("PATCH", _SESSION)
STOP_SESSION = Route("POST", f"{_SESSION}/stop")
SUBMIT_OPERATION = Route("POST", f"{_SESSION}/operations/{{kind}}", keyed=True, repeatable=True)
GET_OPERATION = Route("GET", f"{_SESSION}/operations/{{kind}}/{{operation_id}}", repeatable=True)
UPLOAD_URL = Route("POST", f"{_SESSION}/payloads/upload-url", repeatable=True)
DOWNLOAD_URL = Route("POST", f"{_SESSION}/payloads/{{payload_id}}/download-url", repeatable=True)
LIST_CHECKPOINTS = Route("GET", _CHECKPOINTS, repeatable=True)
GET_CHECKPOINT = Route("GET", f"{_CHECKPOINTS}/{{checkpoint_id}}", repeatable=True)
DOWNLOAD_CHECKPOINT = Route("GET", f"{_CHECKPOINTS}/{{checkpoint_id}}/download", repeatable=True)


class OperationKind(StrEnum):
    """The operations of a session, as their paths spell them."""

    FORWARD_BACKWARD = "forward-backward"
    CUSTOM_FORWARD_BACKWARD = "custom-forward-backward"
    OPTIM_STEP = "optim-step"
    WEIGHTS_SYNC = "weights-sync"
    SAMPLE = "sample"
    INFERENCE_CHECKPOINT = "inference-checkpoint"
    TRAINING_CHECKPOINT = "training-checkpoint"


# What statuses begin with, by what they are of.
OPERATION_STATUS, SESSION_STATUS, RESOURCES_STATUS = (
    "TRAINING_OPERATION_STATUS_",
    "TRAINING_SESSION_STATUS_",
    "MODEL_RESOURCES_STATUS_",
)


class OperationStatus(StrEnum):
    """Where an operation stands; a status not listed here is one to poll again."""

    PENDING = "TRAINING_OPERATION_STATUS_PENDING"
    RUNNING = "TRAINING_OPERATION_STATUS_RUNNING"
    COMPLETED = "TRAINING_OPERATION_STATUS_COMPLETED"
    FAILED = "TRAINING_OPERATION_STATUS_FAILED"


class OperationErrorCode(StrEnum):
    """Why an operation failed."""

    UNSPECIFIED = "TRAINING_OPERATION_ERROR_CODE_UNSPECIFIED"
    RESOURCE_EXHAUSTED = "TRAINING_OPERATION_ERROR_CODE_RESOURCE_EXHAUSTED"
    TIMEOUT = "TRAINING_OPERATION_ERROR_CODE_TIMEOUT"
    INTERNAL_ERROR = "TRAINING_OPERATION_ERROR_CODE_INTERNAL_ERROR"
    SESSION_NOT_ACTIVE = "TRAINING_OPERATION_ERROR_CODE_SESSION_NOT_ACTIVE"
    INVALID_INPUT = "TRAINING_OPERATION_ERROR_CODE_INVALID_INPUT"
    NON_FINITE_LOSS = "TRAINING_OPERATION_ERROR_CODE_NON_FINITE_LOSS"


class SessionStatus(StrEnum):
    """Where a training session stands."""

    CREATING = "TRAINING_SESSION_STATUS_CREATING"
    RUNNING = "TRAINING_SESSION_STATUS_RUNNING"
    STOPPING = "TRAINING_SESSION_STATUS_STOPPING"
    STOPPED = "TRAINING_SESSION_STATUS_STOPPED"
    ERROR = "TRAINING_SESSION_STATUS_ERROR"
    EXPIRED = "TRAINING_SESSION_STATUS_EXPIRED"


class ResourcesStatus(StrEnum):
    """Where model resources stand."""

    PENDING = "MODEL_RESOURCES_STATUS_PENDING"
    CREATING = "MODEL_RESOURCES_STATUS_CREATING"
    READY = "MODEL_RESOURCES_STATUS_READY"
    ERROR = "MODEL_RESOURCES_STATUS_ERROR"
    STOPPING = "MODEL_RESOURCES_STATUS_STOPPING"
    STOPPED = "MODEL_RESOURCES_STATUS_STOPPED"


class WeightSyncType(StrEnum):
    """How trained weights reach the generator."""

    SYNCHRONOUS = "WEIGHT_SYNC_TYPE_SYNCHRONOUS"
    BACKGROUND_PUBLISH = "WEIGHT_SYNC_TYPE_BACKGROUND_PUBLISH"
    PIPELINE = "WEIGHT_SYNC_TYPE_PIPELINE"


class StopReason(StrEnum):
    """Why a completion ended."""

    LENGTH = "STOP_REASON_LENGTH"
    STOP = "STOP_REASON_STOP"


class CheckpointType(StrEnum):
    """What a checkpoint is for."""

    INFERENCE = "CHECKPOINT_TYPE_INFERENCE"
    TRAINING = "CHECKPOINT_TYPE_TRAINING"


class CheckpointVariant(StrEnum):
    """Which files of a checkpoint to download."""

    MERGED = "CHECKPOINT_VARIANT_MERGED"
    ADAPTER = "CHECKPOINT_VARIANT_ADAPTER"


# Gradients spell their dtype otherwise than samples do ("float32").
GRADIENT_DTYPE = "D_TYPE_FLOAT32"
GRADIENT_DTYPES = frozenset({GRADIENT_DTYPE, "D_TYPE_UNSPECIFIED", "D_TYPE_INT64", "D_TYPE_BFLOAT16"})

# What the service takes where a request leaves a setting out.
ADAM_DEFAULTS: Mapping[str, float] = MappingProxyType(
    {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 1.0}  # no learning rate
)
# What a setting may be at most: a step multiplies two of them, and the product stays within float32.
LARGEST_SETTING = 1e15
# A smaller epsilon is 0 in float32, and gives 0 / 0 where a weight has no gradient.
SMALLEST_EPSILON = 1e-30
MAX_NEWTON_SCHULZ_STEPS = 99
# A lower temperature takes logits beyond float32; 0 itself takes the likeliest token.
SMALLEST_TEMPERATURE = 1e-30
LORA_DEFAULTS: Mapping[str, float | bool] = MappingProxyType(
    {"rank": 32, "alpha": 64, "dropout": 0.0, "train_unembed": True}
)
SAMPLING_DEFAULTS: Mapping[str, float] = MappingProxyType(
    {"max_tokens": 512, "temperature": 1.0, "top_p": 1.0, "top_k": -1}
)

TERMINAL_OPERATIONS = frozenset({OperationStatus.COMPLETED, OperationStatus.FAILED})
INACTIVE_SESSIONS = frozenset({SessionStatus.STOPPED, SessionStatus.ERROR, SessionStatus.EXPIRED})
INACTIVE_RESOURCES = frozenset({ResourcesStatus.ERROR, ResourcesStatus.STOPPING, ResourcesStatus.STOPPED})
