"""Gauges of a broker's replicas (`kafka.server:type=ReplicaManager`) and fetch sessions."""

from collections.abc import Callable

from odradek.clock import Clock
from odradek.metrics import MetricRegistry
from odradek.replication.fetch_session import FetchSessionCache
from odradek.replication.hosted import HostedPartitions
from odradek.replication.partition import Partition

__all__ = ["register_fetch_session_metrics", "register_replica_gauges"]


def register_replica_gauges(
    hosted: HostedPartitions,
    registry: MetricRegistry,
    *,
    clock: Clock,
    late_transaction_ms: int,
) -> None:
    """Registers the gauges; each walks the partitions when it is read.

    Args:
        hosted: The partitions.
        registry: The registry of metrics.
        clock: The present time.
        late_transaction_ms: The age from which on an open transaction hangs.
    """

    def counting(is_counted: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(map(is_counted, hosted.online()))

    group = registry.group("kafka.server", "ReplicaManager")
    group.gauge("PartitionCount", lambda: len(hosted))
    group.gauge("OfflineReplicaCount", lambda: hosted.offline_count)
    group.gauge("LeaderCount", counting(lambda partition: partition.is_leader))
    group.gauge("UnderReplicatedPartitions", counting(lambda p: p.is_under_replicated))
    group.gauge("UnderMinIsrPartitionCount", counting(lambda p: p.is_under_min_isr))
    group.gauge("AtMinIsrPartitionCount", counting(lambda p: p.is_at_min_isr))
    group.gauge("ReassigningPartitions", counting(lambda p: p.is_being_reassigned))
    group.gauge(
        "PartitionsWithLateTransactionsCount",
        lambda: sum(
            _has_late_transaction(partition, clock.now_ms() - late_transaction_ms)
            for partition in hosted.online()
        ),
        "Led partitions with a transaction whose end is overdue.",
    )


def _has_late_transaction(partition: Partition, before_ms: int) -> bool:
    """Whether it is led here, with an open transaction whose newest batch is older than a time."""
    if not partition.is_leader or partition.log is None:
        return False
    state = partition.log.producer_state
    return not state.is_stable and any(
        entry.current_transaction_first_offset is not None and entry.last_timestamp < before_ms
        for entry in state.producers.values()
    )


def register_fetch_session_metrics(cache: FetchSessionCache, registry: MetricRegistry) -> None:
    """Registers the sizes of the cache of fetch sessions, and the meter of its evictions."""
    group = registry.group("kafka.server", "FetchSessionCache")
    group.gauge("NumIncrementalFetchSessions", lambda: len(cache))
    group.gauge("NumIncrementalFetchPartitionsCached", lambda: cache.partition_count)
    cache.on_eviction = group.meter("IncrementalFetchSessionEvictionsPerSec").mark
