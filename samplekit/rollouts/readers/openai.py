"""Responses in OpenAI's spelling, as vLLM, SGLang and together's inference give them -> groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.group import Group
from samplekit.rollouts.listed import listed
from samplekit.rollouts.readers.fields import (
    apart,
    completion_at,
    field,
    ids_of_groups,
    in_order,
    objects,
    one_each,
    prompt_ids,
    prompt_logprobs,
    reason_text,
)
from samplekit.rollouts.readers.whole import refuse_chunk, refuse_error, refuse_flat
from samplekit.rollouts.sampled import sampled_ids, sampled_logprobs
from samplekit.sample.arrays import FloatArray, IntArray
from samplekit.sample.kinds import is_number, is_whole_number, shown
from samplekit.sample.shared_start import shared_start

_ASK_FOR_IDS = "ask for them (vLLM: return_token_ids=True in the request), for text is never encoded again"
_ASK_FOR_LOGPROBS = "ask for them (logprobs=1 for completions, logprobs=True for chat)"
_ONE_EACH = "one value for every sampled token"
_FLOAT32 = 1e-6  # how far one number may move where it is rounded to float32 and written in decimals
_TOKEN_ID = "token_id:"  # noqa: S105 - how vLLM writes a token with return_tokens_as_token_ids


def group_from_openai(response: object, prompt: object = None, *, id: str | int | None = None) -> Group:  # noqa: A002
    """Read the response of one completion or chat request: a prompt and its ``n`` choices.

    Token ids are taken from ``choices[i].token_ids``, from ``choices[i].logprobs.token_ids``, or from tokens that are
    written as ``token_id:...``; logprobs from ``logprobs.token_logprobs`` or ``logprobs.content[j].logprob``.

    Args:
        response: an object of a client, or its JSON; of one prompt.
        prompt: the ids that were sent. Where the response has prompt_token_ids too, both must be the same; None takes
            the response's.
        id: the group's id; give requests of one prompt the same one, and their choices are compared.

    Raises:
        SampleError: ids or logprobs are missing (the message says which option asks for them), the prompts differ, ids
            or logprobs are told in two places and differ, the response is an error (which is quoted) or a part of a
            stream, the prompt is echoed, a choice's index is missing or there
            twice, or a choice cannot be a completion; the message names it.
    """
    choices = _choices(response)
    return _group(response, choices, 0, prompt, id)


def groups_from_openai(
    response: object,
    num_samples: int,
    prompts: Sequence[object] | None = None,
    *,
    ids: Sequence[str | int | None] | None = None,
) -> list[Group]:
    """Read the response of one completion request of several prompts, one group a prompt.

    Args:
        response: as `group_from_openai` takes it; the choices of a prompt stand together, in the order of the prompts.
        num_samples: choices a prompt (``n`` of the request).
        prompts: the ids that were sent, prompt by prompt, or None.
        ids: each group's id; None leaves groups without one. Two prompts cannot have one id; one that stands in the
            request several times can.

    Raises:
        AlignmentError: the choices cannot be shared out, or prompts or ids are another number than the groups.
        SampleError: as `group_from_openai`.
    """
    choices = _choices(response)
    if not is_whole_number(num_samples) or num_samples < 1:
        raise SampleError(f"num_samples is {shown(num_samples)}, expected a whole number of 1 or more: the request's n")
    num_groups, rest = divmod(len(choices), num_samples)
    if rest:
        raise AlignmentError(f"response.choices holds {len(choices)} choices, expected a multiple of {num_samples}")
    if num_groups > 1 and field(response, "prompt_logprobs") is not None:
        raise SampleError(
            f"response.prompt_logprobs stands once for {num_groups} prompts, expected each prompt's in its choices: "
            "take it out, or request one prompt at a time"
        )
    if prompts is not None:
        refuse_flat(listed(prompts, "prompts", "one prompt for each group"), "prompts")
    sent, names = one_each(prompts, num_groups, "prompts"), ids_of_groups(ids, num_groups)
    firsts = range(0, len(choices), num_samples)
    return apart(
        [
            _group(response, choices[first : first + num_samples], first, prompt, name)
            for first, prompt, name in zip(firsts, sent, names, strict=True)
        ]
    )


def _choices(response: object) -> Sequence[Any]:
    refuse_error(response)
    refuse_chunk(response)
    return in_order(objects(field(response, "choices"), "response.choices"), "response.choices")


def _group(
    response: Any,  # noqa: ANN401 - any server's answer
    choices: Sequence[Any],
    first: int,
    prompt: object,
    name: str | int | None,
) -> Group:
    places = [f"response.choices[{index}]" for index in range(first, first + len(choices))]
    ids = _prompt(response, choices, places, prompt)
    completions = [_completion(choice, where, ids) for choice, where in zip(choices, places, strict=True)]
    return Group(ids, completions, id=name, prompt_logprobs=_prompt_logprobs(response, choices, places, ids))


def _everywhere(response: Any, choices: Sequence[Any], places: Sequence[str], name: str) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Find what may be told by every choice and by the response, with the place of each."""
    told = [*zip(places, choices, strict=True), ("response", response)]
    found = [(f"{place}.{name}", field(item, name)) for place, item in told]
    return [(place, value) for place, value in found if value is not None]


def _prompt_logprobs(
    response: Any,  # noqa: ANN401 - any server's answer
    choices: Sequence[Any],
    places: Sequence[str],
    prompt: IntArray,
) -> FloatArray | None:
    """Find the prompt's logprobs wherever they are told, and hold all of them to the same values."""
    told = _everywhere(response, choices, places, "prompt_logprobs")
    read = [(place, prompt_logprobs(value, prompt, place)) for place, value in told]
    _refuse_differing(read)
    return read[0][1] if read else None


def _refuse_differing(told: Sequence[tuple[str, FloatArray]]) -> None:
    """Refuse logprobs that are told in several places and are not the same numbers in float32."""
    for place, values in told[1:]:
        first, expected = told[0]
        size = min(len(values), len(expected))
        moved = np.flatnonzero(~np.isclose(values[:size], expected[:size], rtol=_FLOAT32, atol=_FLOAT32))
        if len(moved) or len(values) != len(expected):
            raise SampleError(
                f"{place} differs from {first} at index {moved[0] if len(moved) else size}, expected one record of "
                "what was sampled: look at what merged them"
            )


def _prompt(response: Any, choices: Sequence[Any], places: Sequence[str], prompt: object) -> IntArray:  # noqa: ANN401
    """Find the prompt wherever it is told, and hold all of them to the same ids."""
    found = _everywhere(response, choices, places, "prompt_token_ids")
    if prompt is not None:
        found.insert(0, ("prompt", prompt))
    if not found:
        raise SampleError(
            f"response holds no prompt_token_ids, and no prompt was given: pass the ids, or {_ASK_FOR_IDS}"
        )
    (first, ids), *others = [(place, prompt_ids(value, place)) for place, value in found]
    for place, other in others:
        if not np.array_equal(ids, other):
            raise SampleError(
                f"{place} differs from {first} at index {shared_start(ids, other)}, expected one prompt for all "
                "choices: the prompt was encoded anew, or choices of several prompts stand together (see "
                "groups_from_openai)"
            )
    return ids


def _completion(choice: Any, where: str, prompt: IntArray) -> Completion:  # noqa: ANN401 - any server's answer
    logprobs = field(choice, "logprobs")
    ids = _ids(choice, logprobs, where)
    values = _logprobs(logprobs, where, len(ids))
    _refuse_echo(ids, values, prompt, where)
    reason = reason_text(field(choice, "finish_reason"))
    return completion_at(where, ids, values, stop_reason=reason)


def _refuse_echo(ids: IntArray, values: Sequence[Any], prompt: IntArray, where: str) -> None:
    """Refuse a completion that repeats its prompt, whose first token nothing predicts: the prompt would train."""
    unknown = len(values) > 0 and (values[0] is None or (is_number(values[0]) and values[0] == 0))
    if unknown and np.array_equal(ids[: len(prompt)], prompt):
        raise SampleError(
            f"{where} begins with the prompt's ids, the first at a logprob of {values[0]}, as echo=True gives it, "
            "expected sampled tokens only: request without echo"
        )


def _logprobs(logprobs: Any, where: str, num_ids: int) -> list[Any]:  # noqa: ANN401 - any server's answer
    """Find the logprobs wherever they are told, and hold all of them to the same values."""
    flat, content = field(logprobs, "token_logprobs"), field(logprobs, "content")
    told: list[tuple[str, list[Any]]] = []
    if flat is not None:
        place = f"{where}.logprobs.token_logprobs"
        told.append((place, listed(flat, place, _ONE_EACH)))
    if content is not None:
        place = f"{where}.logprobs.content"
        told.append((place, [field(item, "logprob") for item in listed(content, place, _ONE_EACH)]))
    if not told and num_ids:
        raise SampleError(f"{where} has no logprobs, expected one for every token: {_ASK_FOR_LOGPROBS}")
    if len(told) > 1:
        _refuse_differing([(place, sampled_logprobs(given, place, may_be_empty=True)) for place, given in told])
    return told[0][1] if told else []


def _ids(choice: Any, logprobs: Any, where: str) -> IntArray:  # noqa: ANN401 - any server's answer
    """Find the ids wherever they are told, and hold all of them to the same ones."""
    told = list(_told(choice, logprobs, where))
    if not told:
        raise SampleError(f"{where} has no token_ids, expected the ids that were sampled: {_ASK_FOR_IDS}")
    (first, ids), *others = [(place, sampled_ids(values, place, may_be_empty=True)) for place, values in told]
    for place, other in others:
        if not np.array_equal(ids, other):
            raise SampleError(
                f"{place} differs from {first} at index {shared_start(ids, other)}, expected one record of what was "
                "sampled: look at what merged them"
            )
    return ids


def _told(choice: Any, logprobs: Any, where: str) -> Iterator[tuple[str, list[Any]]]:  # noqa: ANN401 - as above
    """Yield where ids are told, and what is told there."""
    place = f"{where}.token_ids"
    ids = field(choice, "token_ids")
    if ids is not None:
        yield place, listed(ids, place, _ONE_EACH)
    place = f"{where}.logprobs.token_ids"
    ids = field(logprobs, "token_ids")
    if ids is not None:  # together's SDK types them as floats
        given = listed(ids, place, _ONE_EACH)
        yield place, [int(item) if isinstance(item, float) and item.is_integer() else item for item in given]
    for name in ("tokens", "content"):
        given = field(logprobs, name)
        place = f"{where}.logprobs.{name}"
        items = [] if given is None else listed(given, place, _ONE_EACH)
        written = items if name == "tokens" else [field(item, "token") for item in items]
        if written and all(isinstance(item, str) and item.startswith(_TOKEN_ID) for item in written):
            yield place, [item.removeprefix(_TOKEN_ID) for item in written]
