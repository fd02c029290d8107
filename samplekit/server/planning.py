"""The raw body of an operation, of an uploaded one the upload -> the work it asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from samplekit.server.refusals import invalid
from samplekit.server.requests import parse_json
from samplekit.server.work import Checkpoints, plan_work

if TYPE_CHECKING:
    from samplekit.server.records import Session
    from samplekit.server.service import Service
    from samplekit.server.work import Work
    from samplekit.wire.names import OperationKind

# Members of a request that never go into its upload.
FLAGS = ("forward_only", "return_loss_fn_outputs")


def plan_operation(
    raw: bytes, kind: OperationKind, key: str, session: Session, service: Service
) -> tuple[str | None, Work]:
    """Parse a body and plan its work; runs off the event loop.

    Returns:
        The id of its upload, None without one, and the work.

    Raises:
        Refusal: the body is at fault (400).
    """
    body = _object(raw)
    payload_id = body.pop("payload_id", None)
    if payload_id is not None:
        content = service.payloads.content(str(payload_id), session.id)
        if content is None:
            raise invalid(
                f"payload_id {payload_id!r:.80} has no upload in this session: PUT the body to its upload_url first"
            )
        flags = {name: body.pop(name) for name in FLAGS if name in body}
        uploaded = _object(content)
        refuse_other_shape(body, uploaded, "the body")
        body = {**uploaded, **flags}
    identity = hashlib.sha256(f"{session.id}/{key}".encode()).hexdigest()[:16]
    work = plan_work(
        kind, body, session, service.model, Checkpoints(service.checkpoints, f"ckpt-{identity}", service.clock)
    )
    return None if payload_id is None else str(payload_id), work


def _object(raw: bytes) -> dict[str, Any]:
    body = parse_json(raw)
    if not isinstance(body, dict):
        raise invalid(f"the body is a JSON {type(body).__name__}, expected an object")
    return cast("dict[str, Any]", body)


def refuse_other_shape(stand_in: object, uploaded: object, path: str) -> None:
    """Refuse an upload that is not what its stand-in announces: other members, other dtypes, another count of samples.

    A stand-in is a body whose number lists are cut short; what its numbers say is not looked at.
    """
    if isinstance(stand_in, Mapping) and isinstance(uploaded, Mapping):
        shown, full = cast("Mapping[str, Any]", stand_in), cast("Mapping[str, Any]", uploaded)
        missing = sorted(set(shown) - set(full))
        if missing:
            raise invalid(f"{path} announces {missing}, which the uploaded payload does not hold: upload it again")
        for name, value in shown.items():
            if name == "dtype" and value != full[name]:
                raise invalid(f"{path}.dtype is {value!r} but {full[name]!r} in the uploaded payload")
            if name != "chunks":  # later chunks may be left out of a stand-in
                refuse_other_shape(value, full[name], f"{path}.{name}")
    elif isinstance(stand_in, list) and isinstance(uploaded, list):
        listed, whole = cast("Sequence[Any]", stand_in), cast("Sequence[Any]", uploaded)
        if any(isinstance(item, Mapping) for item in listed):
            if len(listed) != len(whole):
                raise invalid(f"{path} announces {len(listed)} items, the uploaded payload holds {len(whole)}")
            for index, (item, other) in enumerate(zip(listed, whole, strict=True)):
                refuse_other_shape(item, other, f"{path}[{index}]")
