"""Log lines of a running broker on standard error: for people, or as JSON for collectors.

A line of text is `time LEVEL logger: message`. A JSON line has `time`, `level`, `logger`,
`message`, `exception` if there is one, and whatever else the caller gave as `extra`.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

__all__ = ["FORMATS", "LEVELS", "set_up_logging"]

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

# What every record has; the rest was given by the caller.
_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002 - the base class names it
        return _time_of(record)


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _OWN_FIELDS}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def set_up_logging(level: str, format_: str) -> None:
    """Sends log lines of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
