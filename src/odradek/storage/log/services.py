"""What every log of a process shares, handed in from outside."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from random import Random

from odradek.clock import Clock
from odradek.files import Disk
from odradek.storage.directories.background import BackgroundTasks
from odradek.storage.log.expansion import InlineBudget
from odradek.tasks import Threads
from odradek.values import dataclass

__all__ = ["LogServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """What every log of a process shares."""

    disk: Disk
    clock: Clock
    random: Random
    tasks: BackgroundTasks
    # Makes the pools that logs are loaded and closed on.
    threads: Threads = ThreadPoolExecutor
    producer_id_expiration_ms: int = 86_400_000
    # Told how long each flush took, in ms; by a log that is closed possibly on another thread.
    on_flushed: Callable[[float], None] | None = None
    # Called for each damaged place that is found in a log, possibly on another thread.
    on_damage: Callable[[], None] | None = None
    # Of the request that is appended, to however many logs.
    inline_budget: InlineBudget = field(default_factory=InlineBudget)
