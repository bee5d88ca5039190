"""The machine a client runs on, as one value: time, randomness and connections.

Tests pass other ones: a manual clock, a seed, a simulated network.
"""

from random import Random
from typing import Self

from odradek.clock import PreciseClock, SystemClock
from odradek.lazy_dataclass import dataclass
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams

__all__ = ["ClientSurroundings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSurroundings:
    """The machine around a client. The event loop is the one that it is started on."""

    clock: PreciseClock
    random: Random
    streams: ByteStreams

    @classmethod
    def system(cls) -> Self:
        """The machine that this process runs on."""
        random = Random()  # noqa: S311 - spreads load, guards nothing
        return cls(clock=SystemClock(), random=random, streams=SYSTEM_STREAMS)
