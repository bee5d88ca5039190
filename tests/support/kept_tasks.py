"""Tasks in the hands of a test."""

from collections.abc import Coroutine
from typing import Any


class KeptTasks:
    """Keeps the coroutines that are to run; the seconds that they sleep are noted."""

    def __init__(self) -> None:
        self.started: list[Coroutine[Any, Any, None]] = []
        self.sleeps: list[float] = []

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        self.started.append(work)

    async def sleep(self, delay_s: float, /) -> None:
        self.sleeps.append(delay_s)
