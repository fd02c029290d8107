"""What the service lists: pages of checkpoints, sessions and resources, and the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from samplekit.wire.answers import (
    AnswerError,
    JsonObject,
    as_id,
    as_int,
    as_list,
    as_object,
    parse_object,
)
from samplekit.wire.cutting import parse_cut
from samplekit.wire.lifecycles import Lifecycle, lifecycle_of
from samplekit.wire.names import CheckpointType

T = TypeVar("T")
_KINDS = {CheckpointType.INFERENCE: "inference", CheckpointType.TRAINING: "training"}


@dataclass(frozen=True)
class Checkpoint:
    """Saved weights.

    Attributes:
        id: for ``client.download`` and ``client.session(resume_from=...)``.
        step: optimizer steps done when it was saved.
        kind: ``"inference"``: to serve or download; ``"training"``: with the optimizer's state, to go on from.
        created_at: when, as the service writes it.
        base_model: the model it was trained from; empty where the service does not say.
        session_id: the session that saved it; empty where the service does not say.
        lora_rank: of an adapter's checkpoint, its rank.
        registration: where the service's own registry keeps it, in the service's spelling.
    """

    id: str
    step: int
    kind: str
    created_at: str = ""
    base_model: str = ""
    session_id: str = ""
    lora_rank: int | None = None
    registration: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class CheckpointFile:
    """A file of a checkpoint.

    Attributes:
        filename: its name, without a folder.
        size: bytes.
        url: where it is for a while; it may carry a signature, so it is not shown.
    """

    filename: str
    size: int
    url: str = field(repr=False)


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list.

    Attributes:
        items: in the service's order.
        after: where the next part begins; None at the end.
    """

    items: list[T]
    after: str | None


def parse_page(body: bytes, read: Callable[[JsonObject], T]) -> Page[T]:
    """Parse one page of a list, each item by ``read``."""
    answer = parse_cut(body)
    items = [read(as_object(item)) for item in as_list(answer.get("data"), "data")]
    meta = as_object(answer.get("meta"))
    after = meta.get("next_cursor") if meta.get("has_more") is True else None
    return Page(items, str(after) if after else None)


def parse_lifecycles(body: bytes) -> Page[Lifecycle]:
    """Parse one page of sessions or resources."""
    return parse_page(body, lifecycle_of)


def parse_checkpoints(body: bytes) -> Page[Checkpoint]:
    """Parse one page of checkpoints."""
    return parse_page(body, checkpoint_of)


def parse_checkpoint(body: bytes) -> Checkpoint:
    """Parse what getting one checkpoint answers."""
    return checkpoint_of(parse_object(body))


def checkpoint_of(answer: JsonObject, kind: str = "") -> Checkpoint:
    """Read a checkpoint.

    Args:
        answer: in the service's spelling.
        kind: what it is where the answer does not say, as the output of the operation that saved it.
    """
    rank = answer.get("lora_rank")
    registration = next(
        (
            answer[name]
            for name in ("registration", "inference_registration", "training_registration")
            if answer.get(name)
        ),
        None,
    )
    return Checkpoint(
        as_id(answer, "id"),
        as_int(answer.get("step") or 0, "step"),
        next((name for spelled, name in _KINDS.items() if answer.get("type") == spelled), kind),
        str(answer.get("created_at") or ""),
        str(answer.get("base_model") or ""),
        str(answer.get("session_id") or ""),
        None if rank is None else as_int(rank, "lora_rank"),
        dict(as_object(registration)),
    )


def parse_files(body: bytes) -> list[CheckpointFile]:
    """Parse which files a checkpoint has, and where."""
    found = [as_object(item) for item in as_list(parse_object(body).get("data"), "data")]
    files = [
        CheckpointFile(as_id(item, "filename"), as_int(item.get("size"), "size"), as_id(item, "url")) for item in found
    ]
    if any(item.size < 0 for item in files) or len({item.filename for item in files}) < len(files):
        raise AnswerError("the answer names a file twice, or one of a negative size")
    return files
