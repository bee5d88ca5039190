"""The fetchers of a broker: they follow the leaders of its replicas on other brokers."""

import asyncio
from collections.abc import AsyncIterator, Callable
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
from odradek.replication.throttles import ReplicationThrottle
from odradek.tasks import Tasks

__all__ = ["Following", "following"]


@dataclass(frozen=True, slots=True)
class Following:
    """The fetchers with both throttles of replication, and how settings change them."""

    fetchers: ReplicaFetchers
    state: State
    sent: ReplicationThrottle
    fetched: ReplicationThrottle

    def apply(self, after: BrokerSettings) -> None:
        """Applies changed settings."""
        partitions = [one.tp for one in self.state.replication.replicas.partitions()]
        self.fetchers.resize(after.replication.fetchers, partitions)
        self.sent.bytes_per_second = after.replication.leader_max_bytes_per_second
        self.fetched.bytes_per_second = after.replication.follower_max_bytes_per_second


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

    sent, fetched = _throttles(base, state)
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
        throttle=fetched,
    )
    replicas.fetchers = fetchers
    replicas.reads.throttle = sent
    try:
        yield Following(fetchers, state, sent, fetched)
    finally:
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fetchers.stop(lambda: idle.set_result(None))
        await idle


def _throttles(base: Base, state: State) -> tuple[ReplicationThrottle, ReplicationThrottle]:
    """The throttle of what leaders here send, and that of what followers here fetch."""
    settings, topics = base.settings, state.storage.topic_configs

    def throttle(
        named_replicas: Callable[[str], tuple[str, ...]], type_name: str
    ) -> ReplicationThrottle:
        made = ReplicationThrottle(
            settings.node.id,
            named_replicas,
            base.around.clock,
            sample_count=settings.replication.throttle_sample_count,
            sample_s=settings.replication.throttle_sample_s,
        )
        made.register(base.metrics, type_name)
        return made

    return (
        throttle(
            lambda topic: topics.get(topic).topic.leader_throttled_replicas, "LeaderReplication"
        ),
        throttle(
            lambda topic: topics.get(topic).topic.follower_throttled_replicas, "FollowerReplication"
        ),
    )
