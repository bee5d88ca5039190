"""Parsers of option values, which are all given as text. Pure."""

import re
from collections.abc import Callable
from typing import Final

__all__ = [
    "KAFKA_PREFIX",
    "OptionsError",
    "parse_boolean",
    "parse_choice",
    "parse_duration_ms",
    "parse_size",
    "parse_whole_number",
]

KAFKA_PREFIX: Final = "kafka."  # Of a client's own settings.

_NUMBER: Final = re.compile(r"\s*(\d{1,19})\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)
_SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATIONS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionsError(ValueError):
    """All problems of the given options, in one error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            "options of format odradek: " + "; ".join(problems)
            if len(problems) == 1
            else "options of format odradek:" + "".join(f"\n - {one}" for one in problems)
        )
        self.problems = tuple(problems)


def parse_boolean(text: str) -> bool:
    """Reads `true` or `false`.

    Raises:
        ValueError: It is neither of them.
    """
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"expected true or false, found {text!r}")
    return word == "true"


def parse_whole_number(lowest: int) -> Callable[[str], int]:
    """A parser of numbers from `lowest` on, which raises ValueError for anything else."""

    def parse(text: str) -> int:
        match = _NUMBER.fullmatch(text)
        if match is None or match[2] or int(match[1]) < lowest:
            raise ValueError(f"expected a whole number of at least {lowest}, found {text!r}")
        return int(match[1])

    return parse


def parse_size(text: str) -> int:
    """Bytes, or with a unit as in `2mb`, in powers of 1024.

    Raises:
        ValueError: It is not a size, or has an unknown unit.
    """
    match = _NUMBER.fullmatch(text)
    unit = match[2].lower() if match else ""
    unit = unit[:-1] if len(unit) > 1 and unit.endswith("b") else unit
    if match is None or unit not in _SIZES or not int(match[1]):
        raise ValueError(f"expected bytes such as 1048576, 512kb or 2mb, found {text!r}")
    return int(match[1]) * _SIZES[unit]


def parse_duration_ms(text: str) -> int:
    """Milliseconds, or with a unit as in `15m`.

    Raises:
        ValueError: It is not a duration.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or match[2].lower() not in _DURATIONS_MS:
        raise ValueError(f"expected a duration such as 500ms, 30s, 15m or 2h, found {text!r}")
    return int(match[1]) * _DURATIONS_MS[match[2].lower()]


def parse_choice(*choices: str) -> Callable[[str], str]:
    """A parser of one of these words, which raises ValueError for anything else."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in choices:
            raise ValueError(f"expected {' or '.join(choices)}, found {text!r}")
        return word

    return parse
