"""The history that one process writes, and what it was told to do."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Recorder", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a client is told."""

    process: str
    history: str  # The file to append to.
    bootstrap: str
    topic: str
    label: str  # The name of this life of the topic, in the history.
    partitions: int
    rate: float = 50  # Records per second.
    acks: str = "all"
    group: str = "chaos-group"
    session_ms: int = 6000
    limit_s: float = 60  # Of a final read.
    count: int = 0  # Records after which a producer ends by itself; 0: none.
    rack: str = ""  # Of a reader; it reads from the leaders if it is empty.
    isolation: str = ""  # Of a reader; its client's default if it is empty.
    output: str = ""  # The topic for the results of a pipeline.
    transactional_id: str = ""
    transaction_timeout_ms: int = 8000
    numbers: tuple[int, ...] = ()  # What a pipeline reads by hand; as a member if there is none.
    seed: int = 0  # Of the aborts that a producer decides on.

    @property
    def is_idempotent(self) -> bool:
        return self.acks == "all"


class Recorder:
    """Appends events to the file; knows when the process is to end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.process = settings.process
        self.is_stopping = threading.Event()
        self._lock = threading.Lock()
        # Each line is one write, so a process that is killed leaves at most one torn line.
        self._file = Path(settings.history).open("ab", buffering=0)  # noqa: SIM115

    def say(self, event: str, *, t: float | None = None, **facts: Any) -> None:
        """Writes an event, of now if no time is given."""
        row = {"t": time.monotonic() if t is None else t, "process": self.process}
        line = json.dumps({**row, "event": event, **facts}) + "\n"
        with self._lock:
            self._file.write(line.encode())

    def poll(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Partition, offset and value of each record that came."""
        label = self.settings.label
        rows = [[label, partition, offset, value.decode()] for partition, offset, value in records]
        if rows:
            self.say("poll", records=rows)

    def rows(self, partitions: Iterable[int]) -> list[list[Any]]:
        """Partitions as the format has them."""
        return [[self.settings.label, number] for number in sorted(partitions)]

    def stop_on_signals(self) -> None:
        """Ends in order on SIGTERM, and at once when the campaign that started it is gone."""
        signal.signal(signal.SIGTERM, lambda *_: self.is_stopping.set())

        def end_with_the_campaign() -> None:
            os.read(0, 1)
            os._exit(3)

        threading.Thread(target=end_with_the_campaign, daemon=True).start()
