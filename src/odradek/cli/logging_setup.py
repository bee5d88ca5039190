"""Log lines of a running broker on standard error: for people, or as JSON for collectors.

A line of text is `time LEVEL logger: message`. A JSON line has `time`, `level`, `logger`,
`message`, `exception` if there is one, and the fields the caller gave as `extra`.

Clients choose the names that appear in messages. So the formatters turn each message into one line
of bounded length: control characters are escaped, and the lines of an exception are indented, so
that none of them can be mistaken for a log line. `RateLimit` bounds the lines that one statement
writes in a second, since one request can name many topics. `odradek.storage` has no such bound:
each of its lines concerns stored data.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["FORMATS", "LEVELS", "set_up_logging"]

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

# Fields that every record has; the others were given by the caller.
_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

# Characters that end a line or move the cursor of a terminal, and bytes that were not UTF-8.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# A name has up to 32,767 bytes; its beginning is enough to identify it.
_MAX_MESSAGE_CHARACTERS: Final = 4_096
# Limit for one statement: more than an operator reads, and less than fills a disk.
_LINES_PER_SECOND: Final = 50
_UNBOUNDED: Final = "odradek.storage"


def escape(text: str) -> str:
    """The text on one line, of bounded length."""
    if len(text) > _MAX_MESSAGE_CHARACTERS:
        left_out = len(text) - _MAX_MESSAGE_CHARACTERS
        text = f"{text[:_MAX_MESSAGE_CHARACTERS]}… ({left_out} characters left out)"
    return _UNPRINTABLE.sub(lambda found: ascii(found.group())[1:-1], text)


class RateLimit(logging.Filter):
    """Limits the log lines of one statement per second; the next line counts those left out."""

    def __init__(self) -> None:
        super().__init__()
        # By statement: second, lines in it, lines left out since the last one that was written.
        self._seen: dict[tuple[str, int], tuple[int, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_UNBOUNDED):
            return True
        statement = record.pathname, record.lineno
        second = int(record.created)
        last, count, left_out = self._seen.get(statement, (second, 0, 0))
        count = count + 1 if last == second else 1
        if count > _LINES_PER_SECOND:
            self._seen[statement] = second, count, left_out + 1
            return False
        self._seen[statement] = second, count, 0
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} lines like this were left out)"
            record.args = None
        return True


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002 - the base class names it
        return _time_of(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as above
        record.message = escape(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"  {escape(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": escape(record.getMessage()),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _OWN_FIELDS}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # A name that was not UTF-8 has lone surrogates, which UTF-8 cannot encode.
        return _UNPRINTABLE.sub(
            lambda found: f"\\u{ord(found.group()):04x}",
            json.dumps(fields, ensure_ascii=False, default=str),
        )


def set_up_logging(level: str, format_: str) -> None:
    """Sends log lines of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RateLimit())
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
