"""A log against a plain list: appends, rolls, truncations, retention, kills and crashes at random.

The model is the list of batches that were acknowledged, beside what was made durable: the recovery
point and the log start as of their last checkpoint. After every step the invariants of 01:9.9 hold
and a reader of each isolation level gets what the list says. What a stop may take away:

| stop                     | what must be there afterwards                                     |
|--------------------------|-------------------------------------------------------------------|
| clean close              | everything                                                        |
| process kill             | everything whose append returned                                  |
| machine crash            | everything below the checkpointed recovery point; above it a      |
|                          | prefix of what was appended: no hole, no byte that was not there  |
| any of them in mid-call  | as above for the state before the call or any step on its way     |

Checkpoints and the clean-stop marker go through the same forgetful disk as the log. Background
flushes run at once, or late, or never (`LateTasks`): then segments behind one that was not synced
are written to, and a crash may keep them and cut that one. Run with ``--hypothesis-seed=N`` to
repeat a run; what it found once is a test of its own at the end.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.model import AppendOrigin
from odradek.records.batch import iter_headers
from odradek.records.compression import Codec
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.log.services import LogServices
from odradek.storage.recovery.loader import load_log
from odradek.testing import ManualClock, SimDisk, SimulatedCrash
from tests.support.log_scenarios import DeferredTasks
from tests.support.logs import PARTITION, T0, LogFixture, batch, marker, offsets, read_all

# Segments of a few pages, so that a crash tears batches apart and rolls are frequent; an index has
# room for 24 entries, so that it fills up before some segments do.
CONFIG = LogConfig(
    segment_bytes=10_000,
    index_interval_bytes=300,
    segment_index_bytes=24 * 12,
    file_delete_delay_ms=1_000,
    retention_ms=-1,
)
IDEMPOTENT = (4000, 4001)
TRANSACTIONAL = (7000, 7001)
FOREVER_MS = 2**62


class Stored(NamedTuple):
    """One batch of the model."""

    base: int
    last: int
    data: bytes
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_commit: bool | None = None  # What a marker says; None for data.


class Transaction(NamedTuple):
    producer_id: int
    first: int
    marker: int | None  # Offset of the marker; None while open.
    is_aborted: bool


def transactions(batches: list[Stored]) -> list[Transaction]:
    """The transactions that the batches tell of, by the offsets of their ends."""
    begun: dict[int, int] = {}
    ended: list[Transaction] = []
    for stored in batches:
        if not stored.is_transactional:
            continue
        if stored.is_commit is None:
            begun.setdefault(stored.producer_id, stored.base)
        elif stored.producer_id in begun:
            first = begun.pop(stored.producer_id)
            ended.append(Transaction(stored.producer_id, first, stored.base, not stored.is_commit))
    return ended + [Transaction(*item, None, False) for item in begun.items()]


class LateTasks(DeferredTasks):
    """Does its work at once, or when it is told to; what nobody asks for is never done."""

    def __init__(self, clock: ManualClock, *, is_late: bool) -> None:
        super().__init__(clock)
        self._is_late = is_late

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        super().submit(work, done)
        if not self._is_late:
            self.run()


class LogAgainstList(RuleBasedStateMachine):
    """Drives one log on a `SimDisk`."""

    def __init__(self) -> None:
        super().__init__()
        self._root = tempfile.TemporaryDirectory()
        self._disk = SimDisk(self._root.name)
        self._clock = ManualClock()
        self._are_flushes_late = False
        self._config = CONFIG
        self._epoch = 0
        self._payload = 0
        # The model.
        self._batches: list[Stored] = []
        self._end = 0
        self._start = 0
        self._highest_start = 0  # Transactions from below it may be forgotten.
        self._high_watermark = 0
        self._checkpointed_recovery_point = 0
        self._log = self._open()

    def teardown(self) -> None:
        self._log.mark_offline("the test is over")
        self._disk.kill()  # Closes what flushes that never ran had opened.
        self._root.cleanup()

    # Opening

    def _open(self) -> Log:
        """As a broker does: marker, checkpoints, load, and checkpoints that tell what was found."""
        # What a dead process had planned died with it.
        self._tasks = LateTasks(self._clock, is_late=self._are_flushes_late)
        self._directory = directory = LogDirectory(self._root.name, disk=self._disk)
        directory.take_clean_shutdown_marker()
        recovery_points, log_starts = directory.read_recovery_points(), directory.read_log_starts()
        log = load_log(
            os.path.join(directory.path, str(PARTITION)),
            PARTITION,
            config=self._config,
            log_directory=directory,
            services=LogServices(
                disk=self._disk,
                clock=self._clock,
                random=Random(1),
                tasks=self._tasks,
                producer_id_expiration_ms=FOREVER_MS,
            ),
            recovery_point=recovery_points.get(PARTITION, 0),
            log_start_offset=log_starts.get(PARTITION, 0),
            had_clean_shutdown=directory.had_clean_shutdown,
        )
        directory.logs[log.name] = log
        if directory.recovery_points() != recovery_points:
            directory.checkpoint_recovery_points()
        if directory.log_starts() != log_starts:
            directory.checkpoint_log_starts()
        return log

    def _reopen(
        self,
        *,
        must_reach: int,
        possible: list[Stored],
        is_start_settled: bool = True,
    ) -> None:
        """Opens after a stop and takes over what survived, if that is allowed.

        Args:
            must_reach: Visible batches below this offset have to be there.
            possible: All that may be there, in order.
            is_start_settled: Whether no call that moves the log start was interrupted.
        """
        self._log = log = self._open()
        recovered = self._read_all(FetchIsolation.LOG_END)[0]
        by_base = {stored.base: stored for stored in possible}
        survivors = []
        for header_base, data in recovered:
            stored = by_base.get(header_base)
            assert stored is not None, f"a batch at {header_base} that was never appended"
            assert stored.data == data, f"foreign bytes at offset {header_base}"
            survivors.append(stored)
        start = self._start if is_start_settled else max(self._start, log.log_start_offset)
        assert log.log_start_offset <= max(start, self._high_watermark)
        visible = [stored for stored in possible if stored.last >= start]
        kept = [stored for stored in survivors if stored.last >= start]
        assert kept == visible[: len(kept)], "a hole"
        lost = visible[len(kept) :]
        note(f"reopened: {log.offsets()}, {len(kept)} batches kept, {len(lost)} lost")
        assert not lost or lost[0].last >= must_reach, f"lost {lost[0][:2]} below {must_reach}"
        # Those below the log start are not read, but a later crash may bring them back to sight.
        self._batches = [
            stored for stored in possible if stored.last < log.log_start_offset
        ] + survivors
        assert log.log_end_offset >= max([log.log_start_offset, *(s.last + 1 for s in survivors)])
        assert log.log_end_offset <= max(self._end, log.log_start_offset)
        self._end = log.log_end_offset
        self._start = log.log_start_offset
        self._checkpointed_recovery_point = log.recovery_point
        # As a broker does, from its own checkpoint.
        self._high_watermark = log.update_high_watermark(self._high_watermark)

    # Appending

    def _build(self, count: int, size: int, base: int, codec: Codec, **producer: Any) -> bytearray:
        """A batch of its own content; `base` 0 and no epoch is what a client sends."""
        self._payload += 1
        value = Random(self._payload).randbytes(size // count)
        return batch(
            count,
            value=value,
            timestamp=T0 + self._payload,
            base_offset=base,
            codec=codec,
            **producer,
        )

    def _append(self, built: bytearray, expected: Stored, origin: AppendOrigin) -> None:
        self._attempt(
            lambda: self._log.append_as_leader(built, leader_epoch=self._epoch, origin=origin),
            added=[expected],
        )

    def _append_data(
        self, count: int, size: int, codec: Codec, producer_id: int, *, is_transactional: bool
    ) -> None:
        sequence = self._next_sequence(producer_id) if producer_id >= 0 else -1
        producer = {
            "producer_id": producer_id,
            "producer_epoch": 0 if producer_id >= 0 else -1,
            "base_sequence": sequence,
            "is_transactional": is_transactional,
        }
        sent = self._build(count, size, 0, codec, **producer)
        self._payload -= 1  # The same content again.
        data = self._build(count, size, self._end, codec, leader_epoch=self._epoch, **producer)
        expected = Stored(
            self._end, self._end + count - 1, bytes(data), producer_id, sequence, is_transactional
        )
        self._append(sent, expected, AppendOrigin.CLIENT)

    def _next_sequence(self, producer_id: int) -> int:
        for stored in reversed(self._batches):
            if stored.producer_id == producer_id and stored.is_commit is None:
                return stored.sequence + stored.last - stored.base + 1
        return 0

    @rule(
        count=st.integers(1, 5),
        size=st.integers(1, 3_000),
        codec=st.sampled_from(Codec),
        producer_id=st.sampled_from((-1, -1, *IDEMPOTENT)),
    )
    def append_as_leader(self, count: int, size: int, codec: Codec, producer_id: int) -> None:
        self._append_data(count, size, codec, producer_id, is_transactional=False)

    @rule(count=st.integers(2, 12), size=st.integers(1, 900))
    def append_many(self, count: int, size: int) -> None:
        for _ in range(count):
            self._append_data(1, size, Codec.NONE, -1, is_transactional=False)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), size=st.integers(1, 500))
    def append_in_transaction(self, producer_id: int, size: int) -> None:
        self._append_data(1, size, Codec.NONE, producer_id, is_transactional=True)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        opened = [t for t in transactions(self._batches) if t.marker is None]
        if producer_id not in [t.producer_id for t in opened]:
            return
        sent = marker(commit=commit, producer_id=producer_id, timestamp=T0)
        data = marker(
            commit=commit,
            producer_id=producer_id,
            timestamp=T0,
            base_offset=self._end,
            leader_epoch=self._epoch,
        )
        expected = Stored(self._end, self._end, bytes(data), producer_id, -1, True, commit)
        self._append(sent, expected, AppendOrigin.COORDINATOR)

    @rule(producer_id=st.sampled_from(IDEMPOTENT))
    def retry_last_batch(self, producer_id: int) -> None:
        """01:AP-9: a retry gets the offsets of the first attempt, also after a restart."""
        stored = next((s for s in reversed(self._batches) if s.producer_id == producer_id), None)
        if stored is None or stored.base < self._start:
            return
        again = bytearray(stored.data)
        again[0:8] = bytes(8)  # The base offset, which the checksum does not cover.
        size = self._log.size_in_bytes
        info = self._log.append_as_leader(again, leader_epoch=self._epoch)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (stored.base, stored.last)
        assert self._log.size_in_bytes == size

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=4), gap=st.integers(0, 3))
    def append_as_follower(self, counts: list[int], gap: int) -> None:
        """Several batches in one set; offsets may have gaps, as behind a compacted leader."""
        added = []
        base = self._end + gap
        for count in counts:
            data = self._build(count, 50 * count, base, Codec.NONE, leader_epoch=self._epoch)
            added.append(Stored(base, base + count - 1, bytes(data)))
            base += count
        records = b"".join(stored.data for stored in added)
        self._attempt(
            lambda: self._log.append_as_follower(records, fetch_leader_epoch=self._epoch),
            added=added,
        )

    @rule()
    def new_leader(self) -> None:
        self._epoch += 1

    # Moving the ends

    @rule()
    def roll(self) -> None:
        if self._log.active.size:
            self._attempt(self._log.roll)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Mostly inside the log; the batch that holds the offset goes as a whole."""
        offset = int(self._end * share)
        first = self._log.segments.first
        assert first is not None
        if offset < first.base_offset:
            self._truncate_fully(offset)
            return
        is_done = self._attempt(lambda: self._log.truncate_to(offset), may_lose_from=offset)
        if is_done and offset < self._end:
            self._batches = [stored for stored in self._batches if stored.last < offset]
            self._end = offset
            self._start = min(self._start, offset)
            self._high_watermark = min(self._high_watermark, offset)
            self._checkpointed_recovery_point = self._log.recovery_point

    @rule(distance=st.integers(-20, 20))
    def truncate_fully(self, distance: int) -> None:
        self._truncate_fully(max(0, self._end + distance))

    def _truncate_fully(self, offset: int) -> None:
        end = self._end
        self._end = max(end, offset)
        if self._attempt(
            lambda: self._log.truncate_fully_and_start_at(offset),
            may_lose_from=0,
            may_move_start=True,
        ):
            self._batches = []
            self._end = self._start = self._high_watermark = offset
            self._checkpointed_recovery_point = self._log.recovery_point

    @rule(share=st.floats(0, 1), as_leader=st.booleans())
    def raise_high_watermark(self, share: float, as_leader: bool) -> None:
        offset = self._high_watermark + round((self._end - self._high_watermark) * share)
        if as_leader and offset == self._end:
            self._log.maybe_increment_high_watermark(self._log.log_end_offset_metadata)
        else:
            self._log.update_high_watermark(offset)
        self._high_watermark = offset

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self._start + int((self._high_watermark - self._start) * share)
        changed = self._log.maybe_increment_log_start_offset(offset)
        assert changed == (offset > self._start)
        self._start = offset

    @rule(
        retention_bytes=st.sampled_from((-1, 0, 5_000, 20_000)),
        age_ms=st.sampled_from((-1, 0, 20)),
    )
    def retain(self, retention_bytes: int, age_ms: int) -> None:
        retention_ms = -1 if age_ms < 0 else self._clock.now_ms() - T0 - self._payload + age_ms
        self._log.config = replace(
            self._log.config, retention_bytes=retention_bytes, retention_ms=max(-1, retention_ms)
        )
        if self._attempt(lambda: delete_old_segments(self._log), may_move_start=True):
            first = self._log.segments.first
            assert first is not None
            self._start = max(self._start, first.base_offset)

    @rule()
    def let_time_pass(self) -> None:
        """Long enough for the removal of `.deleted` files."""
        self._clock.advance(1_000)
        self._tasks.run_due()

    # Syncing

    @initialize(late=st.booleans())
    def flush_late(self, late: bool) -> None:
        self._are_flushes_late = late
        self._log.mark_offline("it is opened again")
        self._disk.kill()
        self._log = self._open()

    @rule(count=st.integers(1, 3))
    def finish_background_flushes(self, count: int) -> None:
        self._attempt(lambda: self._tasks.run(count))

    @rule()
    def flush(self) -> None:
        self._attempt(self._log.flush)

    @rule()
    def checkpoint(self) -> None:
        if self._attempt(self._directory.checkpoint_recovery_points):
            self._checkpointed_recovery_point = self._log.recovery_point
            self._attempt(self._directory.checkpoint_log_starts)

    # Stopping

    _crash_in: int | None = None  # Operations on the disk that the next call still gets done.
    _is_kill = False
    _torn_by: Random | None = None

    @rule(
        operations=st.integers(0, 40), is_kill=st.booleans(), seed=st.none() | st.integers(0, 999)
    )
    def plan_to_stop_in_mid_call(self, operations: int, is_kill: bool, seed: int | None) -> None:
        self._crash_in = operations
        self._is_kill = is_kill
        self._torn_by = None if seed is None else Random(seed)

    def _attempt(
        self,
        call: Callable[[], object],
        *,
        added: list[Stored] | None = None,
        may_lose_from: int | None = None,
        may_move_start: bool = False,
    ) -> bool:
        """Makes a call that changes the disk; returns false if the machine stopped within it.

        Args:
            call: The call.
            added: Batches that are in the log once it returns, and may be before.
            may_lose_from: The call removes batches from this offset on.
            may_move_start: The call removes batches at the log start.
        """
        possible = [*self._batches, *(added or ())]
        end = max([self._end, *(stored.last + 1 for stored in possible)])
        if self._crash_in is not None:
            self._disk.crash_at(self._crash_in)
            self._crash_in = None
        try:
            call()
        except SimulatedCrash as crash:
            note(f"stopped {crash}")
        else:
            self._disk.heal()
            self._batches, self._end = possible, end
            return True
        must_reach = self._end if self._is_kill else self._checkpointed_recovery_point
        if may_lose_from is not None:
            must_reach = min(must_reach, may_lose_from)
        self._end = end
        self._stop(is_kill=self._is_kill, random=self._torn_by)
        self._reopen(must_reach=must_reach, possible=possible, is_start_settled=not may_move_start)
        return False

    def _stop(self, *, is_kill: bool, random: Random | None) -> None:
        self._log.mark_offline("the machine is off")
        if is_kill:
            self._disk.kill()
        else:
            self._disk.crash(random, mode="drop" if random is None else "torn")

    def _close(self) -> None:
        self._log.close()
        self._tasks.run()  # Too late to count for anything.
        self._directory.checkpoint_recovery_points()
        self._directory.checkpoint_log_starts()
        self._directory.write_clean_shutdown_marker()

    @rule()
    def close_and_reopen(self) -> None:
        if self._attempt(self._close):
            self._reopen(must_reach=self._end, possible=self._batches)

    @rule(seed=st.none() | st.integers(0, 999))
    def close_and_crash(self, seed: int | None) -> None:
        """What a clean stop left behind is durable without any further sync."""
        self._close()
        self._stop(is_kill=False, random=None if seed is None else Random(seed))
        self._reopen(must_reach=self._end, possible=self._batches)

    @rule(operations=st.none() | st.integers(0, 40))
    def kill(self, operations: int | None) -> None:
        self._stop(is_kill=True, random=None)
        self._fail_to_open(operations, is_kill=True, random=None)
        self._reopen(must_reach=self._end, possible=self._batches)

    @rule(operations=st.none() | st.integers(0, 40), seed=st.none() | st.integers(0, 999))
    def crash(self, operations: int | None, seed: int | None) -> None:
        random = None if seed is None else Random(seed)
        self._stop(is_kill=False, random=random)
        self._fail_to_open(operations, is_kill=False, random=random)
        self._reopen(must_reach=self._checkpointed_recovery_point, possible=self._batches)

    @rule(
        before=st.integers(1, 5),
        behind=st.integers(1, 5),
        size=st.integers(1, 2_000),
        seed=st.integers(0, 999),
    )
    def crash_behind_a_roll(self, before: int, behind: int, size: int, seed: int) -> None:
        """01:9.6: the old segment may lose its end, and the new one may not."""
        for number in range(before + behind):
            if number == before:
                self.roll()
            self._append_data(1, size, Codec.NONE, -1, is_transactional=False)
        self.crash(None, seed)

    def _fail_to_open(
        self, operations: int | None, *, is_kill: bool, random: Random | None
    ) -> None:
        """A first start that stops on its way."""
        if operations is None:
            return
        self._disk.crash_at(operations)
        try:
            self._log = self._open()
        except SimulatedCrash as crash:
            note(f"stopped while opening, {crash}")
        self._stop(is_kill=is_kill, random=random)

    # Checking

    @invariant()
    def offsets_are_in_order(self) -> None:
        """01:9.9"""
        log = self._log
        start, end, high_watermark, stable = log.offsets()
        assert (start, end, high_watermark) == (self._start, self._end, self._high_watermark)
        assert 0 <= start <= stable <= high_watermark <= end
        assert log.recovery_point <= end
        segments = list(log.segments)
        assert segments
        bases = [segment.base_offset for segment in segments]
        assert bases == sorted(set(bases))
        for segment, following in zip(segments, [*bases[1:], 2**63], strict=True):
            next_offset = segment.base_offset
            for scanned in (scan := segment.scan(check_crc=True)):
                header = scanned.header
                assert scanned.is_crc_valid
                assert next_offset <= header.base_offset
                assert header.last_offset < following
                next_offset = header.next_offset
            if next_offset >= start:
                assert scan.damage is None

    @invariant()
    def readers_see_the_list(self) -> None:
        self._highest_start = max(self._highest_start, self._start)
        for isolation, limit in (
            (FetchIsolation.LOG_END, self._end),
            (FetchIsolation.HIGH_WATERMARK, self._high_watermark),
            (FetchIsolation.TXN_COMMITTED, self._log.last_stable_offset),
        ):
            found, aborted = self._read_all(isolation)
            expected = [s for s in self._batches if s.last >= self._start and s.last < limit]
            assert found == [(stored.base, stored.data) for stored in expected], isolation
            if isolation is FetchIsolation.TXN_COMMITTED:
                self._check_committed(expected, aborted)

    def _read_all(
        self, isolation: FetchIsolation
    ) -> tuple[list[tuple[int, bytes]], set[AbortedTransaction]]:
        """Reads as a consumer does, in fetches of at least one batch."""
        found: list[tuple[int, bytes]] = []
        aborted: set[AbortedTransaction] = set()
        offset = self._log.log_start_offset
        while True:
            fetched = self._log.read(offset, 2_000, isolation)
            aborted.update(fetched.aborted_transactions or ())
            data = fetched.read()
            size = 0
            for position, header in iter_headers(data):
                size = position + header.size
                found.append((header.base_offset, data[position:size]))
                offset = header.next_offset
            if not size:
                return found, aborted

    def _check_committed(self, expected: list[Stored], aborted: set[AbortedTransaction]) -> None:
        """The last stable offset, and that exactly the aborted batches are listed as such."""
        known = [t for t in transactions(self._batches) if t.first >= self._highest_start]
        stable = self._log.last_stable_offset
        for transaction in known:
            if transaction.marker is None:
                assert stable <= transaction.first
        if self._highest_start == 0:
            unstable = [
                t.first for t in known if t.marker is None or t.marker >= self._high_watermark
            ]
            assert stable >= min([self._high_watermark, *unstable])
        in_sight = {stored.base for stored in expected}
        assert {
            (t.producer_id, t.first, t.marker)
            for t in known
            if t.first in in_sight and t.marker is not None and t.marker < stable and t.is_aborted
        } <= {(a.producer_id, a.first_offset, a.last_offset) for a in aborted}
        # One whose beginning was deleted may be remembered from its first batch that is left.
        assert {(a.producer_id, a.last_offset) for a in aborted} <= {
            (t.producer_id, t.marker) for t in transactions(self._batches) if t.is_aborted
        }


TestLogAgainstList = pytest.mark.slow(LogAgainstList.TestCase)
TestLogAgainstList.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_truncated_records_stay_away_after_a_crash(tmp_path: Path, clean: bool) -> None:
    """A stop has nothing to flush below the recovery point, so the truncation itself is durable."""
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path, disk=disk) as fixture:
        log = fixture.open()
        fixture.append(3)
        log.flush()
        log.truncate_to(1)
        recovery_point = fixture.close() if clean else fixture.abandon()
        disk.crash(mode="drop")

        log = fixture.open(clean=clean, recovery_point=recovery_point)

        assert offsets(read_all(log)) == [0]
        assert log.log_end_offset == 1


@pytest.mark.parametrize("stop", ["crash", "kill"])
def test_a_torn_tail_that_was_cut_stays_away(tmp_path: Path, stop: str) -> None:
    """01:LOAD-11: what a first recovery cut is not there for the second, clean stop or not."""
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path, disk=disk) as fixture:
        fixture.open()
        fixture.append(2)
        fixture.abandon()
        with fixture.path(f"{0:020d}.log").open("ab") as file:
            file.write(batch()[:40])
        disk.settle()
        fixture.open()
        recovery_point = fixture.close()
        disk.crash(mode="drop") if stop == "crash" else disk.kill()

        log = fixture.open(clean=True, recovery_point=recovery_point)

        assert offsets(read_all(log)) == [0, 1]
        assert log.log_end_offset == 2


def test_reading_does_not_move_a_high_watermark_that_lies_in_a_gap(tmp_path: Path) -> None:
    """A truncation inside a follower's gap leaves offsets without records below the log end."""
    with LogFixture(tmp_path) as fixture:
        log = fixture.open()
        log.append_as_follower(batch(base_offset=2, leader_epoch=0))
        log.truncate_to(2)
        log.update_high_watermark(1)

        log.read(0, 1, FetchIsolation.HIGH_WATERMARK)

        assert log.high_watermark == 1
        assert log.log_end_offset == 2


@pytest.mark.parametrize("fully", [True, False], ids=["fully", "inside a segment"])
def test_records_below_an_old_log_start_survive_a_kill(tmp_path: Path, fully: bool) -> None:
    """A truncation that lowers the log start outdates its checkpoint, and so replaces it."""
    with LogFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.append(5)
        log.update_high_watermark(5)
        log.maybe_increment_log_start_offset(4)
        log.log_directory.checkpoint_log_starts()
        if fully:
            log.truncate_fully_and_start_at(2)
        else:
            log.truncate_to(2)
        fixture.append()
        fixture.abandon()

        log = fixture.open(
            recovery_point=log.log_directory.read_recovery_points().get(PARTITION, 0),
            log_start_offset=log.log_directory.read_log_starts().get(PARTITION, 0),
        )

        assert offsets(read_all(log)) == [2]
