"""Folders of this user's alone, and files that outlast a loss of power."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def private_folder(folder: Path) -> None:
    """Make a folder that this user alone can look into: it holds samples and weights."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def flush(path: Path) -> None:
    """Make a file, or a folder's list of names, outlast a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
