"""Settings of the cleaner that are changed while it runs: each of them takes effect."""

from dataclasses import replace
from pathlib import Path

from odradek.files import Disk
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.cleaning.config import CleanerConfig
from tests.support.cleaning import CleaningFixture
from tests.support.log_scenarios import DeferredTasks, pass_time


class WatchedDisk(Disk):
    """Notes how much is read at once."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def pread(self, fd: int, count: int, position: int) -> bytes:
        data = super().pread(fd, count, position)
        self.reads.append(len(data))
        return data


def produce_twice(fixture: CleaningFixture, keys: int) -> None:
    for number in range(2 * keys):
        fixture.produce((b"%d" % (number % keys), b"%d" % number))
    fixture.roll()


def test_the_backoff_counts_from_its_change_on(tmp_path: Path) -> None:
    """log.cleaner.backoff.ms."""
    config = CleanerConfig(backoff_ms=86_400_000, dedupe_buffer_bytes=24_000)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        fixture.open()
        cleaner = fixture.cleaner
        cleaner.config = replace(config, backoff_ms=5)
        pass_time(fixture, 10)
        assert cleaner.stats.passes == 0, "it was not started yet"
        cleaner.config = config
        cleaner.start()
        produce_twice(fixture, 5)
        pass_time(fixture, 1_000_000)
        assert cleaner.stats.passes == 0
        cleaner.config = replace(config, backoff_ms=100)
        pass_time(fixture, 99)
        assert cleaner.stats.passes == 0
        pass_time(fixture, 1)
        assert cleaner.stats.passes == 1
        # The timer of before wakes nobody: the next look is a backoff after the last one.
        cleaner.config = replace(config, backoff_ms=100_000_000)
        produce_twice(fixture, 5)
        pass_time(fixture, 99_999_999)
        assert cleaner.stats.passes == 1
        pass_time(fixture, 1)
        assert cleaner.stats.passes == 2


def test_more_threads_clean_more_logs_at_once(tmp_path: Path) -> None:
    """log.cleaner.threads."""
    config = CleanerConfig(threads=1, dedupe_buffer_bytes=48_000)
    with (
        CleaningFixture(tmp_path / "a") as first,
        CleaningFixture(tmp_path / "b") as second,
    ):
        logs = [first.open(), second.open()]
        logs[1].topic_partition = logs[1].topic_partition._replace(partition=1)
        for fixture in (first, second):
            produce_twice(fixture, 3)
        tasks = DeferredTasks(first.clock)
        cleaner = LogCleaner(services=first.services, config=config, logs=lambda: logs, tasks=tasks)
        cleaner.run()
        assert len(cleaner._running) == 1
        cleaner.run()
        assert len(cleaner._running) == 1
        cleaner.config = replace(config, threads=2)
        cleaner.run()
        assert len(cleaner._running) == 2
        tasks.run()
        assert cleaner.is_idle
        assert cleaner.stats.passes == 2


def test_more_room_for_keys_makes_fewer_passes(tmp_path: Path) -> None:
    """log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor."""
    config = CleanerConfig(dedupe_buffer_bytes=24 * 10, load_factor=0.5)
    assert config.most_keys == 5
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        fixture.open()
        cleaner = fixture.cleaner

        def passes_for_twenty_keys() -> int:
            before = cleaner.stats.passes
            produce_twice(fixture, 20)
            fixture.clean()
            return cleaner.stats.passes - before

        few = passes_for_twenty_keys()
        cleaner.config = replace(config, load_factor=1)
        some = passes_for_twenty_keys()
        cleaner.config = replace(config, dedupe_buffer_bytes=24 * 100)
        assert few > some > passes_for_twenty_keys() == 1


def test_a_batch_that_did_not_fit_is_cleaned_when_there_is_room(tmp_path: Path) -> None:
    """What the reason of an uncleanable partition advises works without a restart."""
    config = CleanerConfig(dedupe_buffer_bytes=24 * 4)
    with CleaningFixture(tmp_path, cleaner_config=config) as fixture:
        log = fixture.open()
        cleaner = fixture.cleaner
        for _ in range(2):
            fixture.produce(*[(b"%d" % number, b"v") for number in range(9)])
        fixture.roll()
        fixture.clean()
        assert log.topic_partition in cleaner.uncleanable
        cleaner.config = replace(config, backoff_ms=1)
        fixture.clean()
        assert log.topic_partition in cleaner.uncleanable, "there is no more room than before"
        cleaner.config = replace(config, dedupe_buffer_bytes=24 * 40)
        fixture.clean()
        assert not cleaner.uncleanable
        assert [offset for offset, _, _ in fixture.records()] == list(range(9, 18))


def test_the_buffer_bounds_what_is_read_at_once(tmp_path: Path) -> None:
    """log.cleaner.io.buffer.size."""
    disk = WatchedDisk()
    config = CleanerConfig(dedupe_buffer_bytes=24_000, io_buffer_bytes=400)
    with CleaningFixture(tmp_path, disk=disk, cleaner_config=config) as fixture:
        fixture.open()
        produce_twice(fixture, 20)
        disk.reads.clear()
        fixture.clean()
        assert 0 < max(disk.reads) <= 400
        fixture.cleaner.config = replace(config, io_buffer_bytes=800)
        produce_twice(fixture, 20)
        disk.reads.clear()
        fixture.clean()
        assert 400 < max(disk.reads) <= 800
