"""Logs on a temporary directory, and batches to put in them.

with LogFixture(tmp_path) as fixture:
    log = fixture.open()
    log.append_as_leader(batch(3), leader_epoch=0)
    log = fixture.reopen(clean=True)
    assert offsets(read_all(log)) == [0, 1, 2]
"""

import contextlib
import mmap
import os
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from odradek.errors import CorruptRecordError
from odradek.files import OPEN_MODE, Disk
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, is_crc_valid, iter_headers, parse_header
from odradek.records.builder import build_batch
from odradek.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.services import InlineTasks, LogServices
from odradek.storage.recovery.loader import load_log
from odradek.testing import ManualClock

__all__ = [
    "PARTITION",
    "T0",
    "LogFixture",
    "UnsyncedDisk",
    "WatchfulDisk",
    "batch",
    "file_names",
    "flip_bit",
    "headers",
    "make_services",
    "marker",
    "offsets",
    "read_all",
    "readable_offsets",
    "rename_directory",
]

PARTITION = TopicPartition("t", 0)
T0 = 1_600_000_000_000  # Where a `ManualClock` starts, and the time of a batch's first record.


class UnsyncedDisk(Disk):
    """Does not wait for the hardware: for tests that ask nothing about durability."""

    __slots__ = ()

    def fsync(self, fd: int) -> None:
        """Leaves it to the kernel."""

    def fsync_dir(self, path: str) -> None:
        """Leaves it to the kernel."""

    def flush_map(self, mapping: mmap.mmap, path: str) -> None:
        """Leaves it to the kernel; a closed mapping is an error all the same."""
        len(mapping)


class WatchfulDisk(UnsyncedDisk):
    """Notes the files that are opened for reading, or would be if they were there."""

    __slots__ = ("read",)

    def __init__(self) -> None:
        self.read: list[str] = []

    def open(self, path: str, flags: int, mode: int = OPEN_MODE) -> int:
        if not flags & (os.O_WRONLY | os.O_RDWR):
            self.read.append(os.path.basename(path))
        return super().open(path, flags, mode)


def make_services(
    disk: Disk | None = None, clock: ManualClock | None = None, seed: int = 1
) -> LogServices:
    """What a log needs, with everything that happens by itself in the test's hands."""
    clock = clock or ManualClock()
    return LogServices(
        disk=disk or UnsyncedDisk(), clock=clock, random=Random(seed), tasks=InlineTasks(clock)
    )


def rename_directory(log: Log, name: str) -> None:
    """Renames the partition directory of a log, which goes on."""
    log.settle()
    target = os.path.join(log.log_directory.path, name)
    log.services.disk.rename(log.directory, target)
    log.services.disk.fsync_dir(log.log_directory.path)
    log.follow_directory(target)


def batch(
    record_count: int = 1,
    *,
    size: int | None = None,
    timestamp: int = T0,
    base_offset: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    **fields: Any,
) -> bytearray:
    """A batch of `record_count` records, one millisecond apart.

    Args:
        record_count: How many.
        size: Bytes of the whole batch, by a long enough value of its last record.
        timestamp: Of the first record.
        base_offset: As in `build_batch`; a leader wants 0.
        key: Of every record.
        value: Of every record; ignored for the last one if `size` is given.
        fields: Further arguments of `build_batch`.
    """
    values = [value] * record_count

    def build() -> bytearray:
        records = [(timestamp + i, key, v, ()) for i, v in enumerate(values)]
        return build_batch(records, base_offset=base_offset, **fields)

    built = build()
    if size is None:
        return built
    # Length prefixes grow with the value, so a few corrections may be needed.
    length = max(0, size - len(built) + len(value or b""))
    for _ in range(4):
        values[-1] = b"v" * length
        built = build()
        if len(built) == size:
            return built
        length += size - len(built)
    raise ValueError(f"no batch of {record_count} records has {size} bytes, {len(built)} has")


def marker(
    *,
    commit: bool,
    producer_id: int = 4000,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = T0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction; append it with `AppendOrigin.COORDINATOR`."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return build_end_transaction_marker(
        EndTransactionMarker(kind, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def read_all(log: Log, isolation: FetchIsolation = FetchIsolation.LOG_END) -> bytes:
    """All batches from the log start on, as a consumer reads them: fetch by fetch.

    Batches below what was fetched are left out; the first one that cannot be parsed ends it.
    """
    chunks = []
    offset, fetched = log.log_start_offset, -1
    while fetched < offset < log.log_end_offset:
        fetched = offset
        data = log.read(offset, 1 << 20, isolation).read()
        with contextlib.suppress(CorruptRecordError):
            for position, header in iter_headers(data):
                if header.next_offset > offset:
                    chunks.append(data[position : position + header.size])
                    offset = header.next_offset
    return b"".join(chunks)


def readable_offsets(log: Log) -> list[int]:
    """Offsets that can be read, each asked for by itself: in a whole batch with a good checksum."""
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        data = log.read(offset, 1, FetchIsolation.LOG_END).read()
        try:
            header = parse_header(data)
        except CorruptRecordError:
            continue
        if (
            header is not None
            and header.base_offset <= offset <= header.last_offset
            and is_crc_valid(data, 0, header.size)
        ):
            found.append(offset)
    return found


def headers(records: bytes | bytearray) -> list[BatchHeader]:
    """Headers of the whole batches in `records`."""
    return [header for _, header in iter_headers(records)]


def offsets(records: bytes | bytearray) -> list[int]:
    """All offsets that the batches in `records` cover."""
    return [
        offset
        for header in headers(records)
        for offset in range(header.base_offset, header.next_offset)
    ]


def file_names(directory: str | os.PathLike[str]) -> set[str]:
    """Names of the files in a directory."""
    return {entry.name for entry in os.scandir(directory) if entry.is_file()}


def flip_bit(path: str | os.PathLike[str], bit: int) -> None:
    """Flips one bit of a file, counted from its start; a negative one from its end."""
    data = bytearray(Path(path).read_bytes())
    bit %= len(data) * 8
    data[bit // 8] ^= 0x80 >> bit % 8
    Path(path).write_bytes(data)


class LogFixture:
    """A data directory with one log in it, which a test may close, abandon and open again.

    Attributes:
        log_directory: The data directory, at `path`.
        directory: The partition directory, ``<path>/t-0``.
        log: The log as of the last `open`; None before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
        config: LogConfig | None = None,
    ) -> None:
        os.makedirs(path, exist_ok=True)
        self.clock = clock or ManualClock()
        self.services = make_services(disk, self.clock)
        self.disk = self.services.disk
        self.config = config or LogConfig()
        self.log_directory = LogDirectory(os.fspath(path), disk=self.disk)
        self.directory = os.path.join(self.log_directory.path, str(PARTITION))
        self.log: Log | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        config: LogConfig | None = None,
        directory: str | None = None,
    ) -> Log:
        """Loads the log; `config` is kept for later opens."""
        self.config = config or self.config
        # As a new process would: what took the directory offline is over.
        self.log_directory = LogDirectory(self.log_directory.path, disk=self.disk)
        self.log = load_log(
            directory or self.directory,
            PARTITION,
            config=self.config,
            log_directory=self.log_directory,
            services=self.services,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            had_clean_shutdown=clean,
        )
        self.log_directory.logs[self.log.name] = self.log
        return self.log

    def close(self) -> int:
        """Stops in order; returns the recovery point, as its checkpoint would have it."""
        assert self.log is not None
        self.log.close()
        return self.log.recovery_point

    def abandon(self) -> int:
        """Stops without a word, as a killed process; returns the recovery point.

        On a `SimDisk`, `kill` or `crash` may follow; call this before them.
        """
        if self.log is None:
            return 0
        self.log.mark_offline("the process was killed")
        return self.log.recovery_point

    def reopen(self, *, clean: bool, config: LogConfig | None = None) -> Log:
        """Stops, in order if `clean`, and opens with the recovery point and log start it had."""
        assert self.log is not None
        recovery_point = self.close() if clean else self.abandon()
        start = self.log.log_start_offset if self.log.has_log_start_above_first_segment else 0
        return self.open(
            clean=clean, recovery_point=recovery_point, log_start_offset=start, config=config
        )

    def path(self, name: str) -> Path:
        """A file of the partition directory."""
        return Path(self.directory, name)

    def names(self) -> set[str]:
        """File names in the partition directory."""
        return file_names(self.directory)

    def append(self, batches: int = 1, *, size: int | None = None, epoch: int = 0) -> None:
        """Appends one-record batches."""
        assert self.log is not None
        built = batch(size=size)
        for _ in range(batches):
            self.log.append_as_leader(bytearray(built), leader_epoch=epoch)
