"""Requests that are refused, and the JSON that says why."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

import orjson
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from samplekit.wire.names import SHOULD_RETRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JSON_TYPE = "application/json"


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault of the service
    """A request that is answered with an error status and changes nothing.

    Attributes:
        status: the HTTP status.
        message: where, what was found, what was expected and what to do.
        headers: more headers of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def invalid(message: str) -> Refusal:
    """Refuse a body that cannot be worked with."""
    return Refusal(400, message)


def conflict(message: str) -> Refusal:
    """Refuse what clashes with an earlier request; clients retry 409 unless they are told not to."""
    return Refusal(409, message, {SHOULD_RETRY: "false"})


def not_found(what: str, identifier: str) -> Refusal:
    """Refuse an id that this service never gave out."""
    return Refusal(404, f"there is no {what} {identifier!r:.80} on this service: list what exists, or create it first")


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with the service's error shape."""
    body = orjson.dumps({"error": {"message": message, "type": _TYPES.get(status, "service_error"), "code": status}})
    return Response(body, status, headers=dict(headers or {}), media_type=JSON_TYPE)


def describe_validation(error: ValidationError, kind: type[BaseModel]) -> str:
    """Say the first fault of a body of some kind as path, what was found and what was expected."""
    fault: Mapping[str, Any] = error.errors(include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
    # A batch may hold millions of numbers: its start is shown without printing the rest.
    found = f" is {reprlib.repr(fault['input']):.80}" if fault["type"] not in {"missing", "extra_forbidden"} else ""
    return f"{path or 'the body'}{found}: {fault['msg']}{_taken(fault, kind)}"


def _taken(fault: Mapping[str, Any], kind: object) -> str:
    """Name the members that are taken where one is not."""
    if fault["type"] != "extra_forbidden":
        return ""
    for part in fault["loc"][:-1]:
        kind = (
            next(_models_in(kind.model_fields[part].annotation), None)
            if _is_model(kind) and part in kind.model_fields
            else kind
        )
    return f"; what is taken here: {', '.join(kind.model_fields) or 'nothing'}" if _is_model(kind) else ""


def _is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if _is_model(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
}
