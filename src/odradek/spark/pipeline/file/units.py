"""Durations, sizes and instants as a pipeline file writes them."""

import re
from datetime import UTC, datetime

__all__ = ["parse_duration_ms", "parse_instant_ms", "parse_size_bytes"]

_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_QUANTITY = re.compile(r"([0-9]{1,15})([A-Za-z]+)")


def parse_duration_ms(text: str) -> int | None:
    """Milliseconds of `500ms`, `30s`, `15m`, `2h`, `7d`; None if it is not a duration."""
    return _quantity(text, _DURATION_MS)


def parse_size_bytes(text: str) -> int | None:
    """Bytes of `512B`, `64KB`, `128MB`, `1GB`, powers of 1024; None if it is not a size."""
    return _quantity(text, _SIZE_BYTES)


def parse_instant_ms(text: str) -> int | None:
    """Milliseconds since 1970 of an ISO-8601 instant, UTC if it names no zone."""
    if len(text) < len("2026-01-01"):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _quantity(text: str, units: dict[str, int]) -> int | None:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        return None
    return int(match[1]) * units[match[2]]
