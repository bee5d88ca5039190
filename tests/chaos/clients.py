"""The processes of a workload, as the campaign that starts them sees them."""

import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Client", "lines_of"]


@dataclass(slots=True)
class Client:
    """A process of the workload."""

    role: str
    history: Path
    process: subprocess.Popen[bytes]
    errors: Path
    _events: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _read: int = 0  # Bytes of the history.

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def wait(self, limit_s: float) -> None:
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def events(self) -> Sequence[dict[str, Any]]:
        """What it has written so far; a campaign asks often, so each line is read once."""
        if self.history.exists():
            with self.history.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self._events += map(json.loads, whole.splitlines())
        return self._events

    def kill(self) -> None:
        """SIGKILL; a process that is paused dies, too."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)


def lines_of(folder: Path) -> Sequence[str]:
    """The lines of all histories in a folder that are whole."""
    lines: list[str] = []
    for path in sorted(folder.glob("history-*.jsonl")):
        with path.open() as file:
            lines += [line for line in file if line.endswith("\n")]
    return lines
