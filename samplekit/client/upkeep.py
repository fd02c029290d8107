"""What is changed on a session or resources that run: name, metadata, how long they stay up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samplekit.client.flows import Terms, request_for
from samplekit.client.plans import metadata_body
from samplekit.client.settings import shown, whole_number
from samplekit.client.steps import Subject
from samplekit.errors import SampleError
from samplekit.wire import names
from samplekit.wire.lifecycles import Lifecycle, parse_lifecycle
from samplekit.wire.requests import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samplekit.client.steps import Flow


def rename_session(terms: Terms, session_id: str, name: object) -> Flow[None]:
    """Give a session another name; an empty one clears it.

    Raises:
        SampleError: the name is no text.
    """
    if not isinstance(name, str):
        raise SampleError(f"name is {shown(name)}, expected a string, empty to clear it")
    yield from _update(terms, session_id, f"rename training session {session_id}", {"display_name": name})


def annotate_session(terms: Terms, session_id: str, metadata: object) -> Flow[None]:
    """Write metadata to a session; members left out stay as they are.

    Raises:
        SampleError: it is no mapping, or JSON cannot say it.
    """
    what = f"write metadata to training session {session_id}"
    yield from _update(terms, session_id, what, {"metadata": metadata_body(metadata)})


def _update(terms: Terms, session_id: str, what: str, members: Mapping[str, Any]) -> Flow[None]:
    lookup = "look at it with client.sessions(), and call again where it does not stand there"
    body = (dumps(members),)
    request = request_for(names.UPDATE_SESSION, what, body=body, lookup=lookup, session_id=session_id)
    yield from terms.call(request, lambda _: None)


def extend_expiry(terms: Terms, resources_id: str, seconds: object) -> Flow[Lifecycle]:
    """Keep resources up for at least so many seconds from now.

    Raises:
        SampleError: the seconds are out of range.
    """
    low, high = names.EXTEND_EXPIRY_SECONDS
    body = dumps({"seconds": whole_number("seconds", seconds, least=low, most=high)})
    subject = Subject("model resources", resources_id)
    request = request_for(
        names.EXTEND_EXPIRY,
        f"extend {subject}",
        body=(body,),
        lookup="look at resources.info.expires_at after resources.refresh(), and call again where it is too soon",
        subject=subject,
        resources_id=resources_id,
    )
    return (yield from terms.call(request, parse_lifecycle))
