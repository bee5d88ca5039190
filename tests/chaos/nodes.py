"""Processes of a cluster, each on a host: started, killed, stopped, paused, and started again."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.network import Network

__all__ = ["Node", "NodeStartError", "wait_until"]

_STOP_TIMEOUT_S = 90


class NodeStartError(Exception):
    """A process ended at its start, or did not come to serve; has the end of its log."""


def wait_until(condition: Callable[[], bool], limit_s: float, pause_s: float = 0.2) -> bool:
    """Whether something came to hold in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


@dataclass(slots=True)
class Node:
    """One process and its folder."""

    name: str  # Of its host, too.
    network: Network
    folder: Path
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    is_paused: bool = False
    lives: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log_path(self) -> Path:
        """The output of this life."""
        return self.folder / f"output-{self.lives}.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of this life; that of the last one after its end."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        self.lives += 1
        self.is_paused = False
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self.network.command(self.name, self.command),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.folder,
            )

    def wait_until_ready(self, is_ready: Callable[[], bool], limit_s: float) -> None:
        """Waits for a start.

        Raises:
            NodeStartError: It ended, or the time is over.
        """
        found = wait_until(lambda: not self.is_running or is_ready(), limit_s)
        if not found or not self.is_running:
            why = "is not ready" if self.is_running else "has ended"
            raise NodeStartError(f"{self.name} {why} after {limit_s} s:\n{self.log()[-4000:]}")

    def kill(self) -> None:
        """SIGKILL; a process that is paused dies, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_S)
        self.is_paused = False

    def stop(self) -> None:
        """SIGTERM, as an operator would; killed if it does not end in time."""
        assert self._process is not None
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_running and self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_paused and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
        self.is_paused = False
