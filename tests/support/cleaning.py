"""A compacted log with its cleaner, which a test runs by hand.

with CleaningFixture(tmp_path) as fixture:
    fixture.open()
    fixture.produce((b"a", b"1"), (b"a", b"2"))
    fixture.roll()
    fixture.clean()
    assert fixture.records() == [(1, b"a", b"2")]
"""

import os
from dataclasses import replace
from typing import Any

from odradek.files import Disk
from odradek.records.builder import build_batch
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import InlineTasks
from odradek.testing import ManualClock
from tests.support.log_scenarios import append_leader, records_of
from tests.support.logs import LogFixture, read_all

__all__ = ["COMPACTED", "CleaningFixture", "KeyValue"]

KeyValue = tuple[bytes | None, bytes | None]

# Due as soon as anything is dirty; horizons are a second away.
COMPACTED = LogConfig(
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
    file_delete_delay_ms=500,
    segment_index_bytes=4_800,
    index_interval_bytes=300,
)


class CleaningFixture(LogFixture):
    """A `LogFixture` whose log has a cleaner and a checkpoint of it, as the manager gives it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
        config: LogConfig = COMPACTED,
        cleaner_config: CleanerConfig | None = None,
        tasks: InlineTasks | None = None,
    ) -> None:
        super().__init__(path, disk=disk, clock=clock, config=config)
        self.cleaner_config = cleaner_config or CleanerConfig(dedupe_buffer_bytes=24 * 1000)
        # Where passes run; None: at once.
        self.cleaner_tasks = tasks
        self.cleaner = self._new_cleaner()

    def _new_cleaner(self) -> LogCleaner:
        return LogCleaner(
            services=self.services,
            config=self.cleaner_config,
            logs=lambda: [] if self.log is None else [self.log],
            tasks=self.cleaner_tasks,
        )

    def open(self, **arguments: Any) -> Log:
        log = super().open(**arguments)
        self.cleaner = self._new_cleaner()
        self.cleaner.first_dirty.load(self.log_directory, [log])
        log.before_truncation = self.cleaner.before_truncation
        log.before_removal = self.cleaner.before_removal
        return log

    @property
    def opened(self) -> Log:
        assert self.log is not None
        return self.log

    def produce(self, *records: KeyValue, **fields: Any) -> None:
        """Appends one batch, replicated at once; times are now."""
        now = self.clock.now_ms()
        built = build_batch([(now, key, value, ()) for key, value in records], **fields)
        append_leader(self.opened, built)
        self.commit()

    def commit(self) -> None:
        """Moves the high watermark to the end."""
        self.opened.update_high_watermark(self.opened.log_end_offset)

    def roll(self) -> None:
        """Makes what was produced so far cleanable."""
        self.opened.roll()
        self.commit()

    def clean(self) -> None:
        """Compacts until nothing is due."""
        self.cleaner.run()

    def records(self, log: Log | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every record, as a consumer reads them."""
        log = log or self.opened
        return [
            (record.offset, record.key, record.value)
            for record in records_of(read_all(log))
            if record.offset >= log.log_start_offset
        ]

    def configure(self, **changes: Any) -> None:
        """Changes the topic's settings."""
        self.config = self.opened.config = replace(self.opened.config, **changes)
