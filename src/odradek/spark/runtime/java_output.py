"""Holds back what Java prints while Spark starts, which says nothing to the user of a command.

Java, Spark's launcher and Spark's logging print about ten lines before the level of the log can be
set. They are held until the session is there, and then forgotten; if it does not start, they are
printed, since the reason may be among them. Later lines are passed on as they come.
"""

import os
import sys
import threading
from collections import deque
from typing import Final

__all__ = ["JavaOutput"]

_MAX_HELD: Final = 1_000  # Lines; a Java that fails says why at the end.
_END_S: Final = 2  # For the last lines of a Java that has ended.


class JavaOutput:
    """The standard error of a Java that is about to start: pass `fileno` to it, then call `begin`.

    Its thread ends with the last process that has the descriptor.
    """

    def __init__(self) -> None:
        self._reading, self.fileno = os.pipe()
        self._lock = threading.Lock()
        self._held: deque[str] = deque(maxlen=_MAX_HELD)
        self._is_holding = True
        self._thread = threading.Thread(target=self._read, name="java-output", daemon=True)

    def begin(self) -> None:
        """Starts reading; the caller has started Java, or has failed to."""
        os.close(self.fileno)
        self._thread.start()

    def forget(self) -> None:
        """Forgets the lines that were held, and passes on those to come."""
        with self._lock:
            self._held.clear()
            self._is_holding = False

    def show(self) -> None:
        """Prints the lines that were held, and passes on those to come; Java has failed."""
        self._thread.join(_END_S)
        with self._lock:
            for line in self._held:
                sys.stderr.write(line)
            sys.stderr.flush()
            self._held.clear()
            self._is_holding = False

    def _read(self) -> None:
        with open(self._reading, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                with self._lock:
                    if self._is_holding:
                        self._held.append(line)
                    else:
                        sys.stderr.write(line)
                        sys.stderr.flush()
