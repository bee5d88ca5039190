"""Situations of a log that several tests need, and the batches that lead to them."""

import mmap
import os
from collections.abc import Callable, Iterable
from typing import Any

from odradek.files import Disk
from odradek.model import AppendOrigin
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    BatchHeader,
    compute_crc,
    peek_header,
)
from odradek.records.record import Record, read_records
from odradek.storage.log.append_analysis import LogAppendInfo
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.services import InlineTasks
from odradek.storage.segments.segment import FetchDataInfo
from odradek.testing import ManualClock
from tests.support.logs import LogFixture, batch, headers, marker

__all__ = [
    "DeferredTasks",
    "UnsyncedDisk",
    "abort",
    "append_follower",
    "append_leader",
    "bases",
    "commit",
    "epochs",
    "found_offsets",
    "idempotent",
    "log_of_spec",
    "pass_time",
    "patched",
    "records_of",
    "transactional",
    "visible",
]


class UnsyncedDisk(Disk):
    """Real files that are never synced: for tests in which nothing crashes, but much is flushed."""

    __slots__ = ()

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        os.stat(path)  # As a missing one would be noticed.

    def flush_map(self, mapping: mmap.mmap, path: str) -> None:
        pass


class DeferredTasks(InlineTasks):
    """Work waits until the test lets it run, as work on another thread does."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.submitted: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self.submitted.append((work, done))

    def run(self, count: int | None = None) -> None:
        """Does all that was submitted, or the first `count`, in order."""
        while self.submitted and count != 0:
            InlineTasks.submit(self, *self.submitted.pop(0))
            count = None if count is None else count - 1


def append_leader(
    log: Log,
    records: bytes | bytearray,
    *,
    epoch: int = 0,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> LogAppendInfo:
    """Appends as the leader of `epoch`."""
    return log.append_as_leader(records, leader_epoch=epoch, origin=origin)


def append_follower(log: Log, *ranges: tuple[int, int], epoch: int = 0) -> LogAppendInfo:
    """Appends one batch for each (first, last) offset, as one set that a leader sent."""
    records = b"".join(
        batch(last - first + 1, base_offset=first, leader_epoch=epoch) for first, last in ranges
    )
    return log.append_as_follower(records)


def log_of_spec(log: Log) -> Log:
    """Brings an empty log to log start 3, high watermark 8, log end 15, in one-record batches."""
    for _ in range(15):
        append_leader(log, batch())
    log.update_high_watermark(8)
    log.maybe_increment_log_start_offset(3)
    return log


def idempotent(
    sequence: int, record_count: int = 1, *, producer_id: int = 4000, epoch: int = 0, **fields: Any
) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(
        record_count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **fields,
    )


def transactional(
    sequence: int, record_count: int = 1, *, producer_id: int = 4000, **fields: Any
) -> bytearray:
    """A batch inside a transaction."""
    return idempotent(
        sequence, record_count, producer_id=producer_id, is_transactional=True, **fields
    )


def commit(log: Log, producer_id: int = 4000, **fields: Any) -> LogAppendInfo:
    """Ends the transaction of a producer well."""
    records = marker(commit=True, producer_id=producer_id, **fields)
    return append_leader(log, records, origin=AppendOrigin.COORDINATOR)


def abort(log: Log, producer_id: int = 4000, **fields: Any) -> LogAppendInfo:
    """Ends the transaction of a producer by taking it back."""
    records = marker(commit=False, producer_id=producer_id, **fields)
    return append_leader(log, records, origin=AppendOrigin.COORDINATOR)


def patched(records: bytes | bytearray, **fields: int) -> bytearray:
    """The batch with other header fields and a checksum that fits them."""
    changed = bytearray(records)
    header = peek_header(changed)
    assert header is not None
    HEADER.pack_into(changed, 0, *header._replace(**fields))
    if "crc" not in fields:
        crc = compute_crc(changed, 0, len(changed))
        changed[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return changed


def pass_time(fixture: LogFixture, ms: int) -> int:
    """Lets time pass and does what is due then; returns how much that was."""
    tasks = fixture.services.tasks
    assert isinstance(tasks, InlineTasks)
    fixture.clock.advance(ms)
    return tasks.run_due()


def records_of(records: bytes | bytearray) -> list[Record]:
    """All records of the batches."""
    found: list[Record] = []
    position = 0
    for header in headers(records):
        found.extend(read_records(records, position=position, header=header))
        position += header.size
    return found


def found_offsets(result: FetchDataInfo) -> list[int]:
    """Offsets of the whole batches in what a read found."""
    return [
        offset
        for header in headers(result.read())
        for offset in range(header.base_offset, header.next_offset)
    ]


def visible(log: Log, start: int = 0) -> list[int]:
    """Offsets of the records that a read_committed consumer delivers, by the rules of clients."""
    delivered: list[int] = []
    offset = start
    while True:
        result = log.read(offset, 1 << 20, FetchIsolation.TXN_COMMITTED)
        assert result.aborted_transactions is not None
        found = headers(result.read())
        if not found:
            return delivered
        pending = sorted(result.aborted_transactions, key=lambda t: t.first_offset)
        delivered.extend(o for o in _filtered(found, pending) if o >= offset)
        offset = found[-1].next_offset


def _filtered(found: Iterable[BatchHeader], pending: list[Any]) -> Iterable[int]:
    aborting: set[int] = set()
    for header in found:
        while pending and pending[0].first_offset <= header.last_offset:
            aborting.add(pending.pop(0).producer_id)
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield from range(header.base_offset, header.next_offset)


def epochs(log: Log) -> list[tuple[int, int]]:
    """The leader epochs of a log with their start offsets."""
    return [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]


def bases(log: Log) -> list[int]:
    """Base offsets of the log's segments."""
    return [segment.base_offset for segment in log.segments]
