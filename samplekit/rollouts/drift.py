"""Where text that was sampled encodes to other ids than those that were sampled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from samplekit.errors import SampleError
from samplekit.rollouts.names import text_or_none
from samplekit.rollouts.sampled import sampled_ids
from samplekit.sample.arrays import IntArray
from samplekit.sample.kinds import describe_kind, shown
from samplekit.sample.shared_start import shared_start

_CONTEXT = 5  # tokens shown on both sides of a difference


@dataclass(frozen=True)
class EncodingDrift:
    """The first place where encoding a text again gives other ids than were sampled.

    Attributes:
        index: of the first id that differs, or of the first that only one side has.
        sampled: how many ids were sampled.
        encoded: how many ids encoding again gives.
        sampled_context: the sampled tokens around the index, each decoded.
        encoded_context: the same of the encoded ones.
    """

    index: int
    sampled: int
    encoded: int
    sampled_context: tuple[str, ...]
    encoded_context: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"encoding the text again differs at token {self.index}: sampled {list(self.sampled_context)}, "
            f"encoded {list(self.encoded_context)}; train on the sampled ids"
        )


def encoding_drift(text: str, ids: object, tokenizer: object) -> EncodingDrift | None:
    """Tell where encoding a completion's text gives other ids than the policy sampled; None where it gives the same.

    Only looks: the sampled ids are what the policy wrote and what must train, so nothing is ever replaced by this.

    Args:
        text: what the ids decode to, control tokens included.
        ids: the ids that were sampled.
        tokenizer: a ChatTemplate, or a tokenizer of transformers or tokenizers; anything that has encode and decode.

    Raises:
        SampleError: the text is no str that UTF-8 can say, an id is none, or the tokenizer lacks encode or decode,
            or cannot take the text or an id.
    """
    if not isinstance(text, str):
        raise SampleError(f"text is {describe_kind(text)}, expected a str: decode the sampled ids")
    text_or_none(text, "text")
    for name in ("encode", "decode"):
        if isinstance(tokenizer, type) or not callable(getattr(tokenizer, name, None)):
            raise SampleError(f"tokenizer is {describe_kind(tokenizer)}, expected something with encode and decode")
    sampled = _ids(ids, "ids")
    again = _ids(_called(tokenizer, "encode", text, add_special_tokens=False), "tokenizer.encode(text)")
    index = shared_start(sampled, again)
    if index == len(sampled) == len(again):
        return None
    contexts = (_context(tokenizer, found, index) for found in (sampled, again))
    return EncodingDrift(index, len(sampled), len(again), *contexts)


def _ids(ids: Any, name: str) -> IntArray:  # noqa: ANN401 - whatever holds ids
    """Read ids, of which there may be none."""
    given = getattr(ids, "ids", ids)  # what tokenizers' encode gives
    return sampled_ids(given, name, may_be_empty=True)


def _context(tokenizer: object, ids: IntArray, index: int) -> tuple[str, ...]:
    around = ids[max(0, index - _CONTEXT) : index + _CONTEXT + 1].tolist()
    return tuple(_decoded(tokenizer, token) for token in around)


def _decoded(tokenizer: object, token: int) -> str:
    """Decode one id; one that gives no text, such as an id beyond the vocabulary, is shown as a number."""
    return str(_called(tokenizer, "decode", [token], skip_special_tokens=False)) or f"<id {token}>"


def _called(tokenizer: object, name: str, value: object, **options: bool) -> Any:  # noqa: ANN401 - any tokenizer
    """Call a method with those options that it takes: nothing may be put in front, nothing left out.

    Raises:
        SampleError: the method fails.
    """
    method: Callable[..., Any] = getattr(tokenizer, name)
    known = _parameters(method)
    takes_any = any(item.kind is item.VAR_KEYWORD for item in known.values())
    given = {option: wanted for option, wanted in options.items() if takes_any or option in known}
    try:
        return method(value, **given)
    except SampleError:
        raise
    except Exception as error:  # whatever a tokenizer makes of what it cannot take
        raise SampleError(
            f"tokenizer.{name}({shown(value)}) failed ({type(error).__name__}: {error}), expected a tokenizer that "
            "takes it: pass the one that the ids were sampled with"
        ) from error


def _parameters(method: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(method).parameters
    except ValueError:  # a built-in that tells none
        return {}
