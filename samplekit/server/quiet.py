"""transformers without its progress bars: a service says nothing but what it logs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def without_bars() -> Generator[None]:
    """Let transformers draw no bars while it reads or writes weights; afterwards it does as before."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
