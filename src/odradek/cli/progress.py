"""A count on the terminal that grows in its place.

The line is written a few times a second at most, and ends with a line end whatever happens: an
error, Ctrl-C, or another line in between (`end_open_line`, which `print_error` calls) begins anew.
"""

import sys
from types import TracebackType
from typing import Final, Self, TextIO

from odradek.clock import Clock, SystemClock

__all__ = ["Progress", "end_open_line"]

# As often as people can read it; a write costs more than counting many messages.
_INTERVAL_MS: Final = 200

# Whose line the cursor is in. There is one terminal, for the whole process.
_open: "Progress | None" = None


def end_open_line() -> None:
    """Ends the line that shows progress, if there is one: something else is to be printed."""
    if _open is not None:
        _open.end_line()


class Progress:
    """Counts for somebody who watches; use it as ``with``.

    Args:
        is_shown: Whether somebody watches; without it nothing is printed.
        stream: Where to; standard error if not given.
        clock: Time.
    """

    def __init__(
        self,
        *,
        is_shown: bool,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._is_shown = is_shown
        self._stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._count = 0
        self._shown_count: int | None = None  # What the open line says.
        self._next_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown_count is not None and self._shown_count != self._count:
            self._print()
        self.end_line()

    def show(self, count: int) -> None:
        """So many are done; printed if it is time."""
        self._count = count
        if self._is_shown and self._clock.monotonic_ms() >= self._next_ms:
            self._print()

    def finish(self, count: int, what: str) -> None:
        """All is done: the line's last words."""
        self._count = count
        if self._is_shown:
            self._print(what)
            self.end_line()

    def _print(self, what: str = "") -> None:
        global _open
        text = f"\r{self._count:,} messages{what}"
        print(text, end="", file=self._stream, flush=True)
        self._shown_count = self._count
        self._next_ms = self._clock.monotonic_ms() + _INTERVAL_MS
        _open = self

    def end_line(self) -> None:
        """Goes on in the next line, if this one has anything."""
        global _open
        if self._shown_count is not None:
            print(file=self._stream, flush=True)
            self._shown_count = None
        if _open is self:
            _open = None
