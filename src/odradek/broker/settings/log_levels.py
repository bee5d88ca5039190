"""Levels of this broker's loggers, for administrators to read and set.

Kafka's level names are mapped to those of `logging`; TRACE is below DEBUG. A logger without a level
of its own has that of its nearest ancestor with one, in the end that of ``root``. Levels set here
last until the broker stops.
"""

import logging
from typing import Final

from odradek.errors import ApiError, ErrorCode

__all__ = ["ROOT_LOGGER", "LogLevels"]

ROOT_LOGGER: Final = "root"

_NUMBERS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


class LogLevels:
    """The loggers of one manager, normally that of the process."""

    __slots__ = ("_manager",)

    def __init__(self, manager: logging.Manager | None = None) -> None:
        self._manager = manager or logging.root.manager

    def levels(self) -> dict[str, str]:
        """The effective level of each logger, sorted by name, ``root`` first."""
        names = sorted(name for name in self._manager.loggerDict if name != ROOT_LOGGER)
        return {name: _name_of(self._effective_level(name)) for name in (ROOT_LOGGER, *names)}

    def set_level(self, name: str, level: str) -> None:
        """Gives a logger a level of its own."""
        self._logger(name).setLevel(_NUMBERS[level])

    def clear_level(self, name: str) -> None:
        """Removes a logger's own level."""
        self._logger(name).setLevel(logging.NOTSET)

    def check(self, name: str, level: str | None) -> None:
        """Checks that `set_level`, or with None `clear_level`, is possible.

        Raises:
            ApiError: The logger or the level does not exist, or root would have no level.
        """
        if name != ROOT_LOGGER and name not in self._manager.loggerDict:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"logger {name} does not exist")
        if level is None and name == ROOT_LOGGER:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "the root logger cannot be without a level: set another"
            )
        if level is not None and level not in _NUMBERS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"logger {name}: expected a level of {', '.join(_NUMBERS)}, found {level!r}",
            )

    def _logger(self, name: str) -> logging.Logger:
        return self._manager.root if name == ROOT_LOGGER else self._manager.getLogger(name)

    def _effective_level(self, name: str) -> int:
        """As `Logger.getEffectiveLevel`, also for a name that is only a parent of loggers."""
        while name and name != ROOT_LOGGER:
            found = self._manager.loggerDict.get(name)
            if isinstance(found, logging.Logger) and found.level:
                return found.level
            name = name.rpartition(".")[0]
        return self._manager.root.level


def _name_of(number: int) -> str:
    """The name of a level; one between two has the name of the lower."""
    for name, known in _NUMBERS.items():
        if number >= known:
            return name
    return "TRACE"
