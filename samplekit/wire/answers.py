"""What the service answers, read into plain records.

int64 values may arrive as strings and are always converted; members we do not know are ignored; what cannot be read
raises AnswerError, never anything else, so that the protocol can treat it like a lost answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import orjson

from samplekit.sample.arrays import FloatArray, freeze
from samplekit.sample.kinds import describe_kind, is_number
from samplekit.wire import names
from samplekit.wire.names import MAX_ANSWER_DEPTH, TERMINAL_OPERATIONS, OperationStatus

JsonObject = Mapping[str, Any]
_LONGEST_STATUS = 60  # characters of one that an error repeats
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class AnswerError(ValueError):
    """A successful answer does not hold what the protocol promises."""


class DeepAnswerError(AnswerError):
    """An answer nests deeper than any that the protocol knows; asked again it would do so again."""


@dataclass(frozen=True)
class OperationAnswer:
    """An operation as the service reports it.

    Attributes:
        id: the service's id.
        status: one of `OperationStatus`, or a status we do not know: ask again.
        output: the result of a completed operation, else empty.
        code: the error code of a failed one.
        message: what the service says about the failure.
    """

    id: str
    status: str
    output: JsonObject = field(default_factory=dict[str, Any])
    code: str | None = None
    message: str = ""

    @property
    def finished(self) -> bool:
        """Whether the status will not change any more."""
        return self.status in TERMINAL_OPERATIONS

    @property
    def failed(self) -> bool:
        """Whether the service carried it out and it failed."""
        return self.status == OperationStatus.FAILED


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse an answer; NaN, which some servers print, is read as such.

    Raises:
        AnswerError: it is no JSON.
        DeepAnswerError: it nests deeper than 64.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_tolerantly(body)
    _require_shallow(value, body)
    return value


def _parse_tolerantly(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON with NaN in it; its depth is found first, for json recurses on the stack."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(body):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(match[0], 0)
        if depth > MAX_ANSWER_DEPTH:
            raise _too_deep(body)
    try:
        return json.loads(body)
    except ValueError as error:
        raise AnswerError(f"the answer is no JSON ({len(body)} bytes)") from error


def _require_shallow(value: object, body: bytes) -> None:
    """Refuse deep nesting, level by level: what is read later may recurse, as repr does."""
    if body.count(b"[") + body.count(b"{") <= MAX_ANSWER_DEPTH:
        return
    level = [value]
    for _ in range(MAX_ANSWER_DEPTH):
        level = [item for container in level for item in _containers(container)]
        if not level:
            return
    raise _too_deep(body)


def _containers(value: object) -> list[object]:
    """Give the lists and objects in a list or object; a long list of numbers is passed over fast."""
    items = list(as_object(value).values()) or (as_list(value, "data") if isinstance(value, list) else [])
    if {list, dict}.isdisjoint(map(type, items)):
        return []
    return [item for item in items if isinstance(item, list | dict)]


def _too_deep(body: bytes) -> DeepAnswerError:
    return DeepAnswerError(
        f"the answer nests deeper than {MAX_ANSWER_DEPTH} lists or objects ({len(body)} bytes), which no answer of "
        "this protocol does"
    )


def parse_object(body: bytes) -> JsonObject:
    """Parse an answer that must be a JSON object."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise AnswerError(f"the answer is a JSON {type(value).__name__}, expected an object")
    return cast("JsonObject", value)


def parse_operation(body: bytes) -> OperationAnswer:
    """Parse what submitting or polling an operation answers."""
    answer = parse_object(body)
    require_status_of(names.OPERATION_STATUS, str(answer.get("status", "")))
    error = as_object(answer.get("error"))
    code = error.get("code")
    return OperationAnswer(
        as_id(answer, "id"),
        str(answer.get("status", "")),
        as_object(answer.get("output")),
        str(code) if code else None,
        str(error.get("message") or ""),
    )


def require_status_of(start: str, status: str) -> None:
    """Refuse a status that belongs to something else than was asked for; one we do not know may be a new one.

    Args:
        start: what statuses of what was asked for begin with.
        status: what the answer holds.
    """
    others = {names.OPERATION_STATUS, names.SESSION_STATUS, names.RESOURCES_STATUS} - {start}
    if status.startswith(tuple(others)):
        raise AnswerError(f"the answer's status is {status[:_LONGEST_STATUS]}, expected {start}...")


def parse_logprobs(output: JsonObject) -> list[FloatArray] | None:
    """Parse the per-token logprobs of forward-backward, one float32 (T_i,) a sample; None where it has none."""
    found = output.get("loss_fn_outputs")
    if found is None:
        return None
    arrays: list[FloatArray] = []
    for index, item in enumerate(as_list(found, "loss_fn_outputs")):
        tensor = as_object(as_object(as_object(item).get("tensors")).get("logprobs"))
        arrays.append(as_floats(tensor.get("data"), f"loss_fn_outputs[{index}].tensors.logprobs.data"))
    return arrays


def parse_metrics(output: JsonObject) -> dict[str, float]:
    """Parse the metrics of forward-backward; what is no number is left out."""
    found = as_object(output.get("metrics"))
    return {str(name): float(value) for name, value in found.items() if isinstance(value, float) or is_number(value)}


def as_object(value: Any) -> JsonObject:  # noqa: ANN401 - any JSON
    """Give a JSON object, or an empty one for anything else."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: Any, name: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Give a JSON list."""
    if not isinstance(value, list):
        raise AnswerError(f"the answer's {name!r} is {type(value).__name__}, expected a list")
    return value  # pyright: ignore[reportUnknownVariableType]


def as_id(answer: JsonObject, name: str) -> str:
    """Give a member that must be a non-empty string."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise AnswerError(f"the answer holds no {name!r}")
    return value


def as_int(value: Any, name: str) -> int:  # noqa: ANN401 - any JSON
    """Give an int64, which may arrive as a decimal string."""
    try:
        if isinstance(value, bool | float) and value != int(value):
            raise ValueError(name)
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"the answer's {name!r} is {describe_kind(value)}, expected a whole number") from error


def as_float(value: Any, name: str) -> float:  # noqa: ANN401 - any JSON
    """Give a number, which may arrive as a string."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"the answer's {name!r} is {describe_kind(value)}, expected a number") from error


def as_floats(value: Any, name: str) -> FloatArray:  # noqa: ANN401 - any JSON
    """Give a list of numbers as float32 (T,), read-only; as elsewhere in answers a number may be a string."""
    items = as_list(value, name)
    strange = set(map(type, items)) - {int, float, str}
    if strange:
        found = next(index for index, item in enumerate(items) if type(item) in strange)
        raise AnswerError(f"the answer's '{name}[{found}]' is {describe_kind(items[found])}, expected a number")
    try:
        with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite
            return freeze(np.array(items, dtype=np.float32))
    except (ValueError, OverflowError) as error:
        raise AnswerError(f"the answer's {name!r} holds something that is no number") from error


def as_optional_int(answer: JsonObject, name: str) -> int | None:
    """Give a member that may be missing or null as an int."""
    value = answer.get(name)
    return None if value is None else as_int(value, name)
