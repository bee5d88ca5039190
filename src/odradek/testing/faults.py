"""Faults that a test plants in a `SimDisk`: errors, short writes, a full disk, a crash point."""

import errno
import os
from dataclasses import dataclass

__all__ = ["Faults", "SimulatedCrash"]


class SimulatedCrash(BaseException):
    """The machine stopped here. Not an `Exception`, so that no handler of the code catches it."""


@dataclass(slots=True, kw_only=True)
class _Rule:
    operation: str
    path_contains: str
    # Number of matching operations that pass first, then of those that fail; None: all.
    after: int
    times: int | None
    # One of the two is set: the error to raise, or the bytes a write is cut to.
    error_number: int | None = None
    short_bytes: int | None = None

    def hits(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.path_contains not in path or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """Planted faults, checked before each operation."""

    __slots__ = ("_crash_countdown", "_crash_operation", "_room_bytes", "_rules", "is_crashed")

    def __init__(self) -> None:
        self.is_crashed = False
        self.clear()

    def clear(self) -> None:
        self._rules: list[_Rule] = []
        self._room_bytes: int | None = None  # Bytes until the disk is full; None is no limit.
        self._crash_countdown: int | None = None  # Mutating operations still to let pass.
        self._crash_operation: str | None = None  # The operation that is counted; None is all.

    def restart(self) -> None:
        """Starts the machine again; a crash point is used once."""
        self.is_crashed = False
        self._crash_countdown = None

    def plant_error(
        self, operation: str, path_contains: str, number: int, *, after: int, times: int | None
    ) -> None:
        self._rules.append(
            _Rule(
                operation=operation,
                path_contains=path_contains,
                after=after,
                times=times,
                error_number=number,
            )
        )

    def plant_short_write(
        self, short_bytes: int, path_contains: str, *, after: int, times: int | None
    ) -> None:
        self._rules.append(
            _Rule(
                operation="short_write",
                path_contains=path_contains,
                after=after,
                times=times,
                short_bytes=short_bytes,
            )
        )

    def limit_room(self, room_bytes: int | None) -> None:
        self._room_bytes = room_bytes

    def crash_at(self, count: int | None, operation: str | None = None) -> None:
        self._crash_countdown = count
        self._crash_operation = operation

    def check_alive(self, operation: str, path: str, *, mutates: bool) -> None:
        """Raises if the machine is down, or goes down before this operation."""
        if (
            not self.is_crashed
            and mutates
            and self._crash_countdown is not None
            and self._crash_operation in (None, operation)
        ):
            self.is_crashed = self._crash_countdown == 0
            self._crash_countdown -= 1
        if self.is_crashed:
            raise SimulatedCrash(f"before {operation} {path}")

    def check_error(self, operation: str, path: str) -> None:
        """Raises the first planted error that is due."""
        for rule in self._rules:
            if rule.error_number is not None and rule.hits(operation, path):
                raise OSError(rule.error_number, os.strerror(rule.error_number), path)

    def take_room(self, path: str, wanted_bytes: int) -> int:
        """Returns how many of `wanted_bytes` a write may write; raises ENOSPC if none."""
        granted = wanted_bytes
        for rule in self._rules:
            if rule.short_bytes is not None and rule.hits("short_write", path):
                granted = min(granted, rule.short_bytes)
                break
        if self._room_bytes is None:
            return granted
        if self._room_bytes == 0 and granted > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        granted = min(granted, self._room_bytes)
        self._room_bytes -= granted
        return granted
