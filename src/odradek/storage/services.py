"""What every log of a process shares, handed in from outside."""

from random import Random

from odradek.clock import Clock
from odradek.files import Disk
from odradek.storage.background import BackgroundTasks
from odradek.values import dataclass

__all__ = ["LogServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """What every log of a process shares."""

    disk: Disk
    clock: Clock
    random: Random
    tasks: BackgroundTasks
    producer_id_expiration_ms: int = 86_400_000
