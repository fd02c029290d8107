"""The client of a Together-compatible training service, blocking and async."""

from samplekit.client.async_client import AsyncClient
from samplekit.client.async_session import AsyncSession
from samplekit.client.batches import Batch
from samplekit.client.blocking_client import Client
from samplekit.client.evaluation import held_out_loss
from samplekit.client.operations import AsyncOperation, Operation, as_completed
from samplekit.client.results import TrainResult
from samplekit.client.runtime import Runtime
from samplekit.client.session import Session
from samplekit.wire.answers import CostEstimate, Limits, SupportedModel

__all__ = [
    "AsyncClient",
    "AsyncOperation",
    "AsyncSession",
    "Batch",
    "Client",
    "CostEstimate",
    "Limits",
    "Operation",
    "Runtime",
    "Session",
    "SupportedModel",
    "TrainResult",
    "as_completed",
    "held_out_loss",
]
