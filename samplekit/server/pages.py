"""Lists, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from samplekit.server.refusals import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

DEFAULT_LIMIT, MAX_LIMIT = 20, 100


class Listed(Protocol):
    """What a list holds."""

    id: str

    @property
    def status(self) -> str:
        """Where it stands."""
        ...

    def to_wire(self) -> dict[str, Any]:
        """Show it as the protocol does."""
        ...


def page(request: Request, items: Sequence[Listed]) -> dict[str, Any]:
    """Show one page of a list as the query asks: ``status`` (comma separated), ``after`` (an id) and ``limit``."""
    limit = _limit(request.query_params.get("limit"))
    wanted = {name for value in request.query_params.getlist("status") for name in value.split(",")}
    chosen = [item for item in items if not wanted or item.status in wanted]
    after = request.query_params.get("after")
    if after:
        ids = [item.id for item in chosen]
        if after not in ids:
            raise invalid(f"after is {after!r}, expected the id of an item of this list: start again without it")
        chosen = chosen[ids.index(after) + 1 :]
    shown = chosen[:limit]
    meta: dict[str, Any] = {"limit": limit, "has_more": len(chosen) > limit}
    if meta["has_more"]:
        meta["next_cursor"] = shown[-1].id
    return {"data": [item.to_wire() for item in shown], "meta": meta}


def _limit(given: str | None) -> int:
    if given is None:
        return DEFAULT_LIMIT
    if not given.isdecimal() or not 1 <= int(given) <= MAX_LIMIT:
        raise invalid(f"limit is {given!r}, expected a whole number of 1 to {MAX_LIMIT}")
    return int(given)
