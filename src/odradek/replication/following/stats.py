"""Meters and gauges of fetchers, under Kafka's names."""

from collections.abc import Callable, Iterable

from odradek.metrics import MetricRegistry
from odradek.replication.stats import ReplicationStats

__all__ = ["FetcherStats", "register_fetcher_gauges"]


class FetcherStats:
    """The meters of one fetcher.

    Args:
        stats: Of the broker's replicas.
        client_id: The name of the fetcher.
        broker: `host:port` of its leader, or the leader's id.
    """

    def __init__(self, stats: ReplicationStats, *, client_id: str, broker: str) -> None:
        self._replicas = stats
        self._group = stats.registry.group(
            "kafka.server", "FetcherStats", clientId=client_id, broker=broker
        )
        self.requests = self._group.meter("RequestsPerSec")
        self.bytes = self._group.meter("BytesPerSec")

    def count_bytes(self, size: int, is_reassignment: bool) -> None:
        """Counts fetched bytes."""
        if size:
            self.bytes.mark(size)
            self._replicas.replication_bytes_in.mark(size)
            if is_reassignment:
                self._replicas.reassignment_bytes_in.mark(size)

    def remove(self) -> None:
        """Removes the meters."""
        self._group.remove()


def register_fetcher_gauges(
    registry: MetricRegistry,
    *,
    lags: Callable[[], Iterable[int]],
    fetch_rates: Callable[[], Iterable[float]],
    failed_count: Callable[[], int],
    dead_count: Callable[[], int],
) -> None:
    """Registers the gauges of all fetchers of a broker."""
    group = registry.group("kafka.server", "ReplicaFetcherManager", clientId="Replica")
    group.gauge("MaxLag", lambda: max(lags(), default=0))
    group.gauge("MinFetchRate", lambda: min(fetch_rates(), default=0.0))
    group.gauge("FailedPartitionsCount", failed_count)
    group.gauge("DeadThreadCount", dead_count)
