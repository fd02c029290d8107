"""What went wrong with a call, as an error that says where, what and what to do."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from samplekit.client.steps import Failure, Outcome, Reply, Request
from samplekit.errors import ConnectionFailedError, OperationFailedError, ServiceError, StatusError
from samplekit.wire import names
from samplekit.wire.answers import AnswerError, OperationAnswer, as_object, parse_json
from samplekit.wire.names import OperationErrorCode

_QUOTED = 500  # characters of the service's own words that a message repeats

STRANGE_ANSWER = "check the base_url: something else than the service may answer there"
_NOT_AGAIN = (
    "the service says that trying again gives the same: report it to the service, or ask it for what it says is missing"
)
_UNREACHED = "check the base_url and that the service runs there (samplekit serve starts a local one)"

_REMEDIES = {
    400: "repair the request; repeating it gives the same answer",
    401: f"set {names.ENV_API_KEY}, or pass api_key=, to a key of this service",
    402: "the account cannot pay for this: look at its balance and limits",
    403: "this key may not do that: ask the owner of the project for access, or use another key",
    404: "check the id and the base_url: the service knows no such thing",
    409: "it conflicts with what the service is doing or has done: look at the session before trying again",
    413: "the body is too large: send fewer or shorter samples at a time",
    422: "repair the request; repeating it gives the same answer",
    429: "too many requests, or no capacity or quota left: wait and try again, or ask the service for a higher limit",
}

_CODE_REMEDIES = {
    OperationErrorCode.RESOURCE_EXHAUSTED: "send fewer or shorter samples at a time",
    OperationErrorCode.TIMEOUT: "send less at a time, or try again",
    OperationErrorCode.INTERNAL_ERROR: "the service is at fault: try again, and report the operation's id",
    OperationErrorCode.SESSION_NOT_ACTIVE: "the session has ended: open a new one",
    OperationErrorCode.INVALID_INPUT: "repair what it names; samplekit.check finds most faults before sending",
    OperationErrorCode.NON_FINITE_LOSS: "look for extreme logprobs or advantages, or lower the learning rate",
}

# By the end of the service's code for resources or a session that cannot be had.
_LIFECYCLE_REMEDIES = {
    "CAPACITY_WAIT_TIMEOUT": "no hardware came free in time: try again later, or with fewer generators",
    "RESOURCE_UNAVAILABLE": "the hardware cannot be had: try again later, or another model or gpu_type",
    "RESOURCE_AT_CAPACITY": "the resources hold no further session: stop one of theirs, or create resources anew",
    "PROVISIONING_FAILED": "the service is at fault: try again, and report the id",
}


def call_error(request: Request, outcome: Outcome, *, tries: int, begun: bool = False) -> ServiceError:
    """Make the error for a call that will not be tried again.

    Args:
        request: the call.
        outcome: of the last try.
        tries: how many there were.
        begun: whether the service may have begun to work on it at an earlier try.
    """
    times = f" after {tries} tries" if tries > 1 else ""
    begun = begun or may_have_begun(outcome)
    if isinstance(outcome, Failure):
        return _connection_error(request, outcome, times, begun=begun)
    return _status_error(request, outcome, times, begun=begun)


def may_have_begun(outcome: Outcome) -> bool:
    """Tell whether the service may have begun to work on a request to which it said this, or nothing."""
    if isinstance(outcome, Failure):
        return outcome.sent
    return _is_at_fault(outcome.status) and told_to_retry(outcome) is not True


def told_to_retry(reply: Reply) -> bool | None:
    """Tell whether the service says to try again, or not to; None where it says neither."""
    return {"true": True, "false": False}.get(reply.headers.get(names.SHOULD_RETRY, "").strip().lower())


def _is_at_fault(status: int) -> bool:
    return status >= 500 or status == 408


def _connection_error(request: Request, outcome: Failure, times: str, *, begun: bool) -> ConnectionFailedError:
    where = f"{request.method} {without_secrets(request.url)}"
    if begun and not request.repeatable:
        return ConnectionFailedError(
            f"outcome unknown: could not {request.call}: {where} was sent but {outcome.reason}, so it may have "
            f"happened and is not sent again; {request.lookup or 'look it up at the service before repeating it'}"
            f"{'; ' + outcome.remedy if outcome.remedy else ''}",
            sent=True,
        )
    return ConnectionFailedError(
        f"could not {request.call}{times}: {where}: {outcome.reason}{_key_of(request, begun=begun)}; "
        f"{outcome.remedy or _UNREACHED}",
        sent=begun,
    )


def _key_of(request: Request, *, begun: bool) -> str:
    """Name the key of a call that may have been accepted at one of its tries, and would count twice without it."""
    key = request.headers.get(names.IDEMPOTENCY_KEY)
    if not key or not begun:
        return ""
    return (
        f" (its idempotency key was {key}: the service may have accepted it, so make the same call again only with "
        "idempotency_key= as this error carries it)"
    )


def _status_error(request: Request, reply: Reply, times: str, *, begun: bool) -> StatusError:
    body = error_body(reply.body)
    remedy = _remedy(reply)
    if begun and not request.repeatable:
        remedy = f"outcome unknown: it may have happened; {request.lookup or 'look it up before repeating it'}"
    request_id = reply.headers.get(names.REQUEST_ID)
    named = f" (request {request_id})" if request_id else ""
    said = service_words(body)
    return StatusError(
        f"could not {request.call}{times}: {request.method} {without_secrets(request.url)} answered "
        f"{reply.status}{named}{': ' + said if said else ''}{_key_of(request, begun=begun)}; {remedy}",
        status=reply.status,
        request_id=request_id,
        body=body,
    )


def _remedy(reply: Reply) -> str:
    """Say what to do about a status; where the service itself says whether to try again, that is repeated."""
    again = told_to_retry(reply)
    if again is False and (_is_at_fault(reply.status) or reply.status == names.REFUSED_BEFORE_WORK):
        return _NOT_AGAIN
    if again is True and reply.status != names.REFUSED_BEFORE_WORK:
        return "the service refused before it began, and says to try again: do so later"
    if reply.status < 400:
        return "a redirect is never followed, for it could carry the key elsewhere: check the base_url"
    if _is_at_fault(reply.status):
        return "the service is at fault: try again later"
    return reply.hint or _REMEDIES.get(reply.status, "repair the request")


def silence_of(outcome: Outcome) -> str:
    """Say what came instead of an answer, where it was borne."""
    if isinstance(outcome, Failure):
        return f"the service did not answer: {outcome.reason}"
    said = service_words(error_body(outcome.body))
    return f"the service answered {outcome.status}{': ' + said if said else ''}"


def error_body(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Read the body of an error: whatever JSON it is, else its text."""
    try:
        return parse_json(body)
    except AnswerError:
        return body.decode("utf-8", "replace")


def service_words(body: Any) -> str:  # noqa: ANN401 - any JSON
    """Find what the service says in the body of an error, cut to a readable length."""
    found = body
    for name in ("error", "message", "detail"):
        found = as_object(found).get(name, found)
    return quoted(found if isinstance(found, str) else repr(found) if found else "")


def quoted(text: str) -> str:
    """Give the service's own words on one line, cut to a readable length."""
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} ..."


def operation_failed(answer: OperationAnswer, kind: str) -> OperationFailedError:
    """Make the error for an operation that the service reports as failed."""
    code = answer.code or OperationErrorCode.UNSPECIFIED.value
    remedy = next((text for known, text in _CODE_REMEDIES.items() if known == code), "see the service's message")
    short = code.removeprefix("TRAINING_OPERATION_ERROR_CODE_")
    return OperationFailedError(
        f"{kind} operation {answer.id} failed with {quoted(short)}: {quoted(answer.message) or 'no reason given'}; "
        f"{remedy}",
        operation_id=answer.id,
        kind=kind,
        code=code,
    )


def lifecycle_remedy(detail: str) -> str:
    """Say what to do about resources or a session that failed, by the code that the service gave."""
    return next((text for code, text in _LIFECYCLE_REMEDIES.items() if code in detail), "open a new session")


def without_secrets(url: str) -> str:
    """Give a URL without what may be secret: user, password, query (signatures live there), fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme else parts.path
