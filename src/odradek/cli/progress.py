"""A count of messages that is updated in place, on one line of the terminal.

The line is written a few times a second at most. Output that follows it, be it an error, the shell
after Ctrl-C, or another line (`print_error` calls `end_open_line`), begins on a line of its own.
"""

import sys
from types import TracebackType
from typing import Final, Self, TextIO

from odradek.cli.output import counted
from odradek.clock import Clock, SystemClock

__all__ = ["Progress", "end_open_line"]

# More updates cannot be read, and a write costs more than counting many messages.
_INTERVAL_MS: Final = 200

# The progress whose line the cursor is in. There is one terminal, for the whole process.
_open: "Progress | None" = None


def end_open_line() -> None:
    """Ends the line that shows progress, if there is one, before other output is printed."""
    if _open is not None:
        _open.end_line()


class Progress:
    """Shows a growing count on the terminal; a context manager.

    Args:
        is_shown: Whether the count is printed at all.
        stream: The terminal; standard error if not given.
        clock: For the interval between two updates.
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
        self._shown_count: int | None = None  # The count on the open line; None: no open line.
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
        """Updates the count; printed if the last update is old enough."""
        self._count = count
        if self._is_shown and self._clock.monotonic_ms() >= self._next_ms:
            self._print()

    def finish(self, count: int, what: str) -> None:
        """Prints the final count, followed by `what`, and ends the line."""
        self._count = count
        if self._is_shown:
            self._print(what)
            self.end_line()

    def _print(self, what: str = "") -> None:
        global _open
        text = f"\r{counted(self._count, 'message')}{what}"
        print(text, end="", file=self._stream, flush=True)
        self._shown_count = self._count
        self._next_ms = self._clock.monotonic_ms() + _INTERVAL_MS
        _open = self

    def end_line(self) -> None:
        """Ends the line, if there is anything on it."""
        global _open
        if self._shown_count is not None:
            print(file=self._stream, flush=True)
            self._shown_count = None
        if _open is self:
            _open = None
