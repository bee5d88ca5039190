"""Public helpers for tests: a broker in one line, a clock that stands still, a disk that fails."""

from odradek.testing.broker import AsyncEmbeddedBroker, EmbeddedBroker
from odradek.testing.clock import ManualClock
from odradek.testing.disk import SimDisk
from odradek.testing.faults import SimulatedCrash

__all__ = ["AsyncEmbeddedBroker", "EmbeddedBroker", "ManualClock", "SimDisk", "SimulatedCrash"]
