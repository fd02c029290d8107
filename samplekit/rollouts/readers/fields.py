"""Fields of what another package answers, be it objects or the mappings of their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.group import Group
from samplekit.rollouts.listed import listed
from samplekit.rollouts.names import group_id
from samplekit.rollouts.sampled import is_empty, sampled_ids, sampled_logprobs
from samplekit.sample.arrays import FloatArray, IntArray
from samplekit.sample.kinds import describe_kind, is_mapping, is_sequence, is_whole_number, shown


def field(value: Any, name: str) -> Any:  # noqa: ANN401 - any package's answer
    """Give a field of an object or a mapping; None where there is none."""
    return value.get(name) if is_mapping(value) else getattr(value, name, None)


def entries(value: Any, where: str) -> Sequence[Any]:  # noqa: ANN401 - any package's answer
    """Give a list of an answer.

    Raises:
        SampleError: it is no list, or empty.
    """
    if not is_sequence(value) or not value:
        found = "empty" if is_sequence(value) else describe_kind(value)
        raise SampleError(f"{where} is {found}, expected a list with at least one entry: look at what was answered")
    return value


def objects(value: Any, where: str) -> Sequence[Any]:  # noqa: ANN401 - any package's answer
    """Give a list of an answer's parts, each an object or a mapping.

    Raises:
        SampleError: it is no list, or empty, or one is a plain value.
    """
    found = entries(value, where)
    for index, item in enumerate(found):
        if item is None or isinstance(item, str | bytes | int | float):
            raise SampleError(
                f"{where}[{index}] is {describe_kind(item)}, expected an object with fields: look at what was answered"
            )
    return found


def prompt_ids(prompt: Any, where: str) -> IntArray:  # noqa: ANN401 - whatever a caller sent
    """Read a prompt as ids: a sequence of them, or a model input of chunks in any package's spelling.

    Raises:
        SampleError: it holds something else, such as text.
    """
    if isinstance(prompt, str | bytes):
        raise SampleError(f"{where} is {describe_kind(prompt)}, expected token ids: text is never encoded again")
    chunks = field(prompt, "chunks")
    if chunks is None:
        return sampled_ids(prompt, where)
    texts = [field(chunk, "encoded_text") for chunk in objects(chunks, f"{where}.chunks")]
    parts = [
        sampled_ids(field(text, "tokens"), f"{where}.chunks[{index}].encoded_text.tokens")
        for index, text in enumerate(texts)
    ]
    return np.concatenate(parts)


def in_order(items: Sequence[Any], where: str) -> Sequence[Any]:
    """Give choices in the order of their index; as they stand where none has one.

    Raises:
        SampleError: the indices are not 0 to n - 1, each once: a choice is missing, or there twice.
    """
    numbers = [field(item, "index") for item in items]
    if all(number is None for number in numbers):
        return items
    for place, number in enumerate(numbers):
        if not is_whole_number(number):
            raise SampleError(f"{where}[{place}].index is {shown(number)}, expected a whole number: number all or none")
    if sorted(numbers) != list(range(len(items))):
        raise SampleError(
            f"{where} hold the indices {sorted(numbers)}, expected 0 to {len(items) - 1}, each once: one is missing or "
            "told twice, so pass one whole response"
        )
    return [items[place] for place in sorted(range(len(items)), key=numbers.__getitem__)]


def reason_text(reason: Any) -> Any:  # noqa: ANN401 - any engine's answer
    """Give why a completion ended as text: the type of a mapping, the value (or else the name) of an Enum."""
    if is_mapping(reason):
        return reason_text(reason.get("type"))  # SGLang's own says what matched beside it
    if isinstance(reason, Enum):
        return reason.value if isinstance(reason.value, str) else reason.name
    return reason


def one_each(values: Any, num_prompts: int, name: str) -> list[Any]:  # noqa: ANN401 - whatever a caller holds
    """Give one value for each prompt; None where there are none.

    Raises:
        SampleError: values is no ordered collection.
        AlignmentError: it holds another number of them.
    """
    if values is None:
        return [None] * num_prompts
    found = listed(values, name, "one value for each prompt")
    if len(found) != num_prompts:
        raise AlignmentError(f"{name} holds {len(found)} values, expected one for each of {num_prompts} prompts")
    return found


def ids_of_groups(ids: Any, num_prompts: int) -> list[str | int | None]:  # noqa: ANN401 - whatever a caller holds
    """Give each group's id.

    Raises:
        SampleError: ids is no ordered collection, or one is neither text nor a whole number.
        AlignmentError: it holds another number of them.
    """
    return [group_id(value, f"ids[{number}]") for number, value in enumerate(one_each(ids, num_prompts, "ids"))]


def apart(groups: list[Group]) -> list[Group]:
    """Give groups back where no two prompts have one id: their completions would be compared.

    Raises:
        SampleError: naming both. One prompt that was asked several times may have one id.
    """
    first: dict[str | int, int] = {}
    for number, group in enumerate(groups):
        if group.id is None:
            continue
        other = first.setdefault(group.id, number)
        if not np.array_equal(groups[other].prompt, group.prompt):
            raise SampleError(
                f"ids[{number}] is {group.id!r}, and so is ids[{other}], whose prompt is another, expected an id for "
                "each prompt: completions of one id are compared"
            )
    return groups


def completion_at(where: str, tokens: object, logprobs: object, **kept: Any) -> Completion:  # noqa: ANN401 - passed on
    """Make a completion; what it refuses is told with its place in the answer.

    One that ended at once has no token, and some engines give no logprobs beside that.

    Raises:
        SampleError: naming the completion.
    """
    try:
        return Completion(tokens, [] if logprobs is None and is_empty(tokens) else logprobs, **kept)
    except SampleError as error:
        raise error.reworded(f"{where}: {error}") from error


def top_logprob(options: Any, token: int, where: str) -> Any:  # noqa: ANN401 - any engine's answer
    """Give a token's logprob out of a mapping of ids (or their text) to logprobs, plain or in an object.

    Raises:
        SampleError: the token is not among them.
    """
    if not is_mapping(options):
        raise SampleError(f"{where} is {describe_kind(options)}, expected a mapping of token ids to logprobs")
    by_id: Mapping[Any, Any] = options
    found: Any = by_id.get(token, by_id.get(str(token)))
    if found is None:
        raise SampleError(f"{where} has no logprob of token {token}, expected the one that was sampled")
    return field(found, "logprob") if is_mapping(found) or hasattr(found, "logprob") else found


def prompt_logprobs(values: Any, prompt: IntArray, where: str) -> FloatArray:  # noqa: ANN401 - as above
    """Read an engine's logprobs of a prompt, one mapping a token; nothing predicts the first one, which reads 0.0."""
    given = entries(values, where)
    if len(given) != len(prompt):
        raise SampleError(f"{where} holds {len(given)} values, the prompt {len(prompt)} tokens, expected one for each")
    rest = zip(prompt.tolist()[1:], given[1:], strict=True)
    read = [top_logprob(item, token, f"{where}[{n}]") for n, (token, item) in enumerate(rest, start=1)]
    return sampled_logprobs([0.0, *read], where, start=1)
