"""Points in time as options name them: ``1h`` ago, ``2026-11-17T09:00``, epoch milliseconds."""

import argparse
import re
from collections.abc import Callable
from typing import Final

__all__ = ["parse_time"]

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_AGO: Final = re.compile(r"(?:\d{1,12}(?:ms|[smhdw]))+", re.ASCII)
_PART: Final = re.compile(r"(\d+)(ms|[smhdw])", re.ASCII)
# Fewer digits are hardly meant as milliseconds since 1970; more are no date.
_MILLISECONDS: Final = re.compile(r"\d{11,15}", re.ASCII)


def parse_time(text: str) -> Callable[[int], int]:
    """Reads a time; returns a function from now to milliseconds since 1970.

    A time without a zone is one of this machine's zone.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    if _AGO.fullmatch(text):
        ago_ms = sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))
        return lambda now_ms: max(now_ms - ago_ms, 0)
    if text == "now":
        return lambda now_ms: now_ms
    if _MILLISECONDS.fullmatch(text):
        number = int(text)
        return lambda _now_ms: number
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone()
        moment_ms = round(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        moment_ms = -1
    if moment_ms < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: expected a time ago such as 30m, 1h or 2d, a date such as "
            "2026-11-17 or 2026-11-17T09:00, `now`, or milliseconds since 1970"
        )
    return lambda _now_ms: moment_ms
