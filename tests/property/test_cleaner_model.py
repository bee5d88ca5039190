"""Compaction against a dictionary: random keys, tombstones, transactions, passes and crashes.

The model is the list of records that were appended, each with its offset, key and value, and the
outcome of its transaction. Passes and flushes run piece by piece, and anything may come between: a
reader, an append, a roll, time, the end of the process or of the machine. Whatever was done, and at
whatever operation of a pass the machine stopped:

* of each key the last committed value is there, also if a crash took what was appended after it;
* a tombstone is there until `delete.retention.ms` after the pass that met it first, and gone after
  the first pass that begins later; with or without it, no older value of its key is in the clean
  part;
* what is there was appended at that offset, with that value: order and offsets are kept;
* a record that a reader has missed once never comes back;
* from the first dirty offset on nothing is missing;
* no aborted record is seen by a read_committed consumer, and no committed one is taken for aborted;
* the log ends where it ended, or after a crash not before what was synced, and the producer's next
  sequence is accepted.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from odradek.records.compression import Codec
from odradek.records.record import Record
from odradek.storage.cleaning.config import CleanerConfig
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import (
    DeferredTasks,
    abort,
    append_leader,
    commit,
    pass_time,
    records_of,
    transactional,
    visible,
)
from tests.support.logs import headers, make_services, read_all

# A segment holds little more than one batch, so that most passes have several groups.
CONFIG = replace(COMPACTED, segment_bytes=700, segment_index_bytes=240)
# So few that some passes end before the dirty part does; more than any batch has.
CLEANER = CleanerConfig(dedupe_buffer_bytes=24 * 6, load_factor=0.9, io_buffer_bytes=300)
PRODUCER = 4000
HORIZON_MS = CONFIG.delete_retention_ms

KEYS = st.sampled_from([b"%d" % n for n in range(7)])
VALUES = st.one_of(st.none(), st.binary(max_size=120))
LAST_KEY = b"z"  # Of a record that nothing else replaces.

Mode = Literal["drop", "torn", "keep"]
MODES: list[Mode] = ["drop", "torn", "keep"]


class Append(NamedTuple):
    """A batch of records with one key each."""

    records: Sequence[tuple[bytes, bytes | None]]
    codec: Codec


class Transaction(NamedTuple):
    """As many batches of one record, then a marker."""

    keys: Sequence[bytes]
    is_committed: bool


class Flush(NamedTuple):
    """What rolls have left to be synced is synced."""


class Run(NamedTuple):
    """The cleaner looks for work, as many pieces of it run, and then the machine may stop."""

    pieces: int
    crash: Mode | None


class Clean(NamedTuple):
    """Passes until nothing is due; the machine stops at that operation, if there are as many."""

    crash_at: int | None
    mode: Mode


class Wait(NamedTuple):
    """Time goes by."""

    ms: int


class Restart(NamedTuple):
    """The process stops."""

    is_clean: bool


class Roll(NamedTuple):
    """The active segment ends."""


APPENDS = st.builds(
    Append,
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
)
STEPS = st.one_of(
    APPENDS,
    APPENDS,
    st.just(Roll()),
    st.builds(Transaction, st.lists(KEYS, min_size=1, max_size=3), st.booleans()),
    st.builds(Clean, st.one_of(st.none(), st.integers(0, 60)), st.sampled_from(MODES)),
    st.builds(Run, st.integers(1, 9), st.none()),
    st.builds(Run, st.integers(1, 9), st.sampled_from(MODES)),
    st.builds(Wait, st.sampled_from([1, HORIZON_MS])),
    st.builds(Restart, st.booleans()),
    st.just(Flush()),
)


class Appended(NamedTuple):
    """One record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    # Of the marker that decided its transaction; None for a plain record.
    marker_offset: int | None = None
    is_aborted: bool = False


class Machine:
    """A log and what is known of it."""

    def __init__(self, path: Path) -> None:
        self.disk = SimDisk(path)
        self.random = Random(1)
        self.fixture = CleaningFixture(path, disk=self.disk, config=CONFIG, cleaner_config=CLEANER)
        self.model: list[Appended] = []
        # Offsets that a reader has missed.
        self.gone: set[int] = set()
        # When a tombstone may go, by its offset; known once a pass has met it.
        self.horizons: dict[int, int] = {}
        # When the pass under way, or the last one, began, and the one before it.
        self.began_ms = self.began_before_ms = -1
        # Tombstones with horizons up to then are gone, if they lie below the first dirty offset.
        self.swept_ms = -1
        self.open(is_clean=False, recovery_point=0)

    @property
    def sequence(self) -> int:
        """The next one of the producer: its batches have one record."""
        return sum(record.marker_offset is not None for record in self.model)

    # Steps

    def do(self, step: object) -> None:
        log = self.fixture.opened
        match step:
            case Append(records, codec):
                first = log.log_end_offset
                self.fixture.produce(*records, codec=codec)
                for index, (key, value) in enumerate(records):
                    self.model.append(Appended(first + index, key, value))
            case Transaction(keys, is_committed):
                self.transact(keys, is_committed)
            case Flush():
                self.flushes.run()
            case Run(pieces, mode):
                self.begin()
                for _ in range(pieces):
                    self.run_one()
                if mode is not None:
                    self.crash(mode)
            case Clean(crash_at, mode):
                self.clean(crash_at, mode)
            case Wait(ms):
                pass_time(self.fixture, ms)
                self.note_passes(self.passes_ended)
            case Restart(is_clean):
                self.restart(is_clean)
            case Roll():
                if log.active.size:
                    self.fixture.roll()

    def transact(self, keys: Sequence[bytes], is_committed: bool) -> None:
        log = self.fixture.opened
        marker_offset = log.log_end_offset + len(keys)
        for key in keys:
            offset = log.log_end_offset
            append_leader(log, transactional(self.sequence, key=key, value=b"t"))
            self.model.append(Appended(offset, key, b"t", marker_offset, not is_committed))
        assert log.log_end_offset == marker_offset
        (commit if is_committed else abort)(log, PRODUCER)
        self.fixture.commit()

    def begin(self) -> None:
        """Begins a pass, if none is under way and one is due."""
        self.fixture.cleaner.run()
        self.note_passes(self.passes_ended)

    def run_one(self) -> None:
        """Runs one piece of a pass, if there is one; then a reader comes by."""
        passes_ended = self.passes_ended
        self.passes.run(1)
        assert not self.fixture.cleaner.uncleanable
        self.note_passes(passes_ended)
        self.check()

    @property
    def passes_ended(self) -> int:
        return self.fixture.cleaner.stats.passes

    def note_passes(self, ended_before: int) -> None:
        """Notes when passes begin and end; one ends and the next one begins in one go."""
        has_ended = self.passes_ended > ended_before
        if has_ended:
            self.swept_ms = self.began_ms
            self.is_cleaning = False
        if not self.is_cleaning and not self.fixture.cleaner.is_idle:
            self.is_cleaning = True
            self.began_before_ms, self.began_ms = self.began_ms, self.fixture.clock.now_ms()

    def clean(self, crash_at: int | None, mode: Mode) -> None:
        if crash_at is not None:
            self.disk.crash_at(crash_at)
        try:
            self.begin()
            while not self.fixture.cleaner.is_idle:
                self.run_one()
        except SimulatedCrash:
            note(f"stopped at operation {crash_at}")
        if crash_at is not None:
            self.disk.heal()
            self.crash(mode)

    def crash(self, mode: Mode) -> None:
        """The machine stops, and starts on what the disk has kept."""
        end = self.fixture.opened.log_end_offset
        recovery_point = self.fixture.abandon()
        self.disk.crash(self.random, mode=mode)
        self.open(is_clean=False, recovery_point=recovery_point)
        log = self.fixture.opened
        assert recovery_point <= log.log_end_offset <= end
        self.lose_from(log.log_end_offset)
        if log.last_stable_offset < log.log_end_offset:
            abort(log, PRODUCER)  # As the coordinator would: the marker is lost.
            self.fixture.commit()

    def lose_from(self, end: int) -> None:
        """What was not synced is not there, and a transaction without its marker did not happen."""
        assert all(offset < end for offset in self.gone), "lost, after it had replaced others"
        self.model = [
            record
            if record.marker_offset is None or record.marker_offset < end
            else record._replace(marker_offset=end, is_aborted=True)
            for record in self.model
            if record.offset < end
        ]

    def restart(self, is_clean: bool) -> None:
        end = self.fixture.opened.log_end_offset
        recovery_point = self.fixture.close() if is_clean else self.fixture.abandon()
        self.disk.kill()
        self.open(is_clean=is_clean, recovery_point=recovery_point)
        assert self.fixture.opened.log_end_offset == end

    def open(self, *, is_clean: bool, recovery_point: int) -> None:
        """As a new process, to which the old one's tasks and timers mean nothing."""
        fixture = self.fixture
        self.flushes, self.passes = DeferredTasks(fixture.clock), DeferredTasks(fixture.clock)
        fixture.services = replace(make_services(self.disk, fixture.clock), tasks=self.flushes)
        fixture.cleaner_tasks = self.passes
        fixture.open(clean=is_clean, recovery_point=recovery_point)
        fixture.commit()
        self.is_cleaning = False

    # Checks

    def check(self) -> None:
        log = self.fixture.opened
        data = read_all(log)
        found = {record.offset: record for record in records_of(data) if self.is_data(record)}
        known = {record.offset: record for record in self.model}
        for offset, record in found.items():
            if offset in known:
                assert (record.key, record.value) == (known[offset].key, known[offset].value)
        assert not self.gone & found.keys(), "it was gone before"
        self.gone |= known.keys() - found.keys()
        self.check_last_values(found)
        self.check_tombstones(found, data)
        seen = set(visible(log))
        for appended in self.model:
            if appended.is_aborted:
                assert appended.offset not in seen
            elif appended.offset in found:
                assert appended.offset in seen

    def is_data(self, record: Record) -> bool:
        return record.key is not None and len(record.key) == 1

    def last_records(self, end: int | None = None) -> dict[bytes, Appended]:
        """The last committed record of each key, of those below `end`."""
        return {
            record.key: record
            for record in self.model
            if not record.is_aborted and (end is None or record.offset < end)
        }

    def check_last_values(self, found: dict[int, Record]) -> None:
        log = self.fixture.opened
        first_dirty = self.fixture.cleaner.first_dirty.get(log) or 0
        for record in self.model:
            if record.offset >= max(first_dirty, log.active.base_offset):
                assert record.offset in found, "what is not clean is all there"
        for record in self.last_records().values():
            if record.value is not None:
                assert record.offset in found, f"the last value of {record.key!r} is lost"
        # Of the clean part, nothing is left but the last of each key, as far as passes knew.
        last_clean = self.last_records(first_dirty)
        for record in self.model:
            if record.offset < first_dirty and record.offset in found and not record.is_aborted:
                assert record == last_clean[record.key], "an older value outlived a newer one"

    def check_tombstones(self, found: dict[int, Record], data: bytes) -> None:
        now_ms = self.fixture.clock.now_ms()
        first_dirty = self.fixture.cleaner.first_dirty.get(self.fixture.opened) or 0
        in_batches = {
            offset: header.delete_horizon_ms
            for header in headers(data)
            for offset in range(header.base_offset, header.next_offset)
        }
        for record in self.last_records().values():
            if record.value is not None:
                continue
            offset = record.offset
            if offset in found and (horizon_ms := in_batches[offset]) is not None:
                if offset not in self.horizons:
                    began_ms = horizon_ms - HORIZON_MS
                    assert began_ms in (self.began_before_ms, self.began_ms)
                    self.horizons[offset] = horizon_ms
                assert horizon_ms == self.horizons[offset], "it never moves"
            if offset not in found:
                assert self.horizons[offset] <= now_ms, "a reader may not have seen it yet"
            elif offset < first_dirty and offset in self.horizons:
                assert self.horizons[offset] > self.swept_ms, "a pass ought to have removed it"

    def check_end(self) -> None:
        """In the end everything is clean, and time has passed: values are there, nothing else."""
        self.do(Roll())
        self.clean(None, "keep")
        self.do(Wait(HORIZON_MS))
        self.do(Append([(LAST_KEY, b"last")], Codec.NONE))
        self.do(Roll())
        self.clean(None, "keep")
        last = self.last_records().values()
        assert {offset for offset, key, _ in self.fixture.records() if key and len(key) == 1} == {
            record.offset for record in last if record.value is not None
        }

    def check_producer(self) -> None:
        """The next sequence follows, and the last one is a duplicate or out of order."""
        if self.sequence:
            append_leader(self.fixture.opened, transactional(self.sequence))
            commit(self.fixture.opened, PRODUCER)


@settings(
    max_examples=80,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # A step is a crash: shrinking takes minutes.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(STEPS, min_size=25, max_size=50))
def test_a_compacted_log_is_a_dictionary(steps: list[object]) -> None:
    """10:CO-2, 10:CO-3, 10:CO-4, 10:CO-7 and the rest of 10 §11.5."""
    with tempfile.TemporaryDirectory() as path:
        machine = Machine(Path(path))
        with machine.fixture:
            for step in steps:
                machine.do(step)
                machine.check()
            machine.check_end()
            machine.check()
            machine.restart(is_clean=False)
            machine.check()
            machine.check_producer()
        machine.disk.kill()
