"""Times and durations as users type and read them."""

import re
from datetime import UTC, datetime
from typing import Final

__all__ = ["duration_text", "parse_duration_ms", "parse_time_ms", "time_text"]

_DURATION: Final = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", re.ASCII
)


def parse_duration_ms(text: str) -> int:
    """Reads `1h`, `1d12h`, `90s`, `500ms`, or `PT1H` as ISO 8601 has it.

    Raises:
        ValueError: It has another form.
    """
    match = _DURATION.fullmatch(text)
    if match is not None and any(match.groups()):
        days, hours, minutes, seconds, millis = (float(part or 0) for part in match.groups())
        return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + millis)
    from odradek.client.consumer.config import parse_duration_ms as parse_iso_ms

    try:
        return parse_iso_ms(text)
    except ValueError:
        raise ValueError(f"{text!r} is no duration such as 1h, 1d12h, 90s or PT1H") from None


def parse_time_ms(text: str) -> int:
    """Reads `2026-01-31T12:00:00Z`; without a zone it is UTC.

    Raises:
        ValueError: It has another form.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is not a time such as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def time_text(time_ms: int) -> str:
    """A time with its zone, to the millisecond."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: `2 d 3 h`, `45 s`."""
    rest = int(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
