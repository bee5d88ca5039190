"""Compaction against a dictionary: random keys, tombstones, transactions, passes and crashes.

The model is the list of records that were appended, each with its offset, key and value, and the
outcome of its transaction. Whatever was done, and at whatever operation of a pass the machine
stopped:

* of each key the last committed value below the clean part is there, or its tombstone, or, once the
  tombstone's horizon is past, nothing;
* what is there was appended at that offset, with that value: order and offsets are kept;
* a record that was gone once never comes back;
* from the first dirty offset on nothing is missing;
* no aborted record is seen by a read_committed consumer, and no committed one is taken for aborted;
* the log ends where it ended, and the producer's next sequence is accepted.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from odradek.records.compression import Codec
from odradek.records.record import Record
from odradek.storage.cleaner_config import CleanerConfig
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import (
    abort,
    append_leader,
    commit,
    pass_time,
    records_of,
    transactional,
    visible,
)
from tests.support.logs import headers, make_services, read_all

CONFIG = replace(COMPACTED, segment_bytes=1_500, segment_index_bytes=240)
# So few that some passes end before the dirty part does; more than any batch has.
CLEANER = CleanerConfig(dedupe_buffer_bytes=24 * 9, load_factor=0.9, io_buffer_bytes=300)
PRODUCER = 4000
HORIZON_MS = CONFIG.delete_retention_ms

KEYS = st.sampled_from([b"%d" % n for n in range(7)])
VALUES = st.one_of(st.none(), st.binary(max_size=120))


class Append(NamedTuple):
    """A batch of records with one key each."""

    records: Sequence[tuple[bytes, bytes | None]]
    codec: Codec


class Transaction(NamedTuple):
    """As many batches of one record, then a marker."""

    keys: Sequence[bytes]
    is_committed: bool


class Clean(NamedTuple):
    """Passes until nothing is due; the machine stops at that operation, if there are as many."""

    crash_at: int | None
    mode: str


class Wait(NamedTuple):
    """Time goes by."""

    ms: int


class Restart(NamedTuple):
    """The process stops."""

    is_clean: bool


class Roll(NamedTuple):
    """The active segment ends."""


STEPS = st.one_of(
    st.builds(
        Append,
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
    ),
    st.builds(Transaction, st.lists(KEYS, min_size=1, max_size=3), st.booleans()),
    st.builds(
        Clean,
        st.one_of(st.none(), st.integers(0, 60)),
        st.sampled_from(["drop", "torn", "keep"]),
    ),
    st.builds(Wait, st.sampled_from([1, HORIZON_MS])),
    st.builds(Restart, st.booleans()),
    st.just(Roll()),
)


class Appended(NamedTuple):
    """One record of the model."""

    offset: int
    key: bytes
    value: bytes | None
    is_aborted: bool


class Machine:
    """A log and what is known of it."""

    def __init__(self, path: Path) -> None:
        self.disk = SimDisk(path)
        self.random = Random(1)
        self.fixture = CleaningFixture(path, disk=self.disk, config=CONFIG, cleaner_config=CLEANER)
        self.fixture.open()
        self.model: list[Appended] = []
        self.sequence = 0
        # Offsets that were seen to be gone.
        self.gone: set[int] = set()

    # Steps

    def do(self, step: object) -> None:
        log = self.fixture.opened
        match step:
            case Append(records, codec):
                first = log.log_end_offset
                self.fixture.produce(*records, codec=codec)
                for index, (key, value) in enumerate(records):
                    self.model.append(Appended(first + index, key, value, False))
            case Transaction(keys, is_committed):
                for key in keys:
                    offset = log.log_end_offset
                    append_leader(log, transactional(self.sequence, key=key, value=b"t"))
                    self.sequence += 1
                    self.model.append(Appended(offset, key, b"t", not is_committed))
                (commit if is_committed else abort)(log, PRODUCER)
                self.fixture.commit()
            case Clean(crash_at, mode):
                self.clean(crash_at, mode)
            case Wait(ms):
                pass_time(self.fixture, ms)
            case Restart(is_clean):
                self.restart(is_clean)
            case Roll():
                if log.active.size:
                    self.fixture.roll()

    def clean(self, crash_at: int | None, mode: str) -> None:
        log = self.fixture.opened
        log.flush()
        end = log.log_end_offset
        if crash_at is None:
            self.fixture.clean()
            assert not self.fixture.cleaner.uncleanable
            return
        self.disk.crash_at(crash_at)
        try:
            self.fixture.clean()
            self.disk.heal()
        except SimulatedCrash:
            note(f"stopped at operation {crash_at}")
        recovery_point = self.fixture.abandon()
        self.disk.crash(self.random, mode=mode)  # type: ignore[arg-type]  # One of three words.
        self.open(is_clean=False, recovery_point=recovery_point)
        assert self.fixture.opened.log_end_offset == end

    def restart(self, is_clean: bool) -> None:
        recovery_point = self.fixture.close() if is_clean else self.fixture.abandon()
        self.disk.kill()
        self.open(is_clean=is_clean, recovery_point=recovery_point)

    def open(self, *, is_clean: bool, recovery_point: int) -> None:
        """As a new process, to which the old one's timers mean nothing."""
        self.fixture.services = make_services(self.disk, self.fixture.clock)
        self.fixture.open(clean=is_clean, recovery_point=recovery_point)
        self.fixture.commit()

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
        self.check_last_values(found, data)
        seen = set(visible(log))
        for appended in self.model:
            if appended.is_aborted:
                assert appended.offset not in seen
            elif appended.offset in found:
                assert appended.offset in seen

    def is_data(self, record: Record) -> bool:
        return record.key is not None and len(record.key) == 1

    def check_last_values(self, found: dict[int, Record], data: bytes) -> None:
        log = self.fixture.opened
        first_dirty = self.fixture.cleaner.first_dirty.get(log) or 0
        last: dict[bytes, Appended] = {}
        for record in self.model:
            if not record.is_aborted:
                last[record.key] = record
            if record.offset >= max(first_dirty, log.active.base_offset):
                assert record.offset in found, "what is not clean is all there"
        now = self.fixture.clock.now_ms()
        for record in last.values():
            if record.value is not None:
                assert record.offset in found, f"the last value of {record.key!r} is lost"
        horizons = {
            offset: header.delete_horizon_ms
            for header in headers(data)
            for offset in range(header.base_offset, header.next_offset)
        }
        for record in last.values():
            if record.value is None and record.offset not in found:
                assert (horizons.get(record.offset) or 0) <= now
        # Of the clean part, no key is left twice but by what the last pass could not know.
        clean = [r for r in self.model if r.offset < first_dirty and r.offset in found]
        keys = [r.key for r in clean if not r.is_aborted]
        assert len(keys) == len(set(keys))

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
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_a_compacted_log_is_a_dictionary(steps: list[object]) -> None:
    """10:CO-3, 10:CO-7 and the rest of 10 §11.5."""
    with tempfile.TemporaryDirectory() as path:
        machine = Machine(Path(path))
        with machine.fixture:
            for step in steps:
                machine.do(step)
                machine.check()
            machine.do(Roll())
            machine.clean(None, "keep")
            machine.check()
            machine.restart(is_clean=False)
            machine.check()
            machine.check_producer()
