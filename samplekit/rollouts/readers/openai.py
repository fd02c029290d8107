"""Responses in OpenAI's spelling, as vLLM, SGLang and together's inference give them -> groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.group import Group
from samplekit.rollouts.readers.fields import completion_at, entries, field, prompt_ids, prompt_logprobs
from samplekit.sample.arrays import IntArray
from samplekit.sample.kinds import is_mapping, is_whole_number
from samplekit.sample.shared_start import shared_start

_ASK_FOR_IDS = "ask for them (vLLM: return_token_ids=True in the request), for text is never encoded again"
_ASK_FOR_LOGPROBS = "ask for them (logprobs=1 for completions, logprobs=True for chat)"
_TOKEN_ID = "token_id:"  # noqa: S105 - how vLLM writes a token with return_tokens_as_token_ids
_STAND_IN = -9999.0  # what OpenAI and vLLM write for a logprob that they do not know or that is -inf


def group_from_openai(response: object, prompt: object = None, *, id: str | None = None) -> Group:  # noqa: A002
    """Read the response of one completion or chat request: a prompt and its ``n`` choices.

    Token ids are taken from ``choices[i].token_ids``, from ``choices[i].logprobs.token_ids``, or from tokens that are
    written as ``token_id:...``; logprobs from ``logprobs.token_logprobs`` or ``logprobs.content[j].logprob``.

    Args:
        response: an object of a client, or its JSON; of one prompt.
        prompt: the ids that were sent. Where the response has prompt_token_ids too, both must be the same; None takes
            the response's.
        id: the group's id; give requests of one prompt the same one, and their choices are compared.

    Raises:
        SampleError: ids or logprobs are missing (the message says which option asks for them), the prompts differ, or
            a choice cannot be a completion; the message names it.
    """
    choices = _choices(response)
    return _group(response, choices, 0, prompt, id)


def groups_from_openai(
    response: object,
    num_samples: int,
    prompts: Sequence[object] | None = None,
    *,
    ids: Sequence[str | None] | None = None,
) -> list[Group]:
    """Read the response of one completion request of several prompts, one group a prompt.

    Args:
        response: as `group_from_openai` takes it; the choices of a prompt stand together, in the order of the prompts.
        num_samples: choices a prompt (``n`` of the request).
        prompts: the ids that were sent, prompt by prompt, or None.
        ids: each group's id; None leaves groups without one.

    Raises:
        AlignmentError: the choices cannot be shared out, or prompts or ids are another number than the groups.
        SampleError: as `group_from_openai`.
    """
    choices = _choices(response)
    if not is_whole_number(num_samples) or num_samples < 1:
        raise SampleError(f"num_samples is {num_samples!r}, expected a whole number of 1 or more: the request's n")
    num_groups, rest = divmod(len(choices), num_samples)
    if rest:
        raise AlignmentError(f"response.choices holds {len(choices)} choices, expected a multiple of {num_samples}")
    for name, values in (("prompts", prompts), ("ids", ids)):
        if values is not None and len(values) != num_groups:
            raise AlignmentError(f"{name} holds {len(values)} values, response.choices are of {num_groups} prompts")
    return [
        _group(
            response,
            choices[number * num_samples : (number + 1) * num_samples],
            number * num_samples,
            None if prompts is None else prompts[number],
            None if ids is None else ids[number],
        )
        for number in range(num_groups)
    ]


def _choices(response: object) -> Sequence[Any]:
    """Give the choices in the order of their index."""
    choices = entries(field(response, "choices"), "response.choices")
    numbers = [field(choice, "index") for choice in choices]
    if not all(map(is_whole_number, numbers)):
        return choices
    return [choices[place] for place in sorted(range(len(choices)), key=numbers.__getitem__)]


def _group(response: Any, choices: Sequence[Any], first: int, prompt: object, name: str | None) -> Group:  # noqa: ANN401
    places = [f"response.choices[{index}]" for index in range(first, first + len(choices))]
    ids = _prompt(response, choices, places, prompt)
    completions = [_completion(choice, where) for choice, where in zip(choices, places, strict=True)]
    given = field(choices[0], "prompt_logprobs") or field(response, "prompt_logprobs")
    return Group(ids, completions, id=name, prompt_logprobs=prompt_logprobs(given, ids, "prompt_logprobs"))


def _prompt(response: Any, choices: Sequence[Any], places: Sequence[str], prompt: object) -> IntArray:  # noqa: ANN401
    """Find the prompt wherever it is told, and hold all of them to the same ids."""
    told = [(place, field(choice, "prompt_token_ids")) for place, choice in zip(places, choices, strict=True)]
    told.append(("response", field(response, "prompt_token_ids")))
    found = [(f"{place}.prompt_token_ids", ids) for place, ids in told if ids is not None]
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


def _completion(choice: Any, where: str) -> Completion:  # noqa: ANN401 - any server's answer
    logprobs = field(choice, "logprobs")
    values = _logprobs(logprobs, where)
    for index, value in enumerate(values):
        if isinstance(value, float | int) and value <= _STAND_IN:
            raise SampleError(
                f"{where}.logprobs holds {value} at index {index}, which stands for an unknown one, expected the "
                "sampled token's own logprob"
            )
    return completion_at(where, _ids(choice, logprobs, where), values, stop_reason=_stop_reason(choice))


def _stop_reason(choice: Any) -> Any:  # noqa: ANN401 - any server's answer
    reason = field(choice, "finish_reason")
    return field(reason, "type") if is_mapping(reason) else reason  # SGLang's own says what matched beside it


def _logprobs(logprobs: Any, where: str) -> list[Any]:  # noqa: ANN401 - any server's answer
    flat, content = field(logprobs, "token_logprobs"), field(logprobs, "content")
    if flat is None and content is None:
        raise SampleError(f"{where} has no logprobs, expected one for every token: {_ASK_FOR_LOGPROBS}")
    return [field(item, "logprob") for item in content] if flat is None else list(flat)


def _ids(choice: Any, logprobs: Any, where: str) -> Any:  # noqa: ANN401 - any server's answer
    ids = field(choice, "token_ids")
    if ids is not None:
        return list(ids)
    ids = field(logprobs, "token_ids")
    if ids is not None:  # together's SDK types them as floats
        return [int(item) if isinstance(item, float) and item.is_integer() else item for item in ids]
    written = field(logprobs, "tokens") or [field(item, "token") for item in field(logprobs, "content") or ()]
    if not written or not all(isinstance(item, str) and item.startswith(_TOKEN_ID) for item in written):
        raise SampleError(f"{where} has no token_ids, expected the ids that were sampled: {_ASK_FOR_IDS}")
    return [item.removeprefix(_TOKEN_ID) for item in written]
