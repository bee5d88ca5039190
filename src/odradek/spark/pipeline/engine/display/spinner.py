"""What a command waits for, on one line of the terminal, with the seconds that it has taken.

The line is cleared when the wait is over, so that nothing of it stays before other output.
"""

import threading
from typing import Final, TextIO

from odradek.clock import Clock, SystemClock

__all__ = ["CLEAR_LINE", "Spinner", "frame"]

CLEAR_LINE: Final = "\x1b[K"
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES: Final = "|/-\\"
_STEP_MS: Final = 120


def frame(now_ms: int, encoding: str | None) -> str:
    """The picture at a time, in characters that the terminal has."""
    is_utf8 = (encoding or "").lower().replace("-", "") == "utf8"
    frames = _FRAMES if is_utf8 else _PLAIN_FRAMES
    return frames[now_ms // _STEP_MS % len(frames)]


class Spinner:
    """Shows a text that a thread keeps turning; `end` clears it. May be used again.

    Args:
        out: The terminal.
        width: Of the terminal; a longer text is cut, since a wrapped one would not be cleared.
        clock: The clock.
    """

    def __init__(self, out: TextIO, width: int, clock: Clock | None = None) -> None:
        self._out = out
        self._width = width
        self._clock = clock or SystemClock()
        self._text = ""
        self._began_ms = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        """Shows another text; its seconds are counted from now."""
        self._text, self._began_ms = text, self._clock.monotonic_ms()
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._turn, name="spinner", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Clears the line. Does nothing if no text is shown."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._thread = None
        self._out.write(f"\r{CLEAR_LINE}")
        self._out.flush()

    def _turn(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            seconds = (now_ms - self._began_ms) // 1000
            line = f"{frame(now_ms, self._out.encoding)} {self._text}, {seconds} s"
            self._out.write(f"\r{line[: self._width - 1]}{CLEAR_LINE}")
            self._out.flush()
            if self._ended.wait(_STEP_MS / 1000):
                return
