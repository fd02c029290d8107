"""What every route does: find the service, receive a body within limits, answer with JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from samplekit.server.refusals import JSON_TYPE, Refusal, invalid
from samplekit.wire.names import INLINE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from samplekit.server.service import Service

# Clients upload bodies over the inline limit; a larger one is taken too, within reason.
MAX_BODY_BYTES = 64 * INLINE_LIMIT_BYTES
MAX_DIGITS = 18
TOO_DEEP = (
    "the JSON of the body is nested too deep: no body of this service needs more than ten levels, and metadata has 32"
)


def service_of(request: Request) -> Service:
    """Give the state behind a request, without what ran out meanwhile."""
    service: Service = request.app.state.service
    service.lifetimes.expire()
    return service


def json_response(value: Any) -> Response:  # noqa: ANN401 - any JSON
    """Answer with JSON; a finished piece of it comes as ``orjson.Fragment``."""
    return Response(orjson.dumps(value), media_type=JSON_TYPE)


async def receive_json(request: Request) -> Any:  # noqa: ANN401 - any JSON
    """Receive a small JSON body; an empty one counts as an empty object."""
    return parse_json(await receive_bytes(request, MAX_BODY_BYTES))


async def receive_bytes(request: Request, limit: int) -> bytes:
    """Receive a body of at most ``limit`` bytes into memory."""
    return b"".join([piece async for piece in limited(request, limit)])


async def limited(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Give a body piece by piece.

    Raises:
        Refusal: it holds more than ``limit`` bytes (413), whatever its headers say.
    """
    size = whole_number(request.headers.get("content-length", "")) or 0
    if size <= limit:
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size > limit:
                break
            yield piece
    if size > limit:
        raise Refusal(413, f"the body holds more than {limit} bytes: upload it as a payload, or send fewer samples")


def whole_number(text: str) -> int | None:
    """Read a number of a query or a header; None where it is none, or longer than any that is asked for here."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def parse_json(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse a body.

    Raises:
        Refusal: it is no JSON; NaN and infinity are none.
    """
    try:
        return orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError as error:
        if "depth limit" in str(error) or "ecursion" in str(error):  # newer and older releases
            raise invalid(TOO_DEEP) from error
        raise invalid(f"the body is no JSON ({error}); NaN and infinity cannot be sent: mask such positions") from error
