"""The content of the files of a log as text: the inspection side of `storage`.

Files are opened read-only and never repaired; a problem is reported at its place. Field names are
those of Kafka's own dump tool, so that people and scripts recognize them.

| file                      | a line for each | checked                                          |
|---------------------------|-----------------|--------------------------------------------------|
| `.log`                    | batch, record   | checksum, offsets; records only if they are shown|
| `.index`, `.timeindex`    | entry           | order, and against the `.log` beside it          |
| `.txnindex`               | transaction     | length, version, order                           |
| `.txnproof`               | file            | against the `.txnindex` beside it                |
| `.snapshot`               | producer        | length, version, checksum, offsets               |
| `.recent`                 | older batch     | length, version, checksum                        |
| `leader-epoch-checkpoint` | epoch           | version, count, syntax, order                    |
| `…-offset-checkpoint`     | partition       | version, count, syntax                           |

A life stage after the suffix (`.deleted`, `.cleaned`, `.swap`) changes nothing.

The files may belong to a running broker. Indexes are therefore read and not mapped: a mapping
kills the process if the owner truncates the file. The zeros after the entries of an active
segment's index are preallocated space, not entries.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from odradek.errors import ApiError, DecodeError, LogDataError
from odradek.files import Disk, read_whole
from odradek.records.batch import CURRENT_MAGIC, BatchHeader, Buffer, increment_sequence
from odradek.records.compression import Codec
from odradek.records.control import parse_control_type, parse_end_transaction_marker
from odradek.records.record import Record, read_records
from odradek.storage import paths
from odradek.storage.directories.checkpoints import parse_epoch_checkpoint, parse_offset_checkpoint
from odradek.storage.indexes.index import Index, SlotColumn
from odradek.storage.indexes.offset_index import OffsetIndex
from odradek.storage.indexes.time_index import TimeIndex
from odradek.storage.indexes.transaction_index import TransactionIndex
from odradek.storage.log.config import INT32_MAX
from odradek.storage.producers.recent_batches import parse_recent
from odradek.storage.producers.snapshot import parse_snapshot
from odradek.storage.segments.scan import Scan

__all__ = ["DumpLine", "RecordDecoder", "dump_file"]

_STAGES = (paths.DELETED_SUFFIX, paths.CLEANED_SUFFIX, paths.SWAP_SUFFIX)


# Key and value of a record as text; raises DecodeError if they are not what it expects.
RecordDecoder: TypeAlias = Callable[[bytes | None, bytes | None], tuple[str, str]]


class DumpLine(NamedTuple):
    """One line of output.

    `fields` has the same for programs, under the names of the text: the kind of thing in `type`,
    numbers as numbers. Lines about a whole file, and problems, have none.
    """

    text: str
    is_problem: bool = False
    fields: Mapping[str, object] | None = None


def dump_file(
    path: str, *, disk: Disk, records: bool = False, decoder: RecordDecoder | None = None
) -> Iterator[DumpLine]:
    """Describes one file.

    Args:
        path: A file of a partition directory, or a checkpoint.
        disk: Where it lives.
        records: Whether the records of each batch are shown, too.
        decoder: Makes text of their keys and values; without one, their bytes are shown as text.

    Yields:
        Lines in the order of the file; a problem where it was found.
    """
    yield DumpLine(f"Dumping {path}")
    try:
        yield from _dump(path, disk, _Shown(records, decoder or _raw_text))
    except LogDataError as error:
        yield DumpLine(str(error), True)
    except OSError as error:
        yield DumpLine(f"{error.filename or path}: {error.strerror or error}", True)


class _Shown(NamedTuple):
    """How records are shown."""

    records: bool
    decoder: RecordDecoder


def _dump(path: str, disk: Disk, shown: _Shown) -> Iterator[DumpLine]:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
        yield DumpLine(f"{path}: is {kind}, expected a file of a log", True)
        return
    name = os.path.basename(path)
    for stage in _STAGES:
        name = name.removesuffix(stage)
    if name == paths.LEADER_EPOCH_CHECKPOINT:
        yield from _dump_epochs(path, disk)
    elif name.endswith("-offset-checkpoint"):
        yield from _dump_checkpoint(path, disk)
    elif (base_offset := paths.offset_from_name(name)) is not None:
        yield from _dump_segment_file(path, name, base_offset, disk, shown)
    else:
        yield DumpLine(
            f"{path}: not a file of a log; expected twenty digits and one of .log .index"
            " .timeindex .txnindex .txnproof .snapshot .recent, or a checkpoint",
            True,
        )


def _line(kind: str, **fields: object) -> DumpLine:
    """A line whose text is all of its fields."""
    return DumpLine(_pairs(fields), fields={"type": kind, **fields})


def _pairs(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}: {_value(value)}" for name, value in fields.items())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def _dump_segment_file(
    path: str, name: str, base_offset: int, disk: Disk, shown: _Shown
) -> Iterator[DumpLine]:
    match os.path.splitext(name)[1]:
        case paths.LOG_SUFFIX:
            yield from _dump_log(path, base_offset, disk, shown)
        case paths.INDEX_SUFFIX:
            yield from _dump_offset_index(path, base_offset, disk)
        case paths.TIME_INDEX_SUFFIX:
            yield from _dump_time_index(path, base_offset, disk)
        case paths.TRANSACTION_INDEX_SUFFIX:
            yield from _dump_transaction_index(path, base_offset, disk)
        case paths.TRANSACTION_PROOF_SUFFIX:
            yield from _dump_transaction_proof(path, base_offset, disk)
        case paths.SNAPSHOT_SUFFIX:
            yield from _dump_snapshot(path, base_offset, disk)
        case paths.RECENT_SUFFIX:
            yield from _dump_recent(path, disk)
        case suffix:
            yield DumpLine(
                f"{path}: unknown kind {suffix!r}, expected .log .index .timeindex .txnindex"
                " .txnproof .snapshot .recent",
                True,
            )


# The log file


def _dump_log(path: str, base_offset: int, disk: Disk, shown: _Shown) -> Iterator[DumpLine]:
    yield DumpLine(f"Log starting offset: {base_offset}")
    fd = disk.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        scan = Scan(disk, fd, 0, size, check_crc=True)
        next_offset = base_offset
        for position, header, view, is_crc_valid in scan:
            yield _batch_line(position, header, is_crc_valid=is_crc_valid)
            if not is_crc_valid:
                yield DumpLine(f"{path}: the batch at position {position} fails its checksum", True)
            elif (problem := _offset_problem(header, base_offset, next_offset)) is not None:
                yield DumpLine(f"{path}: the batch at position {position} {problem}", True)
            else:
                next_offset = header.next_offset
            if shown.records:
                yield from _dump_records(path, position, header, view, shown.decoder)
        if scan.damage is not None:
            yield DumpLine(
                f"{path}: {scan.damage.reason}, at position {scan.damage.position};"
                f" {size - scan.valid_end} bytes behind it are not shown",
                True,
            )
    finally:
        disk.close(fd)


def _offset_problem(header: BatchHeader, base_offset: int, next_offset: int) -> str | None:
    """The problem with the offsets of a batch whose checksum is valid; None if there is none.

    The checksum does not cover the first offset. Old formats do not promise that offsets grow.
    """
    if header.magic >= CURRENT_MAGIC:
        if header.base_offset < next_offset:
            return f"starts at offset {header.base_offset}, expected {next_offset} or more"
        if header.last_offset < header.base_offset:
            return f"starts at offset {header.base_offset} and ends at {header.last_offset}"
    if not 0 <= header.last_offset - base_offset <= INT32_MAX:
        return (
            f"ends at offset {header.last_offset}, expected {base_offset}"
            f" to {base_offset + INT32_MAX}"
        )
    return None


def _batch_line(position: int, header: BatchHeader, *, is_crc_valid: bool) -> DumpLine:
    codec = header.codec_id
    fields: dict[str, object] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
    }
    if header.delete_horizon_ms is not None:
        fields["deleteHorizonMs"] = header.delete_horizon_ms
    fields |= {
        "position": position,
        _time_name(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": Codec(codec).name.lower() if codec <= Codec.ZSTD else f"unknown({codec})",
        "crc": header.crc,
        "isvalid": is_crc_valid,
    }
    return _line("batch", **fields)


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _dump_records(
    path: str, position: int, header: BatchHeader, view: Buffer, decoder: RecordDecoder
) -> Iterator[DumpLine]:
    try:
        for record in read_records(view, header=header):
            fields: dict[str, object] = {
                "offset": record.offset,
                _time_name(header): record.timestamp,
                "keySize": -1 if record.key is None else len(record.key),
                "valueSize": -1 if record.value is None else len(record.value),
                "sequence": _sequence_of(record, header),
            }
            if header.is_control:
                fields |= _marker_fields(record, view)
                yield DumpLine(f"| {_pairs(fields)}", fields={"type": "record", **fields})
                continue
            headers = ",".join(f"{_printable(key)}={_text(value)}" for key, value in record.headers)
            problem: DecodeError | None = None
            try:
                key, payload = decoder(record.key, record.value)
            except DecodeError as error:
                problem = error
                key, payload = _raw_text(record.key, record.value)
            yield DumpLine(
                f"| {_pairs(fields)} headers: [{headers}] key: {key} payload: {payload}",
                fields={
                    "type": "record",
                    **fields,
                    "headers": [{"key": name, "value": data} for name, data in record.headers],
                    "key": record.key if problem or decoder is _raw_text else key,
                    "payload": record.value if problem or decoder is _raw_text else payload,
                },
            )
            if problem is not None:
                yield DumpLine(f"{path}: the record at offset {record.offset}: {problem}", True)
    except ApiError as error:
        yield DumpLine(f"{path}: records of the batch at position {position}: {error}", True)


def _sequence_of(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return header.base_sequence
    return increment_sequence(header.base_sequence, max(0, record.offset - header.base_offset))


def _marker_fields(record: Record, view: Buffer) -> dict[str, object]:
    kind = parse_control_type(record.key)
    if kind is None:
        return {"controlType": "unknown"}
    marker = parse_end_transaction_marker(view)
    if marker is None:
        return {"controlType": f"{kind.name}({kind.value})"}
    return {"endTxnMarker": kind.name, "coordinatorEpoch": marker.coordinator_epoch}


def _raw_text(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    return _text(key), _text(value)


def _text(data: bytes | None) -> str:
    return "null" if data is None else _printable(data.decode("utf-8", "backslashreplace"))


def _printable(text: str) -> str:
    """The text on one line; characters that do not print are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# Indexes


class _Batches:
    """The batches of the log file beside an index, to compare its entries with."""

    def __init__(self, index_path: str, disk: Disk) -> None:
        stem, stage = index_path, ""
        for candidate in _STAGES:
            if stem.endswith(candidate):
                stem, stage = stem.removesuffix(candidate), candidate
        self.path = os.path.splitext(stem)[0] + paths.LOG_SUFFIX + stage
        self.last_offset_at: dict[int, int] = {}  # Position of a batch -> its last offset.
        self.max_timestamp_up_to: dict[int, int] = {}  # Last offset of a batch -> largest so far.
        try:
            fd = disk.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            self.is_known = False
            return
        self.is_known = True
        try:
            largest = -1
            for position, header, _, _ in Scan(disk, fd, 0, os.fstat(fd).st_size, check_crc=False):
                largest = max(largest, header.max_timestamp)
                self.last_offset_at[position] = header.last_offset
                self.max_timestamp_up_to[header.last_offset] = largest
        finally:
            disk.close(fd)


class _Entries:
    """The used slots of an index file, as (key, value) with absolute offsets."""

    def __init__(self, path: str, kind: type[Index], base_offset: int, disk: Disk) -> None:
        self._path = path
        self._data = data = read_whole(disk, path)
        self._kind = kind
        self._base_offset = base_offset
        self._slots = len(data) // kind.entry_size
        used = -(-len(data.rstrip(b"\0")) // kind.entry_size)
        # A slot of zeros alone in its file is an entry: more than one slot is preallocated.
        self._used = min(used, self._slots) if self._slots != 1 else 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        key, value = self._kind.key, self._kind.value
        for slot in range(self._used):
            yield self._field(key, slot), self._field(value, slot)

    def _field(self, column: SlotColumn, slot: int) -> int:
        stored: int = column.unpack(self._data, slot * column.stride + column.shift)[0]
        return stored + self._base_offset if column.is_relative else stored

    def closing_lines(self, batches: _Batches) -> Iterator[DumpLine]:
        """The lines about the file as a whole."""
        if self._used < self._slots:
            unused = self._slots - self._used
            yield DumpLine(f"{unused} slots behind are preallocated and unused")
        if not batches.is_known:
            yield DumpLine(f"Not compared with the log: there is no {batches.path}")
        size = self._kind.entry_size
        if len(self._data) % size:
            length = len(self._data)
            yield DumpLine(f"{self._path}: length {length} is no multiple of {size}", True)


def _dump_offset_index(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    entries = _Entries(path, OffsetIndex, base_offset, disk)
    batches = _Batches(path, disk)
    previous = base_offset - 1
    for offset, position in entries:
        yield _line("entry", offset=offset, position=position)
        problem = None
        if offset <= previous:
            problem = f"does not follow offset {previous}"
        elif position < 0:
            problem = "no file has such a position"
        elif batches.is_known and (found := batches.last_offset_at.get(position)) != offset:
            problem = "no batch starts there" if found is None else f"the batch ends at {found}"
        if problem is not None:
            yield DumpLine(f"{path}: entry {offset} -> {position}: {problem}", True)
        previous = max(offset, previous)
    yield from entries.closing_lines(batches)


def _dump_time_index(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    entries = _Entries(path, TimeIndex, base_offset, disk)
    batches = _Batches(path, disk)
    previous = (-1, base_offset)
    for timestamp, offset in entries:
        yield _line("entry", timestamp=timestamp, offset=offset)
        problem = None
        if timestamp <= previous[0] or offset < previous[1]:
            problem = f"does not follow {previous[0]} -> {previous[1]}"
        elif batches.is_known and (found := batches.max_timestamp_up_to.get(offset)) != timestamp:
            problem = (
                "no batch ends there"
                if found is None
                else f"the largest timestamp up to it is {found}"
            )
        if problem is not None:
            yield DumpLine(f"{path}: entry {timestamp} -> {offset}: {problem}", True)
        else:
            previous = timestamp, offset
    yield from entries.closing_lines(batches)


def _dump_transaction_index(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    index = TransactionIndex(path, base_offset, disk=disk)
    for entry in index.all_entries():
        yield _line(
            "transaction",
            version=0,
            producerId=entry.producer_id,
            firstOffset=entry.first_offset,
            lastOffset=entry.last_offset,
            lastStableOffset=entry.last_stable_offset,
        )
    index.sanity_check()


def _dump_transaction_proof(path: str, base_offset: int, disk: Disk) -> Iterator[DumpLine]:
    head, _, stage = path.rpartition(paths.TRANSACTION_PROOF_SUFFIX)
    index_path = f"{head}{paths.TRANSACTION_INDEX_SUFFIX}{stage}"
    yield DumpLine(f"Beside the transaction index {index_path}")
    TransactionIndex(index_path, base_offset, disk=disk).sanity_check()


# Snapshots and checkpoints


def _dump_snapshot(path: str, offset: int, disk: Disk) -> Iterator[DumpLine]:
    for entry in parse_snapshot(read_whole(disk, path), path):
        first = entry.current_transaction_first_offset
        fields: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": first,
            "lastTimestamp": entry.last_timestamp,
        }
        batches: list[Mapping[str, object]] = [
            {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
            for batch in entry.batches
        ]
        yield DumpLine(
            " ".join(_pairs(part) for part in (fields, *batches)),
            fields={"type": "producer", **fields, "batches": batches},
        )
        known = max([-1 if first is None else first, *(b.last_offset for b in entry.batches)])
        if known >= offset:
            yield DumpLine(
                f"{path}: producer {entry.producer_id} is at offset {known},"
                f" expected offsets below {offset}",
                True,
            )


def _dump_recent(path: str, disk: Disk) -> Iterator[DumpLine]:
    offset, snapshot_crc, producers = parse_recent(read_whole(disk, path), path)
    yield DumpLine(f"Beside the snapshot of offset {offset}, CRC {snapshot_crc:08x}")
    for producer_id, batches in producers:
        for batch in batches:
            yield _line(
                "batch",
                producerId=producer_id,
                firstSequence=batch.first_sequence,
                lastSequence=batch.last_sequence,
                lastOffset=batch.last_offset,
                offsetDelta=batch.offset_delta,
                timestamp=batch.timestamp,
            )


def _dump_epochs(path: str, disk: Disk) -> Iterator[DumpLine]:
    for epoch, start_offset in parse_epoch_checkpoint(read_whole(disk, path), path):
        yield _line("epoch", epoch=epoch, startOffset=start_offset)


def _dump_checkpoint(path: str, disk: Disk) -> Iterator[DumpLine]:
    for (topic, partition), offset in parse_offset_checkpoint(read_whole(disk, path), path).items():
        yield _line("partition", topic=topic, partition=partition, offset=offset)
