"""Log records as JSON, one object a line, for machines that read what a service does."""

from __future__ import annotations

import logging
from typing import Any

import orjson

from samplekit.server.timestamps import timestamp


def fields(event: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Give the ``extra`` of a record: what happened, with members of its own beside the message."""
    return {"fields": {"event": event, **values}}


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger and message, then what `fields` gave."""

    def format(self, record: logging.LogRecord) -> str:
        """Give one line."""
        line: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "event": "log",
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode("utf-8", "replace")
