"""Lists, a page at a time."""

from __future__ import annotations

from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from samplekit.server.records import CREATED_BY
from samplekit.server.refusals import invalid
from samplekit.server.requests import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import StrEnum

    from starlette.requests import Request

DEFAULT_LIMIT, MAX_LIMIT = 20, 100


class Lived(Protocol):
    """What has a life on the service: resources and sessions."""

    @property
    def shown_status(self) -> str:
        """Where it stands."""
        ...


class Listed(Protocol):
    """What a list holds."""

    def to_wire(self) -> dict[str, Any]:
        """Show it as the protocol does."""
        ...


AnyListed = TypeVar("AnyListed", bound=Listed)


def lived(request: Request, statuses: type[StrEnum]) -> Callable[[Lived], bool]:
    """Choose as the query asks: ``status`` (comma separated) and ``created_by`` (everything here is one's own)."""
    own = request.query_params.get("created_by", "me") in {"me", CREATED_BY}
    wanted = {name for value in request.query_params.getlist("status") for name in value.split(",") if name}
    for name in wanted:
        one_of("status", name, statuses)
    return lambda item: own and (not wanted or item.shown_status in wanted)


def one_of(parameter: str, given: str, values: type[StrEnum]) -> None:
    """Refuse a value of the query that nothing can have."""
    if given not in set(values):
        raise invalid(f"{parameter} is {given!r:.80}, expected one of {', '.join(values)}")


def page(request: Request, items: Mapping[str, AnyListed], chosen: Callable[[AnyListed], bool]) -> dict[str, Any]:
    """Show one page of a list as the query asks: ``after`` (an id) and ``limit``.

    Args:
        request: asks.
        items: everything there is, by id, in the order of creation: a cursor holds whatever became of its item since.
        chosen: tells what the query chooses.
    """
    limit = _limit(request.query_params.get("limit"))
    after = request.query_params.get("after")
    left = iter(items)
    if after:
        if after not in items:
            raise invalid(f"after is {after!r:.80}, expected the id of an item of this list: start again without it")
        left = dropwhile(lambda identifier: identifier != after, left)
        next(left)
    found = list(islice((item for item in left if chosen(items[item])), limit + 1))
    shown, has_more = found[:limit], len(found) > limit
    meta: dict[str, Any] = {"limit": limit, "has_more": has_more}
    if has_more:
        meta["next_cursor"] = shown[-1]
    return {"data": [items[identifier].to_wire() for identifier in shown], "meta": meta}


def _limit(given: str | None) -> int:
    if given is None:
        return DEFAULT_LIMIT
    limit = whole_number(given)
    if limit is None or not 1 <= limit <= MAX_LIMIT:
        raise invalid(f"limit is {given!r:.80}, expected a whole number of 1 to {MAX_LIMIT}")
    return limit
