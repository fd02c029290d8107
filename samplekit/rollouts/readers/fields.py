"""Fields of what another package answers, be it objects or the mappings of their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from samplekit.errors import SampleError
from samplekit.rollouts.completion import Completion, ids_from_decimal
from samplekit.sample.arrays import FloatArray, IntArray, floats_array, ids_array
from samplekit.sample.kinds import describe_kind, is_mapping, is_sequence


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


def prompt_ids(prompt: Any, where: str) -> IntArray:  # noqa: ANN401 - whatever a caller sent
    """Read a prompt as ids: a sequence of them, or a model input of chunks in any package's spelling.

    Raises:
        SampleError: it holds something else, such as text.
    """
    if isinstance(prompt, str | bytes):
        raise SampleError(f"{where} is {describe_kind(prompt)}, expected token ids: text is never encoded again")
    chunks = field(prompt, "chunks")
    if chunks is None:
        return ids_array(ids_from_decimal(prompt), where)
    texts = [field(chunk, "encoded_text") for chunk in entries(chunks, f"{where}.chunks")]
    parts = [
        ids_array(ids_from_decimal(field(text, "tokens")), f"{where}.chunks[{index}].encoded_text.tokens")
        for index, text in enumerate(texts)
    ]
    return np.concatenate(parts)


def completion_at(where: str, tokens: object, logprobs: object, **kept: Any) -> Completion:  # noqa: ANN401 - passed on
    """Make a completion; what it refuses is told with its place in the answer.

    Raises:
        SampleError: naming the completion.
    """
    try:
        return Completion(tokens, logprobs, **kept)
    except SampleError as error:
        raise error.reworded(f"{where}: {error}") from error


def top_logprob(options: Any, token: int, where: str) -> float | None:  # noqa: ANN401 - any engine's answer
    """Give a token's logprob out of a mapping of ids (or their text) to logprobs, plain or in an object.

    Raises:
        SampleError: the token is not among them.
    """
    if not hasattr(options, "get"):
        raise SampleError(f"{where} is {describe_kind(options)}, expected a mapping of token ids to logprobs")
    found: Any = options.get(token, options.get(str(token)))
    if found is None:
        raise SampleError(f"{where} has no logprob of token {token}, expected the one that was sampled")
    return found if isinstance(found, int | float) else field(found, "logprob")


def prompt_logprobs(values: Any, prompt: IntArray, where: str) -> FloatArray | None:  # noqa: ANN401 - as above
    """Read an engine's logprobs of a prompt, one mapping a token; nothing predicts the first one, which reads 0.0."""
    if values is None:
        return None
    given = entries(values, where)
    if len(given) != len(prompt):
        raise SampleError(f"{where} holds {len(given)} values, the prompt {len(prompt)} tokens, expected one for each")
    rest = zip(prompt.tolist()[1:], given[1:], strict=True)
    read = [top_logprob(item, token, f"{where}[{n}]") for n, (token, item) in enumerate(rest, start=1)]
    return floats_array([0.0, *read], where)
