"""Group metrics, under Kafka's names.

Kafka's brokers have no metric of lag. This one has the name and the labels that common exporters
for Kafka use, so that their dashboards show it: `kafka_consumergroup_lag`. It is known for the
partitions that this broker leads, of the groups that it coordinates, and ends with the offset, the
group, or either leadership: nothing is kept between two readings.
"""

from collections.abc import Callable

from odradek.coordinator.group.decisions import WriteKind
from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.registry import GroupRegistry
from odradek.errors import ErrorCode
from odradek.metrics import MetricName, MetricRegistry
from odradek.metrics.registry import Collected

__all__ = ["GroupMetrics", "register_gauges"]

_STATE_GAUGES = {
    "NumGroupsPreparingRebalance": GroupState.PREPARING_REBALANCE,
    "NumGroupsCompletingRebalance": GroupState.COMPLETING_REBALANCE,
    "NumGroupsStable": GroupState.STABLE,
    "NumGroupsDead": GroupState.DEAD,
    "NumGroupsEmpty": GroupState.EMPTY,
}


def register_gauges(
    metrics: MetricRegistry,
    registry: GroupRegistry,
    high_watermark: Callable[[str, int], int | None],
) -> None:
    """Registers the gauges that are computed from all groups when they are read.

    Args:
        metrics: The registry of metrics.
        registry: The groups.
        high_watermark: Of a partition (topic, number) that this broker leads; None of others.
    """
    gauges = metrics.group("kafka.coordinator.group", "GroupMetadataManager")
    gauges.gauge("NumGroups", lambda: len(registry))
    gauges.gauge("NumOffsets", lambda: sum(len(offsets.slots) for offsets in registry.offsets))
    for name, state in _STATE_GAUGES.items():
        gauges.gauge(name, _counter(registry, state))
    metrics.collect(
        MetricName("kafka", "consumergroup", "lag"),
        lambda: _read_lags(registry, high_watermark),
        "Records of a partition behind the offset that a group has committed.",
    )


class GroupMetrics:
    """The meters that are counted as events happen."""

    def __init__(self, metrics: MetricRegistry) -> None:
        counters = metrics.group("kafka.server", "group-coordinator-metrics")
        self.commits = counters.meter("offset-commit", "Offsets that were committed.")
        self.expirations = counters.meter("offset-expiration", "Offsets removed for their age.")
        self.deletions = counters.meter("offset-deletion", "Offsets deleted by administrators.")
        self.rebalances = counters.meter(
            "group-completed-rebalance", "Generations whose assignment was stored."
        )
        self._failed_loads = counters.meter(
            "partition-load-failed", "Loads of offsets partitions that failed."
        )
        self._skipped = counters.meter(
            "partition-load-skipped",
            "Records or batches of offsets partitions that could not be read.",
        )
        self._load_time = counters.timer(
            "partition-load-time", "Time to load an offsets partition."
        )

    def note_write(self, kind: WriteKind, error: ErrorCode) -> None:
        """Counts the write of a group's state by its outcome."""
        if kind is WriteKind.ASSIGNMENT and error is ErrorCode.NONE:
            self.rebalances.mark()

    def on_loaded(self, partition: int, elapsed_ms: int) -> None:  # noqa: ARG002 - of all together
        self._load_time.update(elapsed_ms)

    def on_load_failed(self, partition: int) -> None:  # noqa: ARG002 - as above
        self._failed_loads.mark()

    def on_skipped(self, partition: int, count: int) -> None:  # noqa: ARG002 - as above
        self._skipped.mark(count)


def _counter(registry: GroupRegistry, state: GroupState) -> Callable[[], int]:
    return lambda: sum(group.state is state for group in registry.groups.values())


def _read_lags(
    registry: GroupRegistry, high_watermark: Callable[[str, int], int | None]
) -> Collected:
    for offsets in registry.offsets:
        # A copy: commits and removals happen meanwhile.
        for (topic, partition), slot in tuple(offsets.slots.items()):
            if slot.committed is None:
                continue
            end = high_watermark(topic, partition)
            if end is not None:
                tags = (
                    ("consumergroup", offsets.group_id),
                    ("topic", topic),
                    ("partition", str(partition)),
                )
                # A position beyond the end, in a partition that was truncated, has no lag.
                yield tags, max(end - slot.committed.offset, 0)
