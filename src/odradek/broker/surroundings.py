"""The services of the machine that a broker runs on, as one value.

A broker reads clocks, draws numbers, starts threads, and opens files and the sockets of clients and
brokers only through this. So a whole broker runs on virtual time, a simulated network and a
simulated disk when a test passes those, and the code under test is the code that serves. Two
things have sockets of the system, which a simulated broker does without: the page of metrics
(`odradek.broker.observability`), and ZooKeeper's client (`odradek.coordination.zookeeper`), by
which a broker with `zookeeper.connect` keeps its metadata instead of in the store that is here.
"""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from random import Random, SystemRandom
from typing import Protocol, Self

from odradek.clock import Clock, PreciseClock, SystemClock
from odradek.files import Disk
from odradek.lazy_dataclass import dataclass
from odradek.metadata.image import ClusterImage
from odradek.metadata.ports import ControlledShutdownCall, MetadataEngine
from odradek.metadata_store.engine import open_embedded
from odradek.network.page_cache import PageCache
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams
from odradek.protocol.inter_broker import NodeForms
from odradek.tasks import Sleep, Threads

__all__ = ["OpenStore", "Surroundings"]


class OpenStore(Protocol):
    """Opens the metadata engine of a data directory; `open_embedded` is one."""

    def __call__(
        self,
        directory: str,
        broker_id: int,
        *,
        clock: Clock,
        disk: Disk,
        executor: Executor,
        new_cluster_id: Callable[[], str],
        controlled_shutdown: ControlledShutdownCall,
        image: Callable[[], ClusterImage],
        nodes: NodeForms,
    ) -> AbstractAsyncContextManager[MetadataEngine]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The machine around a broker.

    The event loop is no part of it: the broker uses the loop that runs its `start`.
    """

    clock: PreciseClock
    random: Random
    sleep: Sleep
    threads: Threads
    streams: ByteStreams
    disk: Disk
    # The page cache of the disk's files.
    pages: PageCache
    open_store: OpenStore

    def new_uuid(self) -> uuid.UUID:
        """Draws an id."""
        return uuid.UUID(bytes=self.random.randbytes(16), version=4)

    @classmethod
    def system(cls, disk: Disk | None = None) -> Self:
        """The machine that this process runs on.

        Args:
            disk: Replaces the machine's disk.
        """
        return cls(
            clock=SystemClock(),
            random=SystemRandom(),
            sleep=asyncio.sleep,
            threads=ThreadPoolExecutor,
            streams=SYSTEM_STREAMS,
            disk=disk or Disk(),
            pages=PageCache(),
            open_store=open_embedded,
        )
