"""Public helpers for tests: a clock that stands still, a disk that forgets and fails."""

from odradek.testing.clock import ManualClock
from odradek.testing.disk import SimDisk
from odradek.testing.faults import SimulatedCrash

__all__ = ["ManualClock", "SimDisk", "SimulatedCrash"]
