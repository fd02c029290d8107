"""Answers that are no whole response: errors, parts of a stream, outputs that an engine still adds to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samplekit.errors import SampleError
from samplekit.rollouts.readers.fields import field
from samplekit.sample.kinds import is_sequence, is_whole_number, shown

_LONGEST_QUOTE = 200
_PARTS = "expected one whole response: request without stream, or pass the response that its chunks add up to"


def refuse_error(response: Any) -> None:  # noqa: ANN401 - any server's answer
    """Refuse a response that says what went wrong.

    Raises:
        SampleError: it quotes the error.
    """
    error = field(response, "error")
    if error is None and field(response, "object") == "error":  # vLLM's own spelling
        error = response
    if error is not None:
        said = field(error, "message")
        quote = said[:_LONGEST_QUOTE] if isinstance(said, str) else shown(error)
        raise SampleError(f"response holds an error and no completions ({quote}): repair the request, or send it again")


def refuse_chunk(response: Any) -> None:  # noqa: ANN401 - any server's answer
    """Refuse a part of a stream: the tokens of the other parts would be lost.

    Raises:
        SampleError: it says how the part is told.
    """
    kind = field(response, "object")
    if isinstance(kind, str) and kind.endswith(".chunk"):
        raise SampleError(f"response is a part of a stream (its object is {shown(kind)}), {_PARTS}")
    given = field(response, "choices")
    for index, choice in enumerate(given if is_sequence(given) else ()):
        if field(choice, "delta") is not None:
            raise SampleError(f"response is a part of a stream (choices[{index}] has a delta), {_PARTS}")
        if kind == "text_completion" and field(choice, "finish_reason") is None:  # its chunks carry the same object
            raise SampleError(f"response is a part of a stream (choices[{index}] has no finish_reason), {_PARTS}")


def refuse_unfinished(output: Any) -> None:  # noqa: ANN401 - the engine's answer
    """Refuse an output of vLLM that the engine still adds to.

    Raises:
        SampleError: naming what is not finished.
    """
    if field(output, "finished") is False:
        raise SampleError(
            "output.finished is False, expected a finished RequestOutput: pass the last one of its request"
        )


def refuse_flat(prompts: Sequence[Any], name: str) -> None:
    """Refuse one prompt where several belong.

    Raises:
        SampleError: it says how to wrap it.
    """
    if len(prompts) and all(is_whole_number(item) or (isinstance(item, str) and item.isdecimal()) for item in prompts):
        raise SampleError(f"{name} holds token ids, expected several prompts: where there is one, wrap it as [prompt]")
