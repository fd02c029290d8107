"""Lists of the service, followed page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from samplekit.client.faults import quoted
from samplekit.client.flows import Terms, request_for
from samplekit.client.settings import one_of, shown, text, whole_number
from samplekit.errors import SampleError, ServiceError
from samplekit.wire import names
from samplekit.wire.lifecycles import Lifecycle
from samplekit.wire.listings import Checkpoint, Page, parse_checkpoints, parse_lifecycles
from samplekit.wire.names import ResourcesStatus, SessionStatus

if TYPE_CHECKING:
    from samplekit.client.steps import Flow
    from samplekit.wire.names import Route

T = TypeVar("T")
_LARGEST_PAGE = 100
_MOST_PAGES = 10_000  # a service whose pages never end is not followed for ever


def list_checkpoints(
    terms: Terms, *, session_id: str | None, kind: str | None, base_model: str | None, limit: int | None
) -> Flow[list[Checkpoint]]:
    """List checkpoints, as many as there are or as the limit allows."""
    one_of("kind", kind, (None, "inference", "training"))
    asked = {
        "base_model": _text_or_none("base_model", base_model),
        "session_id": _text_or_none("session_id", session_id),
        "type": None if kind is None else f"CHECKPOINT_TYPE_{kind.upper()}",
    }
    return _follow(terms, names.LIST_CHECKPOINTS, "list checkpoints", asked, parse_checkpoints, limit)


def list_sessions(
    terms: Terms, *, status: Iterable[str] | str, created_by: str | None, resources_id: str | None, limit: int | None
) -> Flow[list[Lifecycle]]:
    """List training sessions."""
    asked = {
        "created_by": _text_or_none("created_by", created_by),
        "model_resources_id": _text_or_none("resources_id", resources_id),
        "status": _statuses(status, SessionStatus, names.SESSION_STATUS),
    }
    return _follow(terms, names.LIST_SESSIONS, "list training sessions", asked, parse_lifecycles, limit)


def list_resources(
    terms: Terms, *, status: Iterable[str] | str, created_by: str | None, limit: int | None
) -> Flow[list[Lifecycle]]:
    """List model resources."""
    asked = {
        "created_by": _text_or_none("created_by", created_by),
        "status": _statuses(status, ResourcesStatus, names.RESOURCES_STATUS),
    }
    return _follow(terms, names.LIST_RESOURCES, "list model resources", asked, parse_lifecycles, limit)


def _follow(
    terms: Terms,
    route: Route,
    what: str,
    asked: Mapping[str, str | None],
    parse: Callable[[bytes], Page[T]],
    limit: int | None,
) -> Flow[list[T]]:
    """Ask for page after page until the list ends or the limit is reached."""
    wanted = None if limit is None else whole_number("limit", limit, least=1)
    found, after, seen = list[T](), None, set[str]()
    for _ in range(_MOST_PAGES):
        size = None if wanted is None else str(min(wanted - len(found), _LARGEST_PAGE))
        query = {**asked, "after": after, "limit": size}
        sent = {name: value for name, value in sorted(query.items()) if value is not None}
        page = yield from terms.call(request_for(route, what, query=sent), parse)
        found += page.items
        after = page.after
        if after is None or (wanted is not None and len(found) >= wanted):
            return found[:wanted]
        if after in seen:
            break
        seen.add(after)
    raise ServiceError(
        f"could not {what}: page {quoted(str(after))!r} of the list leads back to itself; report it to the service"
    )


def _statuses(given: Iterable[str] | str, known: type[SessionStatus | ResourcesStatus], start: str) -> str | None:
    """Give statuses, such as ``"running"``, as the service spells and joins them."""
    wanted = [given] if isinstance(given, str) else list(given)
    spelled = {item.removeprefix(start).lower(): str(item) for item in known}
    for item in wanted:
        if not isinstance(item, str) or item.removeprefix(start).lower() not in spelled:
            raise SampleError(f"status is {shown(item)}, expected one of {', '.join(spelled)}")
    return ",".join(spelled[item.removeprefix(start).lower()] for item in wanted) or None


def _text_or_none(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)
