"""Loading and unloading the partitions of an internal topic, in the order of their epochs."""

import logging
import struct
from collections.abc import Iterable, Iterator

import pytest
from crc32c import crc32c

from odradek.coordinator.loading import LoadPhase, StateLoader
from odradek.errors import ErrorCode
from odradek.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE, BatchHeader
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from odradek.testing import ManualClock
from tests.unit.coordinator.coordinator_fakes import MemoryTopic, Tasks

P = 3


class Loaded:
    """A state that notes what it is told."""

    def __init__(self, runtime: "Runtime") -> None:
        self.runtime = runtime
        self.records: list[tuple[bytes | None, bytes | None, int]] = []
        self.markers: list[tuple[int, bool]] = []
        self.settled = 0

    def replay(
        self, key: bytes | None, value: bytes | None, offset: int, header: BatchHeader
    ) -> None:
        if key == b"bad":
            raise ValueError("expected something else")
        self.records.append((key, value, offset))

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        self.markers.append((producer_id, is_commit))

    def prepare(self) -> Iterable[object]:
        return iter(self.records)

    def install(self) -> None:
        self.runtime.installed.append(self)

    def settle(self) -> Iterator[object]:
        for record in self.records:
            self.settled += 1
            yield record

    def unload(self) -> None:
        self.runtime.installed.remove(self)


class SlowClock(ManualClock):
    """A clock by which a slice is over at every look."""

    def monotonic_ns(self) -> int:
        self.advance(6)
        return super().monotonic_ns()


class Runtime:
    """A runtime over a topic in memory."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.topic = MemoryTopic()
        self.tasks = Tasks()
        self.clock = clock or ManualClock()
        self.installed: list[Loaded] = []
        self.failed_loads: list[int] = []
        self.loads: list[int] = []
        self.skipped: list[tuple[int, int]] = []
        self.runtime = StateLoader(
            "__topic",
            self.topic,
            begin=lambda _partition, _epoch: Loaded(self),
            clock=self.clock,
            tasks=self.tasks,
            stats=self,
        )

    def on_loaded(self, partition: int, elapsed_ms: int) -> None:
        self.loads.append(partition)

    def on_load_failed(self, partition: int) -> None:
        self.failed_loads.append(partition)

    def on_skipped(self, partition: int, count: int) -> None:
        self.skipped.append((partition, count))

    def write(self, *values: bytes, key: bytes = b"k", codec: Codec = Codec.NONE) -> None:
        self.topic.store(P, build_batch([(0, key, value, ()) for value in values], codec=codec))

    def lead(self, leader_epoch: int) -> bool:
        self.topic.lead(P, leader_epoch)
        return self.runtime.lead(P, leader_epoch)

    def values(self) -> list[bytes | None]:
        [state] = self.installed
        return [value for _, value, _ in state.records]


def test_a_led_partition_is_loaded_and_served() -> None:
    made = Runtime()
    made.write(b"1", b"2")
    made.write(b"3", codec=Codec.ZSTD)
    assert made.runtime.check_active(P) == ErrorCode.NOT_COORDINATOR
    assert made.lead(0)
    assert made.runtime.check_active(P) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    is_loading = [made.runtime.is_loading]
    assert not made.installed
    made.tasks.run()
    assert made.runtime.check_active(P) == ErrorCode.NONE
    is_loading.append(made.runtime.is_loading)
    assert is_loading == [True, False]
    assert made.installed[0].records == [(b"k", b"1", 0), (b"k", b"2", 1), (b"k", b"3", 2)]
    assert made.installed[0].settled == 3
    assert made.loads == [P]


def test_an_empty_partition_is_loaded_too() -> None:
    made = Runtime()
    made.lead(0)
    made.tasks.run()
    assert made.runtime.phase(P) is LoadPhase.ACTIVE


def test_markers_of_transactions_are_told() -> None:
    made = Runtime()
    for control_type in (ControlType.COMMIT, ControlType.ABORT):
        made.topic.store(
            P,
            build_end_transaction_marker(
                EndTransactionMarker(control_type, 0),
                producer_id=7,
                producer_epoch=0,
                timestamp_ms=0,
            ),
        )
    made.lead(0)
    made.tasks.run()
    assert made.installed[0].markers == [(7, True), (7, False)]


def test_changes_that_are_not_newer_are_dropped() -> None:
    made = Runtime()
    assert made.lead(5)
    made.tasks.run()
    [state] = made.installed
    assert not made.runtime.lead(P, 5)
    assert not made.runtime.lead(P, 4)
    assert not made.runtime.resign(P, 5)
    assert not made.runtime.resign(P, 3)
    assert made.installed == [state]
    assert made.runtime.resign(P, 6)
    assert made.runtime.check_active(P) is ErrorCode.NOT_COORDINATOR
    assert not made.installed


def test_a_newer_epoch_ends_a_load_that_is_under_way() -> None:
    """07:G-10: leader in 5, follower in 6, leader in 7; what was written meanwhile counts."""
    made = Runtime()
    made.write(b"old")

    def move() -> None:
        made.topic.on_read = lambda: None
        made.runtime.resign(P, 6)
        made.write(b"of epoch 6")
        made.lead(7)

    made.topic.on_read = move
    made.lead(5)
    made.tasks.run()
    assert made.values() == [b"old", b"of epoch 6"]
    assert made.runtime.phase(P) is LoadPhase.ACTIVE
    made.write(b"later")
    assert made.values() == [b"old", b"of epoch 6"], "one state was installed, that of 7"


def test_a_replica_that_is_deleted_takes_its_state_along() -> None:
    """15:KAFKA-9235: nothing of it is served, and a topic made anew has none of it."""
    made = Runtime()
    made.write(b"old")
    made.lead(5)
    made.tasks.run()
    assert made.values() == [b"old"]
    made.runtime.resign(P, None)
    assert (made.installed, made.runtime.check_active(P)) == ([], ErrorCode.NOT_COORDINATOR)
    made.topic.batches.pop(P)
    made.write(b"new")
    made.lead(0)
    made.tasks.run()
    assert made.values() == [b"new"]


def test_a_demotion_that_was_missed_is_made_up_for() -> None:
    """15:KAFKA-9235 (9307): the next leadership replaces the state, with what others wrote."""
    made = Runtime()
    made.write(b"1")
    made.lead(5)
    made.tasks.run()
    [stale] = made.installed
    made.write(b"of another leader")
    made.lead(7)
    assert (made.installed, made.runtime.check_active(P)) == (
        [],
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    made.tasks.run()
    assert made.values() == [b"1", b"of another leader"]
    assert made.installed != [stale]


def test_leadership_lost_while_loading_installs_nothing() -> None:
    made = Runtime()
    made.write(b"1")
    made.topic.on_read = made.topic.epochs.clear
    made.lead(5)
    made.tasks.run()
    assert not made.installed
    assert made.runtime.check_active(P) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    made.runtime.resign(P, 6)
    assert made.runtime.check_active(P) is ErrorCode.NOT_COORDINATOR


def test_a_failed_load_serves_nothing_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """07:G-9."""
    made = Runtime()
    made.write(b"1")
    made.topic.read_error = OSError("no disk")
    answers: list[ErrorCode] = []

    def mend(seconds: float) -> None:
        if seconds:
            answers.append(made.runtime.check_active(P))
        if len(answers) == 9:
            made.topic.read_error = None

    made.tasks.on_sleep = mend
    with caplog.at_level(logging.ERROR):
        made.lead(0)
        made.tasks.run()
    assert answers == [ErrorCode.NOT_COORDINATOR] * 9
    waits = [seconds for seconds in made.tasks.slept_s if seconds]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert made.values() == [b"1"]
    assert made.failed_loads == [P] * 9
    assert "__topic-3: loading in epoch 0 failed" in caplog.text
    assert "no disk" in caplog.text


def test_a_record_that_cannot_be_read_is_skipped_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """07:G-11: it makes no more sense at the next attempt."""
    made = Runtime()
    made.write(b"1")
    made.topic.store(P, build_batch([(0, b"bad", b"2", ()), (0, b"k", b"3", ())]))
    with caplog.at_level(logging.ERROR):
        made.lead(0)
        made.tasks.run()
    assert made.values() == [b"1", b"3"]
    assert (made.failed_loads, made.skipped) == ([], [(P, 1)])
    assert "__topic-3: the record at offset 1 cannot be read and is skipped" in caplog.text
    assert "expected something else" in caplog.text


def test_many_records_that_cannot_be_read_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Runtime()
    made.topic.store(P, build_batch([(0, b"bad", b"2", ())] * 500))
    with caplog.at_level(logging.ERROR):
        made.lead(0)
        made.tasks.run()
    assert made.skipped == [(P, 500)]
    assert len(caplog.records) == 11
    assert "500 records or batches cannot be read" in caplog.text


def test_a_read_error_fails_the_load() -> None:
    made = Runtime()
    made.write(b"1")
    made.topic.read_error = OSError("no disk")
    made.tasks.on_sleep = lambda _seconds: setattr(made.topic, "read_error", None)
    made.lead(0)
    made.tasks.run()
    assert made.failed_loads == [P]
    assert made.values() == [b"1"]


def test_a_batch_with_a_wrong_checksum_is_skipped_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Runtime()
    made.write(b"1")
    made.write(b"2")
    good = made.topic.batches[P][0]
    made.topic.batches[P][0] = good[:-2] + b"9" + good[-1:]
    with caplog.at_level(logging.ERROR):
        made.lead(0)
        made.tasks.run()
    assert (made.failed_loads, made.skipped) == ([], [(P, 1)])
    assert made.values() == [b"2"]
    assert "the batch at offset 0 cannot be read and is skipped: its checksum" in caplog.text


def test_a_batch_whose_records_cannot_be_read_is_skipped_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its checksum is right: another program wrote it so."""
    made = Runtime()
    made.write(b"1")
    made.write(b"2")
    batch = bytearray(made.topic.batches[P][0])
    batch[HEADER_SIZE] = 0x7F  # The length of the only record, beyond the end of the batch.
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    made.topic.batches[P][0] = bytes(batch)
    with caplog.at_level(logging.ERROR):
        made.lead(0)
        made.tasks.run()
    assert (made.failed_loads, made.skipped) == ([], [(P, 1)])
    assert made.values() == [b"2"]
    assert "the batch at offset 0 cannot be read and is skipped" in caplog.text


def test_a_failed_load_ends_with_its_epoch() -> None:
    made = Runtime()
    made.write(b"1")
    made.topic.read_error = OSError("no disk")

    def resign(_seconds: float) -> None:
        made.runtime.resign(P, 1)

    made.tasks.on_sleep = resign
    made.lead(0)
    made.tasks.run()
    assert made.failed_loads == [P]
    assert made.runtime.phase(P) is None


def test_a_batch_larger_than_the_buffer_is_read_whole(caplog: pytest.LogCaptureFixture) -> None:
    made = Runtime()
    large = bytes(2 << 20)
    made.write(b"1")
    made.write(large)
    made.write(b"3")
    made.lead(0)
    with caplog.at_level(logging.WARNING):
        made.tasks.run()
    assert made.values() == [b"1", large, b"3"]
    assert "offsets.load.buffer.size" in caplog.text


def test_loading_lets_the_loop_run() -> None:
    made = Runtime(SlowClock())
    for _ in range(10):
        made.write(b"1")
    made.lead(0)
    made.tasks.run()
    assert len(made.tasks.slept_s) >= 10 + 2 * 9, "after each batch, and each step before and after"


def test_a_replica_that_goes_forgets_its_epochs() -> None:
    """The topic may be made again, and begins with epoch 0."""
    made = Runtime()
    made.lead(8)
    made.tasks.run()
    assert made.runtime.resign(P, None)
    assert not made.installed
    assert made.lead(0)
    made.tasks.run()
    assert made.runtime.phase(P) is LoadPhase.ACTIVE
