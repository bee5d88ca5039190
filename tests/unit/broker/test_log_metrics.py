"""What operators watch of the logs, under Kafka's names."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from odradek.broker.log_metrics import flush_timer, register_log_gauges
from odradek.metrics import MetricRegistry, render_prometheus
from odradek.model import TopicPartition
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.config import LogConfig
from odradek.testing import ManualClock, SimDisk
from tests.support.logs import batch, make_services

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class SlowDisk(SimDisk):
    """Takes 20 ms to sync a file."""

    clock: ManualClock

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.clock.advance(20)


@pytest.fixture
def registry() -> MetricRegistry:
    return MetricRegistry(ManualClock(), Random(1))


@pytest.fixture
def logs(tmp_path: Path, registry: MetricRegistry) -> Iterator[LogManager]:
    clock, disk = ManualClock(), SlowDisk(tmp_path)
    disk.clock = clock
    services = replace(make_services(disk, clock), on_flushed=flush_timer(registry).update)
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    manager = LogManager(
        directories, services=services, default_log_config=LogConfig(segment_bytes=300)
    )
    manager.startup()
    register_log_gauges(manager, registry)
    yield manager
    manager.shutdown()


def samples(registry: MetricRegistry, family: str) -> dict[str, float]:
    """What stands behind the name of a family -> value."""
    page = render_prometheus(registry)
    assert f"# TYPE {family} " in page
    lines = (line for line in page.splitlines() if line.startswith(family))
    pairs = (line.removeprefix(family).rsplit(" ", 1) for line in lines)
    return {labels: float(value) for labels, value in pairs}


def test_each_partition_has_its_figures(logs: LogManager, registry: MetricRegistry) -> None:
    """01: LogMetricNames."""
    log = logs.get_or_create_log(T0)
    logs.get_or_create_log(T1)
    for _ in range(6):
        log.append_as_leader(batch(size=100), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(2)

    first, second = '{topic="t",partition="0"}', '{topic="t",partition="1"}'
    assert samples(registry, "kafka_log_log_logstartoffset") == {first: 2, second: 0}
    assert samples(registry, "kafka_log_log_logendoffset") == {first: 6, second: 0}
    assert samples(registry, "kafka_log_log_numlogsegments") == {first: 2, second: 1}
    assert samples(registry, "kafka_log_log_size") == {first: 600, second: 0}

    logs.delete_log(T0)

    assert list(samples(registry, "kafka_log_log_size")) == [second]


def test_how_long_flushes_take(logs: LogManager, registry: MetricRegistry) -> None:
    """01: LogFlushStats. Syncs the log file and its indexes, at once and in the background."""
    log = logs.get_or_create_log(T0)
    timer = flush_timer(registry)
    log.append_as_leader(batch(size=100), leader_epoch=0)
    log.flush()
    at_once = timer.durations.snapshot()
    log.flush()  # There is nothing to do.
    log.append_as_leader(batch(size=100), leader_epoch=0)
    log.schedule_flush(log.log_end_offset)

    assert timer.events.count == 2
    assert at_once.total >= 20
    assert timer.durations.snapshot().total == 2 * at_once.total
    page = samples(registry, "kafka_log_logflushstats_logflushrateandtimems")
    assert page["_count"] == 2


def test_directories_that_fail(logs: LogManager, registry: MetricRegistry) -> None:
    one, other = logs.directories

    assert samples(registry, "kafka_log_logmanager_offlinelogdirectorycount") == {"": 0}
    one.fail("a test", OSError(5, "Input/output error"))
    assert samples(registry, "kafka_log_logmanager_offlinelogdirectorycount") == {"": 1}
    assert samples(registry, "kafka_log_logmanager_logdirectoryoffline") == {
        f'{{logDirectory="{one.path}"}}': 1,
        f'{{logDirectory="{other.path}"}}': 0,
    }
