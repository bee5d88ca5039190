"""What a clean stop writes down of each log, and what the next start makes of it (01 section 8.7).

A `.log` file that is gone or ends between two batches, a transaction index that is gone with its
proof, one wrong digit in a checkpoint: nothing but this record tells of them.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from odradek.errors import CorruptCheckpointError
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.directories.closed_logs import (
    CLOSED_LOGS_FILE,
    ClosedLog,
    ClosedSegment,
    checksum_of_closed_logs,
    encode_closed_logs,
    parse_closed_logs,
)
from odradek.storage.directories.log_directory import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.testing import SimDisk
from tests.support.log_scenarios import (
    abort,
    append_leader,
    bases,
    commit,
    transactional,
    visible,
)
from tests.support.logs import batch, make_services, offsets, read_all

TP = TopicPartition("t", 0)
SIZE = len(batch())


class Directory:
    """A data directory with one partition, started and stopped by turns.

    Attributes:
        damaged_places: As the metric counts them, since the last start.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk
        self.damaged_places = 0
        self._manager: LogManager | None = None

    def start(self) -> Log:
        self.damaged_places = 0
        self._manager = LogManager(
            [str(self.path)],
            services=replace(make_services(self.disk), on_damage=self._count),
            default_log_config=LogConfig(index_interval_bytes=100, segment_index_bytes=4_800),
        )
        self._manager.startup()
        return self._manager.get_or_create_log(TP, is_new=True)

    def _count(self) -> None:
        self.damaged_places += 1

    def stop(self) -> None:
        assert self._manager is not None
        self._manager.shutdown()

    def file(self, base: int, suffix: str = ".log") -> Path:
        return self.path / str(TP) / f"{base:020d}{suffix}"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data")
    yield directory
    directory.stop()


def three_segments(directory: Directory) -> None:
    """Stops a log with the offsets 0 to 8, three in each segment."""
    log = directory.start()
    for number in range(3):
        if number:
            log.roll()
        for _ in range(3):
            append_leader(log, batch())
    directory.stop()


def errors_about(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    return [
        r.getMessage()
        for r in caplog.records
        if r.levelno == logging.ERROR and r.getMessage().startswith(str(path))
    ]


# Log files


@pytest.mark.parametrize("base", [0, 3, 6])
def test_a_log_file_that_ends_between_two_batches_is_told_of_and_counted(
    base: int, directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    three_segments(directory)
    os.truncate(directory.file(base), 2 * SIZE)
    log = directory.start()
    assert any(f"{2 * SIZE} bytes" in line for line in errors_about(caplog, directory.file(base)))
    assert directory.damaged_places
    assert offsets(read_all(log)) == [o for o in range(9) if o != base + 2]
    assert log.log_end_offset == 9


@pytest.mark.parametrize("base", [0, 3, 6])
def test_a_log_file_that_is_gone_is_told_of_and_counted(
    base: int, directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    three_segments(directory)
    directory.file(base).unlink()
    log = directory.start()
    assert any("is missing" in line for line in errors_about(caplog, directory.file(base)))
    assert directory.damaged_places
    assert offsets(read_all(log)) == [o for o in range(9) if not base <= o < base + 3]
    assert log.log_end_offset == 9


def test_a_directory_that_is_as_it_was_left_has_nothing_to_tell(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    three_segments(directory)
    log = directory.start()
    assert offsets(read_all(log)) == list(range(9))
    assert not directory.damaged_places
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


# Transactions


def abort_across(directory: Directory, *, is_last: bool = False) -> list[int]:
    """Stops a log whose first segment has an aborted batch, the second its marker.

    Returns the offsets that a read_committed consumer is given.
    """
    log = directory.start()
    append_leader(log, batch())
    append_leader(log, transactional(0))
    append_leader(log, batch())
    log.roll()
    abort(log)
    append_leader(log, batch())
    if not is_last:
        log.roll()
        append_leader(log, batch())
    log.update_high_watermark(log.log_end_offset)
    shown = visible(log)
    assert 1 not in shown
    directory.stop()
    return shown


@pytest.mark.parametrize("is_last", [False, True])
def test_aborted_records_stay_hidden_when_the_segment_of_their_marker_is_gone(
    is_last: bool, directory: Directory
) -> None:
    """The transaction index beside it is still there."""
    shown = abort_across(directory, is_last=is_last)
    directory.file(3).unlink()
    for _ in range(2):
        log = directory.start()
        log.update_high_watermark(log.log_end_offset)
        assert visible(log) == [o for o in shown if o not in (3, 4)]
        assert log.log_end_offset == (5 if is_last else 6)
        directory.stop()
    log = directory.start()
    assert append_leader(log, batch()).first_offset == (5 if is_last else 6)


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_aborted_records_stay_hidden_without_transaction_index_and_proof(
    is_index_lost: bool, directory: Directory
) -> None:
    shown = abort_across(directory)
    directory.file(3, ".txnindex").unlink()
    directory.file(3, ".txnproof").unlink()
    if is_index_lost:
        directory.file(3, ".index").unlink()
    log = directory.start()
    log.update_high_watermark(log.log_end_offset)
    assert visible(log) == shown


def test_the_transaction_index_and_the_proof_of_another_log_do_not_count(
    directory: Directory,
) -> None:
    """Each proves the other, and together they would hide a record that was committed."""
    log = directory.start()
    append_leader(log, transactional(0))
    commit(log)
    log.roll()
    directory.stop()
    foreign = TransactionIndex(str(directory.file(0, ".txnindex")), 0, disk=Disk())
    foreign.append(AbortedTransaction(4000, 0, 1, 2))
    foreign.seal()
    log = directory.start()
    log.update_high_watermark(log.log_end_offset)
    assert visible(log) == [0]


def test_a_transaction_index_whose_proof_alone_is_wrong_is_kept(directory: Directory) -> None:
    """The marker may be damaged by now, so the index is all that tells of it."""
    shown = abort_across(directory)
    proof = directory.file(3, ".txnproof").read_bytes()
    directory.file(3, ".txnproof").write_bytes(bytes(8))
    data = bytearray(directory.file(3).read_bytes())
    data[70] ^= 1  # In the record of the marker.
    directory.file(3).write_bytes(data)
    log = directory.start()
    log.update_high_watermark(log.log_end_offset)
    assert set(visible(log)) == set(shown)
    assert directory.file(3, ".txnproof").read_bytes() == proof


# Checkpoints


@pytest.mark.parametrize("recovery_point", ["0", "4", "8", "19", "9000000"])
def test_a_recovery_point_that_is_wrong_changes_nothing(
    recovery_point: str, directory: Directory
) -> None:
    """No checksum covers it. Snapshots could bear it out, but they are lost, too."""
    three_segments(directory)
    (directory.path / RECOVERY_POINT_FILE).write_text(f"0\n1\nt 0 {recovery_point}\n")
    for base in (3, 6, 9):
        directory.file(base, ".snapshot").unlink()
    log = directory.start()
    assert (log.log_end_offset, log.recovery_point) == (9, 9)
    assert offsets(read_all(log)) == list(range(9))


@pytest.mark.parametrize("log_start", ["1", "7", "94"])
def test_a_log_start_that_is_wrong_changes_nothing(log_start: str, directory: Directory) -> None:
    log = directory.start()
    for _ in range(9):
        append_leader(log, batch())
    log.update_high_watermark(9)
    log.maybe_increment_log_start_offset(4)
    directory.stop()
    (directory.path / LOG_START_FILE).write_text(f"0\n1\nt 0 {log_start}\n")
    log = directory.start()
    assert (log.log_start_offset, log.log_end_offset) == (4, 9)


# Segments of another log


def test_a_segment_above_the_end_is_set_aside(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    three_segments(directory)
    foreign = bytes(batch(base_offset=40, leader_epoch=0))
    directory.file(40).write_bytes(foreign)
    log = directory.start()
    assert (bases(log), log.log_end_offset) == ([0, 3, 6], 9)
    assert directory.file(40, ".log.aside").read_bytes() == foreign
    assert any("belongs to another log" in r.getMessage() for r in caplog.records)


def test_batches_that_lead_over_the_end_are_set_aside(directory: Directory) -> None:
    """A longer file in the place of the last one: its batches follow without a gap."""
    three_segments(directory)
    foreign = b"".join(batch(base_offset=6 + n, leader_epoch=0) for n in range(5))
    directory.file(6).write_bytes(foreign)
    log = directory.start()
    assert log.log_end_offset == 9
    assert offsets(read_all(log)) == list(range(9))
    assert directory.file(6, f".log.from{3 * SIZE}.aside").read_bytes() == foreign[3 * SIZE :]
    assert append_leader(log, batch()).first_offset == 9


def test_a_file_of_another_log_in_the_place_of_an_empty_one_moves_no_end(
    directory: Directory,
) -> None:
    """The first batches lie below its name, the others lead over the end."""
    log = directory.start()
    for _ in range(3):
        append_leader(log, batch())
    log.roll()
    directory.stop()
    foreign = b"".join(batch(base_offset=n, leader_epoch=0) for n in range(1, 40))
    directory.file(3).write_bytes(foreign)
    log = directory.start()
    assert log.log_end_offset == 4  # The place of what cannot be read stays taken.
    assert offsets(read_all(log)) == [0, 1, 2]


# The record itself


def without_record(directory: Directory) -> None:
    (directory.path / CLOSED_LOGS_FILE).unlink()


def damaged(directory: Directory) -> None:
    path = directory.path / CLOSED_LOGS_FILE
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def of_another_stop(directory: Directory) -> None:
    """The file of an earlier stop: sound, but not the one that the marker names."""
    other = encode_closed_logs({TP: ClosedLog(0, 900, (ClosedSegment(0, 9_000, 0, 0),))})
    (directory.path / CLOSED_LOGS_FILE).write_bytes(other)


def marked_by_kafka(directory: Directory) -> None:
    """Kafka ran in between: its marker names no file."""
    marker = directory.path / CLEAN_SHUTDOWN_FILE
    fields = json.loads(marker.read_bytes())
    del fields["closedLogs"]
    marker.write_text(json.dumps(fields))
    of_another_stop(directory)


@pytest.mark.parametrize("harm", [without_record, damaged, of_another_stop, marked_by_kafka])
def test_without_its_record_a_clean_stop_is_a_clean_stop(
    harm: Callable[[Directory], None], directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    three_segments(directory)
    harm(directory)
    log = directory.start()
    assert offsets(read_all(log)) == list(range(9))
    assert (log.log_end_offset, directory.damaged_places) == (9, 0)
    warned = any(CLOSED_LOGS_FILE in r.getMessage() for r in caplog.records)
    assert warned == (harm is not marked_by_kafka)


def test_the_record_is_durable_before_the_marker(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    directory = Directory(tmp_path / "data", disk)
    three_segments(directory)
    disk.crash(mode="drop")
    os.truncate(directory.file(3), SIZE)
    disk.settle()
    directory.start()
    assert directory.damaged_places
    directory.stop()


def test_the_record_reads_back() -> None:
    logs = {
        TopicPartition("orders", 1): ClosedLog(120, 4807, ()),
        TopicPartition("a.b_c-d", 0): ClosedLog(
            0, 2**63 - 1, (ClosedSegment(0, 10**12, -1, 0), ClosedSegment(7, 0, 34, 0xFFFFFFFF))
        ),
    }
    data = encode_closed_logs(logs)
    assert parse_closed_logs(data, "p") == logs
    assert checksum_of_closed_logs(data) == data[2:10].decode()


def with_checksum(body: bytes) -> bytes:
    return b"0 %08x\n%s" % (crc32c(body), body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1 00000000\n",
        b"0 00000001\n",
        with_checksum(b"orders 0 1 2\n"),
        with_checksum(b"orders 0 1 2 1\n"),
        with_checksum(b"orders 0 1 2 1\n0 1 2\n"),
        with_checksum(b"orders 0 1 2 1\n0 1 -2 00000000\n"),
    ],
)
def test_a_malformed_record_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="p: line"):
        parse_closed_logs(data, "p")
