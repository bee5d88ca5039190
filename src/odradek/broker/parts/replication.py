"""The partitions that a broker hosts, and the requests that wait for them."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.broker.parts.base import Base
from odradek.broker.parts.storage import Storage
from odradek.coordinator.group.coordinator import OFFSETS_TOPIC
from odradek.lazy_dataclass import dataclass
from odradek.metadata.cache import MetadataCache
from odradek.metadata.ports import ControllerPort
from odradek.purgatory import DelayedOperationPurgatory, SystemTimer, TimerCall
from odradek.replication import (
    Purgatories,
    ReplicaManager,
    ReplicaManagerConfig,
    ReplicationStats,
)
from odradek.replication.follower_news import WatermarkDelay
from odradek.replication.isr_updates import IsrUpdates
from odradek.tasks import Tasks

__all__ = ["INTERNAL_TOPICS", "Replication", "build_isr_updates", "build_replication"]

# How long after its latest timeout a transaction counts as one that no coordinator will end.
_LATE_MS: Final = 5 * 60_000
# A follower learns a high watermark with the next record, or so much later without one. Long beside
# the time between records of a busy partition, short beside a change of leaders.
_WATERMARK_DELAY_MS: Final = 5

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The partitions, and the requests that wait for metadata."""

    replicas: ReplicaManager
    # Park requests that wait for a publish: for topics, and for leaders.
    waiter: MetadataWaiter
    election_waiter: MetadataWaiter
    # Set once metadata with brokers was published.
    first_publish: asyncio.Event
    _cache: MetadataCache

    def notify(self) -> None:
        """Follows new leaders, and checks the waiting requests, after a publish."""
        self.replicas.start_following()
        self.waiter.notify()
        self.election_waiter.notify()
        if self._cache.is_published:
            self.first_publish.set()


@contextmanager
def build_replication(base: Base, storage: Storage, cache: MetadataCache) -> Iterator[Replication]:
    """Builds the partitions, none hosted yet; on exit waiting requests are ended."""
    around, requests = base.around, base.settings.requests
    broker_id = base.settings.node.id
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:

        def purgatory(name: str, purge_interval: int) -> DelayedOperationPurgatory[Any]:
            made: DelayedOperationPurgatory[Any] = DelayedOperationPurgatory(
                name,
                SystemTimer(name, loop=loop, clock=around.clock),
                broker_id=broker_id,
                purge_interval=purge_interval,
                metrics=base.metrics,
            )
            stack.callback(made.shutdown)
            return made

        replicas = ReplicaManager(
            ReplicaManagerConfig(
                broker_id=broker_id,
                max_lag_ms=base.settings.replication.lag_time_max_ms,
                internal_topics=INTERNAL_TOPICS,
                late_transaction_ms=base.settings.transactions.max_timeout_ms + _LATE_MS,
            ),
            log_manager=storage.logs,
            purgatories=Purgatories(
                purgatory("Produce", requests.produce_purge_interval),
                purgatory("Fetch", requests.fetch_purge_interval),
                purgatory("DeleteRecords", requests.delete_records_purge_interval),
            ),
            clock=around.clock,
            stats=ReplicationStats(base.metrics),
            min_insync_replicas=storage.topic_configs.min_insync_replicas,
        )
        replicas.use_metadata(
            cache.contains, lambda peer_id: cache.get_alive_broker(peer_id) is not None
        )
        if base.settings.replication.is_rack_aware:
            replicas.use_racks(cache.get_rack)  # Consumers of followers wait for watermarks.
        else:
            timer = SystemTimer("watermarks", loop=loop, clock=around.clock)
            timer.drive_with(lambda: timer.advance_clock(0))
            stack.callback(timer.shutdown)
            replicas.reads.watermark_delay = WatermarkDelay(
                _WATERMARK_DELAY_MS,
                clock=around.clock,
                call_later=lambda delay_ms, call: timer.add(TimerCall(delay_ms, call)),
                wake=replicas.parked.wake,
            )
        yield Replication(
            replicas=replicas,
            waiter=MetadataWaiter(purgatory("topic", 1000), around.clock),
            election_waiter=MetadataWaiter(purgatory("ElectLeader", 1000), around.clock),
            first_publish=asyncio.Event(),
            _cache=cache,
        )


def build_isr_updates(
    base: Base, replicas: ReplicaManager, port: ControllerPort, tasks: Tasks
) -> IsrUpdates:
    """Builds the part that carries out the partitions' ISR changes.

    Changes that leaders store themselves are announced to the controller.
    """
    is_stored_here = base.settings.inter_broker.versions.alter_partition is None
    return IsrUpdates(
        replicas,
        port,
        clock=base.around.clock,
        tasks=tasks,
        announce=port.notify_isr_changes if is_stored_here else None,
    )
