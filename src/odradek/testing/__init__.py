"""Public helpers for tests: brokers and clusters, a manual clock, a disk with planted faults."""

from odradek.testing.broker import AsyncEmbeddedBroker, EmbeddedBroker
from odradek.testing.clock import ManualClock
from odradek.testing.cluster import AsyncEmbeddedCluster, EmbeddedCluster
from odradek.testing.disk import SimDisk
from odradek.testing.faults import SimulatedCrash

__all__ = [
    "AsyncEmbeddedBroker",
    "AsyncEmbeddedCluster",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "ManualClock",
    "SimDisk",
    "SimulatedCrash",
]
