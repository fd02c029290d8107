"""A tokenizer's surface, read once: its added tokens, its backend, its special strings.

Nothing here imports transformers: any object with the surface of a Hugging Face tokenizer will do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from samplekit.chat.refusals import refuse
from samplekit.sample.kinds import shown

ID_LIMIT = 2**32


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One added token: its text, its id, whether it is special and whether text may be cut just before it."""

    content: str
    id: int
    special: bool
    cuttable: bool


def backend_of(tokenizer: Any) -> Any:  # noqa: ANN401 - any tokenizer
    """Give the Rust tokenizer behind a fast tokenizer, or None."""
    for candidate in (tokenizer, getattr(tokenizer, "backend_tokenizer", None), getattr(tokenizer, "_tokenizer", None)):
        if hasattr(candidate, "encode_batch_fast") and hasattr(candidate, "get_added_tokens_decoder"):
            return candidate
    return None


def added_tokens(tokenizer: Any) -> list[AddedToken]:  # noqa: ANN401 - any tokenizer
    """List the added tokens of a tokenizer; an empty list where it does not tell."""
    backend = backend_of(tokenizer)
    if backend is not None:
        table, plain = backend.get_added_tokens_decoder(), _normalizes_nothing(backend)
    else:
        table, plain = getattr(tokenizer, "added_tokens_decoder", {}), False
    if not isinstance(table, Mapping):
        return []
    return [_read(token, number, plain) for number, token in cast("Mapping[int, Any]", table).items()]


def special_strings(tokenizer: Any) -> dict[str, Any]:  # noqa: ANN401 - any tokenizer
    """Map names such as ``eos_token`` to their text, as templates read them."""
    table = getattr(tokenizer, "special_tokens_map", None)
    if not isinstance(table, Mapping):
        return {}
    return {key: _plain(value) for key, value in cast("Mapping[str, Any]", table).items()}


def token_id(tokenizer: Any, text: str) -> int | None:  # noqa: ANN401 - any tokenizer
    """Give the id of a token by its text, or None where the vocabulary lacks it."""
    backend = backend_of(tokenizer)
    if backend is not None:
        return cast("int | None", backend.token_to_id(text))
    convert = getattr(tokenizer, "convert_tokens_to_ids", None)
    number = convert(text) if convert else None
    unknown = getattr(tokenizer, "unk_token_id", None)
    return number if isinstance(number, int) and (number != unknown or text == tokenizer.unk_token) else None


def token_text(tokenizer: Any, number: int) -> str | None:  # noqa: ANN401 - any tokenizer
    """Give the text of a token by its id, or None where there is none."""
    if not 0 <= number < ID_LIMIT:
        return None
    backend = backend_of(tokenizer)
    if backend is not None:
        return cast("str | None", backend.id_to_token(number))
    convert = getattr(tokenizer, "convert_ids_to_tokens", None)
    try:
        text = convert(number) if convert else None
    except (IndexError, KeyError, ValueError):  # how slow tokenizers say that there is none
        return None
    return text if isinstance(text, str) else None


def known_ids(tokenizer: Any, ids: object) -> list[int]:  # noqa: ANN401 - any tokenizer
    """Give ids as plain numbers, each of them a token.

    Raises:
        TemplateError: code ``invalid_option``, naming the first that is none.
    """
    if isinstance(ids, str | bytes | Mapping) or not hasattr(ids, "__iter__"):
        raise refuse("invalid_option", f"ids is {shown(ids)}, expected a list of token ids", hint="pass a list of ids")
    given = [getattr(item, "item", lambda item=item: item)() for item in cast("Sequence[Any]", ids)]
    tells = backend_of(tokenizer) is not None or hasattr(tokenizer, "convert_ids_to_tokens")
    seen: set[int] = set()
    for place, number in enumerate(given):
        whole = isinstance(number, int) and not isinstance(number, bool)
        if whole and number in seen:
            continue
        if not whole or not 0 <= number < ID_LIMIT or (tells and token_text(tokenizer, number) is None):
            found = f"ids[{place}] is {shown(number)}, which is no token of this tokenizer"
            raise refuse("invalid_option", found, hint="pass ids of this tokenizer")
        seen.add(number)
    return given


def plain_ids(encoded: Any) -> list[int]:  # noqa: ANN401 - what tokenizers return differs
    """Unwrap ids from a list, a mapping with ``input_ids``, a batch of one, or a tensor.

    Raises:
        TemplateError: code ``encoding_failed``.
    """
    if hasattr(encoded, "keys"):
        encoded = encoded["input_ids"]
    encoded = getattr(encoded, "ids", encoded)
    if hasattr(encoded, "tolist"):
        encoded = encoded.tolist()
    rows: list[Any] = list(encoded)
    if len(rows) == 1 and isinstance(rows[0], Sequence):
        rows = list(rows[0])  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(number, int) for number in rows):
        raise refuse("encoding_failed", "the tokenizer returned ids of unknown shape", hint="return a list of ints")
    return rows


def chat_templates(tokenizer: Any) -> dict[str, str]:  # noqa: ANN401 - any tokenizer
    """Give the tokenizer's templates by name; a single one is ``default``.

    Raises:
        TemplateError: code ``no_chat_template``.
    """
    found: object = getattr(tokenizer, "chat_template", None)
    if isinstance(found, str) and found:
        return {"default": found}
    if isinstance(found, Mapping) and found:
        return {str(name): str(text) for name, text in found.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    raise refuse("no_chat_template", f"{type(tokenizer).__name__} has no chat_template")


def _read(token: Any, number: int, plain: bool) -> AddedToken:  # noqa: ANN401 - AddedToken of either library
    content = str(getattr(token, "content", token))
    flags = [bool(getattr(token, name, False)) for name in ("lstrip", "rstrip", "single_word")]
    matched_raw = plain or not getattr(token, "normalized", True)
    special = bool(getattr(token, "special", True))
    return AddedToken(content, number, special, bool(content) and matched_raw and not any(flags))


def _normalizes_nothing(backend: Any) -> bool:  # noqa: ANN401 - a tokenizers.Tokenizer
    normalizer = backend.normalizer
    if normalizer is None:
        return True
    try:
        state = json.loads(normalizer.__getstate__())
    except (AttributeError, TypeError, ValueError):
        return False
    return bool(state == {"type": "Sequence", "normalizers": []})


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    return str(getattr(value, "content", value))
