"""Metrics of the logs: `kafka.log:type=Log`, `LogManager` and `LogFlushStats`.

The gauges of a partition exist as long as its log, so they are computed when they are read.
A copy that is to replace a log in another directory has the tag `is-future`, as in Kafka.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from odradek.metrics import Meter, MetricName, MetricRegistry, Timer
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log

__all__ = ["damage_meter", "flush_timer", "register_log_gauges"]

_DOMAIN: Final = "kafka.log"
Tags: TypeAlias = tuple[tuple[str, str], ...]

# Kafka's name -> (description, function that reads it).
_OF_A_LOG: Final[dict[str, tuple[str, Callable[[Log], int]]]] = {
    "LogStartOffset": ("First offset of a partition.", lambda log: log.log_start_offset),
    "LogEndOffset": ("Next offset of a partition.", lambda log: log.log_end_offset),
    "NumLogSegments": ("Segments of a partition.", lambda log: len(log.segments)),
    "Size": ("Bytes of a partition's log files.", lambda log: log.size_in_bytes),
}


def flush_timer(registry: MetricRegistry) -> Timer:
    """The timer of flushes."""
    return registry.group(_DOMAIN, "LogFlushStats").timer(
        "LogFlushRateAndTimeMs", "Time to make a log durable, in milliseconds."
    )


def damage_meter(registry: MetricRegistry) -> Meter:
    """The meter of damaged places in log files."""
    return registry.group(_DOMAIN, "LogManager").meter(
        "DamagedExtentsPerSec", "Places in log files whose bytes are no sound batch, once each."
    )


def register_log_gauges(logs: LogManager, registry: MetricRegistry) -> None:
    """Registers the gauges of all logs and of the data directories, once these are known."""
    for name, (doc, read) in _OF_A_LOG.items():
        registry.collect(MetricName(_DOMAIN, "Log", name), partial(_read_all, logs, read), doc)
    manager = registry.group(_DOMAIN, "LogManager")
    manager.gauge(
        "OfflineLogDirectoryCount",
        lambda: len(logs.directories) - len(logs.online_directories),
        "Data directories that failed.",
    )
    for directory in logs.directories:
        manager.gauge(
            "LogDirectoryOffline",
            partial(_is_offline, directory),
            "Whether a data directory failed: 1 if it did.",
            logDirectory=directory.path,
        )


def _is_offline(directory: LogDirectory) -> int:
    return int(not directory.is_online)


def _read_all(logs: LogManager, read: Callable[[Log], int]) -> Iterator[tuple[Tags, float]]:
    for log in logs.all_logs():
        topic_partition = log.topic_partition
        tags: Tags = (
            ("topic", topic_partition.topic),
            ("partition", str(topic_partition.partition)),
        )
        if logs.get_future_log(topic_partition) is log:
            tags += (("is-future", "true"),)
        if log.is_usable:  # It may have been closed since the list was made.
            yield tags, read(log)
