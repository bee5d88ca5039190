"""`odradek serve` as a process: its line, its log, its end."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

READY = re.compile(r"odradek: broker (\d+) ready on (\S+)\n")


class Served:
    """A running `odradek serve`; its log goes to a file."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        line = process.stdout.readline()
        match = READY.fullmatch(line)
        assert match is not None, (line, self.log)
        self.address = match[2]

    @property
    def log(self) -> str:
        return self._log.read_text()

    def lines(self, about: str) -> list[str]:
        return [line for line in self.log.splitlines() if about in line]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


@contextlib.contextmanager
def served(
    folder: Path,
    *words: object,
    environment: dict[str, str] | None = None,
    prefix: tuple[str, ...] = (),
) -> Iterator[Served]:
    """Serves from a folder until the block ends."""
    folder.mkdir(exist_ok=True)
    log = folder / f"log-{time.monotonic_ns()}"
    command = [*prefix, sys.executable, "-m", "odradek.cli.main", "serve", *map(str, words)]
    with (
        log.open("w") as err,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as process,
    ):
        try:
            yield Served(process, log)
        finally:
            if process.poll() is None:
                process.kill()
