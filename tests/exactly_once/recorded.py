"""A send job whose tasks note what they do, and die where a run says so. Pickled by value."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from odradek.spark.transactional.sending import Sending

__all__ = ["RecordedSending", "note"]


def note(path: str, **event: Any) -> None:
    """Adds a line to the events, which stays whole if another process writes, too."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (json.dumps(event) + "\n").encode())
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSending(Sending):
    """The tasks of a send job."""

    events: str
    life: int
    # A file; the first task that removes it kills its own process when its rows are sent.
    trap: str
    may_repeat: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        if not self.may_repeat:
            self.refuse_repetition(attempt)
        told = {
            "life": self.life,
            "producer_id": self.ticket.producer_id,
            "epoch": self.ticket.producer_epoch,
            "task": context.partitionId(),
            "attempt": attempt,
        }
        note(self.events, event="task-begins", **told)
        sent = list(self.send(batches, context.partitionId()))
        try:
            os.unlink(self.trap)
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
        note(self.events, event="task-done", **told)
        yield from sent
