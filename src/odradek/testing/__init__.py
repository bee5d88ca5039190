"""Public helpers for tests: an embedded broker, a manual clock, a disk with planted faults."""

from odradek.testing.broker import AsyncEmbeddedBroker, EmbeddedBroker
from odradek.testing.clock import ManualClock
from odradek.testing.disk import SimDisk
from odradek.testing.faults import SimulatedCrash

__all__ = ["AsyncEmbeddedBroker", "EmbeddedBroker", "ManualClock", "SimDisk", "SimulatedCrash"]
