"""What stands in the files of a log, as lines to read: the inspection side of `storage`.

Files are opened read-only and never repaired here; what is wrong is said in its place. Field names
are those of Kafka's own dump tool, so that eyes and scripts find what they know.

| file                                | a line for each | checked                                     |
|-------------------------------------|-----------------|---------------------------------------------|
| `.log`                              | batch, record   | checksum, offsets, record structure         |
| `.index`, `.timeindex`              | entry           | order, and against the `.log` beside it     |
| `.txnindex`                         | transaction     | length, version, order                      |
| `.snapshot`                         | producer        | length, version, checksum                   |
| `leader-epoch-checkpoint`, `*-offset-checkpoint` | entry | version, count, syntax                   |

A life stage behind the suffix (`.deleted`, `.cleaned`, `.swap`) changes nothing.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from odradek.errors import ApiError, LogDataError
from odradek.files import Disk, read_whole
from odradek.records.batch import CURRENT_MAGIC, BatchHeader, Buffer
from odradek.records.compression import Codec
from odradek.records.control import parse_control_type, parse_end_transaction_marker
from odradek.records.record import Record, read_records
from odradek.storage import paths
from odradek.storage.checkpoints import parse_epoch_checkpoint, parse_offset_checkpoint
from odradek.storage.offset_index import OffsetIndex
from odradek.storage.producer_snapshot import parse_snapshot
from odradek.storage.scan import Scan
from odradek.storage.time_index import TimeIndex
from odradek.storage.transaction_index import TransactionIndex

__all__ = ["DumpLine", "dump_file"]

_STAGES = (paths.DELETED_SUFFIX, paths.CLEANED_SUFFIX, paths.SWAP_SUFFIX)


class DumpLine(NamedTuple):
    """One line of output."""

    text: str
    is_problem: bool = False


def dump_file(path: str, *, disk: Disk, records: bool = False) -> Iterator[DumpLine]:
    """Describes one file.

    Args:
        path: A file of a partition directory, or a checkpoint.
        disk: Where it lives.
        records: Whether the records of each batch are shown too.

    Yields:
        Lines in the order of the file; a problem where it was found.
    """
    name = os.path.basename(path)
    for stage in _STAGES:
        name = name.removesuffix(stage)
    yield DumpLine(f"Dumping {path}")
    try:
        if os.path.isdir(path):
            yield DumpLine(f"{path}: is a directory, expected a file of a log", True)
        elif name == paths.LEADER_EPOCH_CHECKPOINT:
            yield from _dump_epochs(path, disk)
        elif name.endswith("-offset-checkpoint"):
            yield from _dump_checkpoint(path, disk)
        elif (base_offset := paths.offset_from_name(name)) is not None:
            yield from _dump_segment_file(path, name, base_offset, disk, records)
        else:
            yield DumpLine(
                f"{path}: not a file of a log; expected twenty digits and one of .log .index"
                " .timeindex .txnindex .snapshot, or a checkpoint",
                True,
            )
    except LogDataError as error:
        yield DumpLine(str(error), True)
    except OSError as error:
        yield DumpLine(f"{path}: {error.strerror or error}", True)


def _dump_segment_file(
    path: str, name: str, base_offset: int, disk: Disk, records: bool
) -> Iterator[DumpLine]:
    match os.path.splitext(name)[1]:
        case paths.LOG_SUFFIX:
            yield from _dump_log(path, base_offset, disk, records)
        case paths.INDEX_SUFFIX:
            yield from _dump_offset_index(path, base_offset, disk)
        case paths.TIME_INDEX_SUFFIX:
            yield from _dump_time_index(path, base_offset, disk)
        case paths.TRANSACTION_INDEX_SUFFIX:
            yield from _dump_transaction_index(path, base_offset, disk)
        case paths.SNAPSHOT_SUFFIX:
            yield from _dump_snapshot(path, disk)
        case suffix:
            yield DumpLine(
                f"{path}: unknown kind {suffix!r}, expected .log .index .timeindex .txnindex"
                " .snapshot",
                True,
            )


# The log file


def _dump_log(path: str, base_offset: int, disk: Disk, records: bool) -> Iterator[DumpLine]:
    yield DumpLine(f"Log starting offset: {base_offset}")
    fd = disk.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        scan = Scan(disk, fd, 0, size, check_crc=True)
        next_offset = base_offset
        for position, header, view, is_crc_valid in scan:
            yield DumpLine(_batch_line(position, header, is_crc_valid))
            if not is_crc_valid:
                yield DumpLine(f"{path}: the batch at position {position} fails its checksum", True)
            elif header.magic >= CURRENT_MAGIC and header.base_offset < next_offset:
                yield DumpLine(
                    f"{path}: the batch at position {position} starts at offset"
                    f" {header.base_offset}, expected {next_offset} or more",
                    True,
                )
            next_offset = header.next_offset
            if records:
                yield from _dump_records(path, position, header, view)
        if scan.damage is not None:
            yield DumpLine(
                f"{path}: {scan.damage.reason}, at position {scan.damage.position};"
                f" {size - scan.valid_end} bytes behind it are not shown",
                True,
            )
    finally:
        disk.close(fd)


def _batch_line(position: int, header: BatchHeader, is_crc_valid: bool) -> str:
    codec = header.codec_id
    codec_name = Codec(codec).name.lower() if codec <= Codec.ZSTD else f"unknown({codec})"
    time_name = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    line = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
        f" count: {header.record_count} baseSequence: {header.base_sequence}"
        f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch}"
        f" isTransactional: {_yes(header.is_transactional)} isControl: {_yes(header.is_control)}"
    )
    if header.delete_horizon_ms is not None:
        line += f" deleteHorizonMs: {header.delete_horizon_ms}"
    return (
        f"{line} position: {position} {time_name}: {header.max_timestamp} size: {header.size}"
        f" magic: {header.magic} compresscodec: {codec_name} crc: {header.crc}"
        f" isvalid: {_yes(is_crc_valid)}"
    )


def _dump_records(
    path: str, position: int, header: BatchHeader, view: Buffer
) -> Iterator[DumpLine]:
    time_name = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    try:
        for record in read_records(view, header=header):
            line = (
                f"| offset: {record.offset} {time_name}: {record.timestamp}"
                f" keySize: {-1 if record.key is None else len(record.key)}"
                f" valueSize: {-1 if record.value is None else len(record.value)}"
            )
            if header.is_control:
                yield DumpLine(line + _marker_text(record, view))
                continue
            headers = ",".join(f"{key}={_text(value)}" for key, value in record.headers)
            yield DumpLine(
                f"{line} headers: [{headers}] key: {_text(record.key)}"
                f" payload: {_text(record.value)}"
            )
    except ApiError as error:
        yield DumpLine(f"{path}: records of the batch at position {position}: {error}", True)


def _marker_text(record: Record, view: Buffer) -> str:
    kind = parse_control_type(record.key)
    if kind is None:
        return " controlType: unknown"
    marker = parse_end_transaction_marker(view)
    if marker is None:
        return f" controlType: {kind.name}({kind.value})"
    return f" endTxnMarker: {kind.name} coordinatorEpoch: {marker.coordinator_epoch}"


def _text(data: bytes | None) -> str:
    """Bytes as text on one line; what does not print is escaped."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _yes(value: bool) -> str:
    return "true" if value else "false"


# Indexes


class _Batches:
    """The batches of the log file beside an index, to compare its entries with."""

    def __init__(self, index_path: str, disk: Disk) -> None:
        stem, stage = index_path, ""
        for candidate in _STAGES:
            if stem.endswith(candidate):
                stem, stage = stem.removesuffix(candidate), candidate
        self.path = os.path.splitext(stem)[0] + paths.LOG_SUFFIX + stage
        self.is_known = os.path.exists(self.path)
        self.last_offset_at: dict[int, int] = {}  # Position of a batch -> its last offset.
        self.max_timestamp_up_to: dict[int, int] = {}  # Last offset of a batch -> largest so far.
        if self.is_known:
            self._read(disk)

    def _read(self, disk: Disk) -> None:
        fd = disk.open(self.path, os.O_RDONLY)
        try:
            largest = -1
            for position, header, _, _ in Scan(disk, fd, 0, os.fstat(fd).st_size, check_crc=False):
                largest = max(largest, header.max_timestamp)
                self.last_offset_at[position] = header.last_offset
                self.max_timestamp_up_to[header.last_offset] = largest
        finally:
            disk.close(fd)


def _dump_offset_index(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    index = OffsetIndex(path, base_offset, max_index_size=0, writable=False, disk=disk)
    try:
        batches = _Batches(path, disk)
        previous = -1
        for offset, position in index:
            if previous >= 0 and offset == base_offset and position == 0:
                yield DumpLine("The rest is preallocated and unused")
                break
            yield DumpLine(f"offset: {offset} position: {position}")
            if offset <= previous:
                yield DumpLine(f"{path}: offset {offset} does not follow {previous}", True)
            elif batches.is_known and batches.last_offset_at.get(position) != offset:
                found = batches.last_offset_at.get(position)
                yield DumpLine(
                    f"{path}: entry {offset} -> {position}: "
                    + ("no batch starts there" if found is None else f"the batch ends at {found}"),
                    True,
                )
            previous = offset
        else:
            index.sanity_check()
    finally:
        index.close()


def _dump_time_index(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    index = TimeIndex(path, base_offset, max_index_size=0, writable=False, disk=disk)
    try:
        batches = _Batches(path, disk)
        previous_timestamp, previous_offset = -1, -1
        for timestamp, offset in index:
            if previous_offset >= 0 and timestamp == 0 and offset == base_offset:
                yield DumpLine("The rest is preallocated and unused")
                break
            yield DumpLine(f"timestamp: {timestamp} offset: {offset}")
            expected = batches.max_timestamp_up_to.get(offset)
            if timestamp <= previous_timestamp or offset < previous_offset:
                yield DumpLine(
                    f"{path}: entry {timestamp} -> {offset} does not follow"
                    f" {previous_timestamp} -> {previous_offset}",
                    True,
                )
            elif batches.is_known and expected != timestamp:
                yield DumpLine(
                    f"{path}: entry {timestamp} -> {offset}: "
                    + (
                        "no batch ends there"
                        if expected is None
                        else f"the largest timestamp up to it is {expected}"
                    ),
                    True,
                )
            previous_timestamp, previous_offset = timestamp, offset
        else:
            index.sanity_check()
    finally:
        index.close()


def _dump_transaction_index(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    if not os.path.exists(path):
        raise FileNotFoundError(2, "No such file or directory", path)
    index = TransactionIndex(path, base_offset, disk=disk)
    for entry in index.all_entries():
        yield DumpLine(
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset}"
            f" lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )
    index.sanity_check()


# Snapshots and checkpoints


def _dump_snapshot(path: str, disk: Disk) -> Iterator[DumpLine]:
    for entry in parse_snapshot(read_whole(disk, path), path):
        first = entry.current_transaction_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
            f" coordinatorEpoch: {entry.coordinator_epoch}"
            f" currentTxnFirstOffset: {'None' if first is None else first}"
            f" lastTimestamp: {entry.last_timestamp}"
        )
        for batch in entry.batches:
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta}"
                f" timestamp: {batch.timestamp}"
            )
        yield DumpLine(line)


def _dump_epochs(path: str, disk: Disk) -> Iterator[DumpLine]:
    for epoch, start_offset in parse_epoch_checkpoint(read_whole(disk, path), path):
        yield DumpLine(f"epoch: {epoch} startOffset: {start_offset}")


def _dump_checkpoint(path: str, disk: Disk) -> Iterator[DumpLine]:
    for (topic, partition), offset in parse_offset_checkpoint(read_whole(disk, path), path).items():
        yield DumpLine(f"topic: {topic} partition: {partition} offset: {offset}")
