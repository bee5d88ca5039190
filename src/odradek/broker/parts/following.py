"""The fetchers of a broker: they follow the leaders of its replicas on other brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from odradek.broker.config import BrokerSettings
from odradek.broker.parts.base import Base
from odradek.broker.parts.state import State
from odradek.broker.peers.connections import PeerConnections
from odradek.broker.peers.leader_endpoint import FetchLimits, WireEndpoint
from odradek.lazy_dataclass import dataclass
from odradek.metadata.ports import ControllerPort
from odradek.replication.following.leader_endpoint import LeaderEndpoint
from odradek.replication.following.replica_fetchers import FollowingConfig, ReplicaFetchers
from odradek.tasks import Tasks

__all__ = ["Following", "following"]


@dataclass(frozen=True, slots=True)
class Following:
    """The fetchers, and how settings change them."""

    fetchers: ReplicaFetchers
    state: State

    def apply(self, after: BrokerSettings) -> None:
        """Applies changed settings."""
        partitions = [one.tp for one in self.state.replication.replicas.partitions()]
        self.fetchers.resize(after.replication.fetchers, partitions)


@asynccontextmanager
async def following(
    base: Base, state: State, peers: PeerConnections, port: ControllerPort, tasks: Tasks
) -> AsyncIterator[Following]:
    """Follows leaders while it lasts; on exit no fetcher runs, and none works on a log."""
    settings, replicas, cache = base.settings, state.replication.replicas, state.cache
    limits = FetchLimits(
        max_wait_ms=settings.replication.fetch_wait_max_ms,
        min_bytes=settings.replication.fetch_min_bytes,
        max_bytes=settings.replication.fetch_response_max_bytes,
        partition_max_bytes=settings.replication.fetch_max_bytes,
    )

    def open_endpoint(leader_id: int, fetcher: int) -> LeaderEndpoint:
        return WireEndpoint(
            peers.to_broker(
                leader_id,
                f"fetcher-{fetcher}",
                timeout_ms=settings.replication.socket_timeout_ms,
            ),
            settings.inter_broker.versions,
            replica_id=settings.node.id,
            broker_epoch=lambda: port.broker_epoch,
            limits=limits,
        )

    fetchers = ReplicaFetchers(
        FollowingConfig(
            fetcher_count=settings.replication.fetchers,
            backoff_ms=settings.replication.fetch_backoff_ms,
        ),
        find=lambda tp: replicas.find_online(tp.topic, tp.partition),
        is_alive=lambda broker_id: cache.get_alive_broker(broker_id) is not None,
        open_endpoint=open_endpoint,
        storage_tasks=state.storage.background,
        tasks=tasks,
        clock=base.around.clock,
        stats=replicas.stats,
        on_moved=replicas.note_moved,
    )
    replicas.fetchers = fetchers
    try:
        yield Following(fetchers, state)
    finally:
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fetchers.stop(lambda: idle.set_result(None))
        await idle
