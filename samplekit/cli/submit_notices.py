"""What a run says of a service that is down, in a pipe as in a terminal."""

from __future__ import annotations

from samplekit.cli.screen import errors
from samplekit.client.progress import UNANSWERED, Event, Listener, TerminalLine, Waiting


class Notices:
    """Say in a line that the service does not answer, and in another that it does again, in a pipe too."""

    def __init__(self) -> None:
        self._show: Listener = TerminalLine()
        self._is_away = False

    def __call__(self, event: Event) -> None:
        """Hear of progress; all else of it is shown as the client shows it."""
        if not isinstance(event, Waiting) or event.status != UNANSWERED:
            self._show(event)
        elif event.ended:
            self._is_away = False
            if event.trouble is None:
                errors.print(f"{event.what}: the service answers again", style="yellow", markup=False)
        elif not self._is_away:
            self._is_away = True
            errors.print(f"{event.what}: the service does not answer ({event.trouble}), trying again", style="yellow",
                         markup=False)  # fmt: skip
