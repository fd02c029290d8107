"""Load a tokenizer by name or path; the only place that imports transformers, and only when called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from samplekit.chat.refusals import refuse

_PACKAGED = {"samplekit/tiny": Path(__file__).parent.parent / "models" / "tiny"}


def load_tokenizer(name_or_path: str) -> Any:  # noqa: ANN401 - transformers' tokenizer
    """Load a tokenizer.

    Args:
        name_or_path: a Hugging Face name, a folder, or ``"samplekit/tiny"``.

    Raises:
        TemplateError: code ``load_failed``.
    """
    name = str(name_or_path)
    folder = _PACKAGED.get(name, Path(name).expanduser())
    if _looks_like_path(name) and not folder.is_dir():
        raise refuse(
            "load_failed", f"{name!r} is not a folder", hint="pass a folder that holds tokenizer.json, or a name"
        )
    import transformers

    auto: Any = transformers.AutoTokenizer
    try:
        tokenizer = auto.from_pretrained(str(folder) if folder.is_dir() else name)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = "check the spelling, the network and your access, or pass a folder that holds tokenizer.json"
        raise refuse("load_failed", f"no tokenizer could be loaded from {name!r} ({reason})", hint=hint) from error
    if name in _PACKAGED:
        tokenizer.name_or_path = name  # not the folder of this machine, which would stand in every lock
    return tokenizer


def _looks_like_path(name: str) -> bool:
    return name in _PACKAGED or name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or not name
