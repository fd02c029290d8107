"""Load by name or path: a tokenizer, and the stops that lie beside it.

The only place of this folder that imports transformers, and only when called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from samplekit.chat.refusals import refuse
from samplekit.errors import TemplateError
from samplekit.sample.kinds import shown

TINY = "samplekit/tiny"
_PACKAGED = {TINY: Path(__file__).resolve().parents[1] / "models" / "tiny"}
_GENERATION_CONFIG = "generation_config.json"


def packaged_model(name: str) -> Path | None:
    """Give the folder of a model that comes with this package, None for every other name."""
    return _PACKAGED.get(name)


def local_folder(name_or_path: str) -> Path | None:
    """Give the folder that a name or path stands for, None where it is the name of a model on Hugging Face.

    Raises:
        TemplateError: code ``load_failed``: it is written as a path, and there is no such folder.
    """
    name = str(name_or_path)
    folder = packaged_model(name) or Path(name).expanduser()
    if folder.is_dir() and name:
        return folder
    if _looks_like_path(name):
        hint = "pass a folder that holds the model's files, or a name"
        raise refuse("load_failed", f"{name!r} is not a folder", hint=hint)
    return None


def load_tokenizer(name_or_path: str) -> Any:  # noqa: ANN401 - transformers' tokenizer
    """Load a tokenizer.

    Args:
        name_or_path: a Hugging Face name, a folder, or ``"samplekit/tiny"``.

    Raises:
        TemplateError: code ``load_failed``.
    """
    name, folder = str(name_or_path), local_folder(name_or_path)
    import transformers

    auto: Any = transformers.AutoTokenizer
    try:
        tokenizer = auto.from_pretrained(name if folder is None else str(folder))
    except Exception as error:
        hint = "check the spelling, the network and your access, or pass a folder that holds tokenizer.json"
        raise refuse(
            "load_failed", f"no tokenizer could be loaded from {name!r} ({first_line(error)})", hint=hint
        ) from error
    if packaged_model(name) is not None:
        tokenizer.name_or_path = name  # not the folder of this machine, which would stand in every lock
    return tokenizer


def configured_stop_ids(name_or_path: str) -> list[int]:
    """List the ids that generation_config.json says end a reply; none where there is no such file.

    Read from a local folder, or from what was downloaded of a Hugging Face name before; never from the network.

    Raises:
        TemplateError: code ``load_failed``: the file is there and broken.
    """
    path = _find_generation_config(str(name_or_path))
    if path is None:
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _broken(path, f"cannot be read ({first_line(error)})") from error
    if not isinstance(found, dict):
        raise _broken(path, f"holds a JSON {type(found).__name__}, expected an object")
    stop: Any = cast("dict[str, Any]", found).get("eos_token_id")
    ids = [*cast("Iterable[Any]", stop)] if isinstance(stop, list) else [] if stop is None else [stop]
    if any(type(item) is not int for item in ids):
        raise _broken(path, f"holds eos_token_id {shown(stop)}, expected a token id or a list of them")
    return ids


def _find_generation_config(name: str) -> Path | None:
    try:
        folder = local_folder(name)
    except TemplateError:  # a tokenizer may call itself anything
        return None
    path = _cached(name) if folder is None else folder / _GENERATION_CONFIG
    return path if path is not None and path.is_file() else None


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, _GENERATION_CONFIG)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def _broken(path: Path, found: str) -> TemplateError:
    return refuse("load_failed", f"{path} {found}", hint="mend the file or remove it, and pass stop_tokens= yourself")


def first_line(error: Exception) -> str:
    """Give the first line of what an error says, or its name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _looks_like_path(name: str) -> bool:
    return name in _PACKAGED or name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or not name
