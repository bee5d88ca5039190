"""Metrics of compaction: `kafka.log:type=LogCleaner` and `LogCleanerManager`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.clock import Clock
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition
from odradek.storage.cleaning.plan import Cleanable
from odradek.storage.cleaning.work import PassStats
from odradek.storage.directories.log_directory import LogDirectory

if TYPE_CHECKING:
    from odradek.storage.cleaning.cleaner import LogCleaner

__all__ = ["CleanerStats", "register_cleaner_gauges"]


class CleanerStats:
    """Figures of the last search for work and of the last pass."""

    __slots__ = (
        "_clock",
        "_last_look_ms",
        "last_pass",
        "last_pass_ms",
        "max_compaction_delay_ms",
        "max_dirty_ratio",
        "passes",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_look_ms = clock.monotonic_ms()
        self.max_dirty_ratio = 0.0
        self.max_compaction_delay_ms = 0
        self.passes = 0  # Since the start.
        self.last_pass = PassStats()
        self.last_pass_ms = 0

    def looked(self, found: Iterable[Cleanable]) -> None:
        """Records a search for work in the logs."""
        found = list(found)
        self._last_look_ms = self._clock.monotonic_ms()
        self.max_dirty_ratio = max((c.dirty_ratio for c in found), default=0.0)
        self.max_compaction_delay_ms = max((c.compaction_delay_ms for c in found), default=0)

    def passed(self, stats: PassStats, took_ms: int) -> None:
        """Records a successful pass."""
        self.passes += 1
        self.last_pass = stats
        self.last_pass_ms = took_ms

    @property
    def since_last_look_ms(self) -> int:
        return self._clock.monotonic_ms() - self._last_look_ms

    @property
    def recopy_ratio(self) -> float:
        """Bytes written per byte read by the last pass."""
        read = self.last_pass.bytes_read
        return self.last_pass.bytes_written / read if read else 0.0


def register_cleaner_gauges(
    cleaner: "LogCleaner", directories: Iterable[LogDirectory], registry: MetricRegistry
) -> None:
    """Registers the gauges, under Kafka's names; percentages are whole numbers, as there."""
    stats = cleaner.stats
    group = registry.group("kafka.log", "LogCleaner")
    group.gauge("cleaner-recopy-percent", lambda: int(100 * stats.recopy_ratio))
    group.gauge(
        "max-buffer-utilization-percent", lambda: int(100 * stats.last_pass.buffer_utilization)
    )
    group.gauge("max-clean-time-secs", lambda: stats.last_pass_ms // 1000)
    group.gauge("max-compaction-delay-secs", lambda: stats.max_compaction_delay_ms // 1000)
    # The failure of a pass does not end its thread.
    group.gauge("DeadThreadCount", lambda: 0)
    group = registry.group("kafka.log", "LogCleanerManager")
    group.gauge("max-dirty-percent", lambda: int(100 * stats.max_dirty_ratio))
    group.gauge("time-since-last-run-ms", lambda: stats.since_last_look_ms)
    for directory in directories:
        group = registry.group("kafka.log", "LogCleanerManager", logDirectory=directory.path)
        group.gauge("uncleanable-partitions-count", _counting(cleaner, directory))
        group.gauge("uncleanable-bytes", _summing(cleaner, directory))


def _in(cleaner: "LogCleaner", directory: LogDirectory) -> list[Cleanable]:
    def is_uncleanable(topic_partition: TopicPartition) -> bool:
        return topic_partition in cleaner.uncleanable

    return [c for c in cleaner.find(is_uncleanable) if c.log.log_directory is directory]


def _counting(cleaner: "LogCleaner", directory: LogDirectory) -> Callable[[], float]:
    return lambda: len(_in(cleaner, directory))


def _summing(cleaner: "LogCleaner", directory: LogDirectory) -> Callable[[], float]:
    return lambda: sum(c.cleanable_bytes for c in _in(cleaner, directory))
