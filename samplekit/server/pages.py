"""Lists, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from samplekit.server.records import CREATED_BY
from samplekit.server.refusals import invalid
from samplekit.server.requests import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request

DEFAULT_LIMIT, MAX_LIMIT = 20, 100


class Lived(Protocol):
    """What has a life on the service: resources and sessions."""

    @property
    def shown_status(self) -> str:
        """Where it stands."""
        ...


AnyLived = TypeVar("AnyLived", bound=Lived)


class Listed(Protocol):
    """What a list holds."""

    @property
    def id(self) -> str:
        """Its cursor."""
        ...

    def to_wire(self) -> dict[str, Any]:
        """Show it as the protocol does."""
        ...


def chosen(request: Request, items: Iterable[AnyLived]) -> list[AnyLived]:
    """Choose as the query asks: ``status`` (comma separated) and ``created_by`` (everything here is one's own)."""
    if request.query_params.get("created_by", "me") not in {"me", CREATED_BY}:
        return []
    wanted = {name for value in request.query_params.getlist("status") for name in value.split(",")}
    return [item for item in items if not wanted or item.shown_status in wanted]


def page(request: Request, items: Sequence[Listed]) -> dict[str, Any]:
    """Show one page of a list as the query asks: ``after`` (an id) and ``limit``."""
    limit = _limit(request.query_params.get("limit"))
    left = items
    after = request.query_params.get("after")
    if after:
        ids = [item.id for item in left]
        if after not in ids:
            raise invalid(f"after is {after!r:.80}, expected the id of an item of this list: start again without it")
        left = left[ids.index(after) + 1 :]
    shown = left[:limit]
    meta: dict[str, Any] = {"limit": limit, "has_more": len(left) > limit}
    if meta["has_more"]:
        meta["next_cursor"] = shown[-1].id
    return {"data": [item.to_wire() for item in shown], "meta": meta}


def _limit(given: str | None) -> int:
    if given is None:
        return DEFAULT_LIMIT
    limit = whole_number(given)
    if limit is None or not 1 <= limit <= MAX_LIMIT:
        raise invalid(f"limit is {given!r:.80}, expected a whole number of 1 to {MAX_LIMIT}")
    return limit
