"""The client of a Together-compatible training service, blocking and async."""

from samplekit.client.async_client import AsyncClient
from samplekit.client.async_session import AsyncSession
from samplekit.client.batches import Batch
from samplekit.client.blocking_client import Client
from samplekit.client.drawn import Alternatives, DrawnGroup, PolicySegment
from samplekit.client.evaluation import held_out_loss
from samplekit.client.operations import AsyncOperation, Operation, as_completed
from samplekit.client.progress import Transferred, Waiting
from samplekit.client.resources import AsyncResources, Resources
from samplekit.client.results import TrainResult
from samplekit.client.runtime import Runtime
from samplekit.client.session import Session
from samplekit.wire.lifecycles import Lifecycle
from samplekit.wire.listings import Checkpoint
from samplekit.wire.offers import CostEstimate, Limits, SupportedModel

__all__ = [
    "Alternatives",
    "AsyncClient",
    "AsyncOperation",
    "AsyncResources",
    "AsyncSession",
    "Batch",
    "Checkpoint",
    "Client",
    "CostEstimate",
    "DrawnGroup",
    "Lifecycle",
    "Limits",
    "Operation",
    "PolicySegment",
    "Resources",
    "Runtime",
    "Session",
    "SupportedModel",
    "TrainResult",
    "Transferred",
    "Waiting",
    "as_completed",
    "held_out_loss",
]
