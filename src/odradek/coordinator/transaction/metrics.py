"""Metrics of transactions, under Kafka's names."""

from collections.abc import Callable

from odradek.metrics import MetricRegistry

__all__ = ["TransactionMetrics", "register_gauges"]


def register_gauges(
    metrics: MetricRegistry,
    *,
    waiting: Callable[[], int],
    unfinished: Callable[[], int],
) -> None:
    """Registers the lengths of the queues of markers.

    Args:
        metrics: The registry of metrics.
        waiting: Partitions that have no leader, or whose leader has refused their marker.
        unfinished: Transactions whose end waits to be stored.
    """
    gauges = metrics.group("kafka.coordinator.transaction", "TransactionMarkerChannelManager")
    gauges.gauge("UnknownDestinationQueueSize", waiting)
    gauges.gauge("LogAppendRetryQueueSize", unfinished)


class TransactionMetrics:
    """The meters that are counted as events happen; `odradek.coordinator.loading.LoadStats`."""

    def __init__(self, metrics: MetricRegistry) -> None:
        counters = metrics.group("kafka.server", "transaction-coordinator-metrics")
        self.timeouts = counters.meter(
            "transaction-timeout", "Transactions aborted because their time was over."
        )
        self.expirations = counters.meter(
            "transactional-id-expiration", "Transactional ids removed for their age."
        )
        self._failed_loads = counters.meter(
            "partition-load-failed", "Loads of partitions of `__transaction_state` that failed."
        )
        self._skipped = counters.meter(
            "partition-load-skipped",
            "Records or batches of `__transaction_state` that could not be read.",
        )
        self._load_time = counters.timer(
            "partition-load-time", "Time to load a partition of `__transaction_state`."
        )

    def on_loaded(self, partition: int, elapsed_ms: int) -> None:  # noqa: ARG002 - of all together
        self._load_time.update(elapsed_ms)

    def on_load_failed(self, partition: int) -> None:  # noqa: ARG002 - as above
        self._failed_loads.mark()

    def on_skipped(self, partition: int, count: int) -> None:  # noqa: ARG002 - as above
        self._skipped.mark(count)
