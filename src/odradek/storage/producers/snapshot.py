"""Producer snapshots: ``<20 digits of offset>.snapshot``, the producers as of that offset.

A snapshot covers the log up to, and excluding, the offset in its name. It contains only the newest
cached batch of a producer. The batches before are in a file beside the snapshot, which is made and
removed with it (`recent_batches`); later ones are found by replaying the log from that offset.

| offset  | bytes | field                                               |
|---------|-------|-----------------------------------------------------|
| 0       | 2     | version, 1                                          |
| 2       | 4     | CRC-32C of all that follows                         |
| 6       | 4     | number of entries                                   |
| 10      | 46    | first entry; the file ends with the last one        |

| entry   | bytes | field                                               |
|---------|-------|-----------------------------------------------------|
| 0       | 8     | producer id                                         |
| 8       | 2     | producer epoch                                      |
| 10      | 4     | last sequence of the newest batch; -1: no batch     |
| 14      | 8     | last offset of the newest batch; -1: no batch       |
| 22      | 4     | offset delta of the newest batch                    |
| 26      | 8     | timestamp of the newest batch or marker, ms         |
| 34      | 4     | coordinator epoch; -1: no marker yet                |
| 38      | 8     | first offset of the open transaction; -1: none open |

The file of few producers is written in one call under its final name: a torn one fails its
checksum, and an older snapshot with more replay gives the same state. That of many is written by a
thread, and renamed once it is durable (`background_snapshot`). An entry has one timestamp, so that
a batch followed by a marker is restored with the marker's.
"""

import contextlib
import logging
import os
from collections.abc import Iterable, Sequence
from struct import Struct

from crc32c import crc32c

from odradek.errors import CorruptSnapshotError
from odradek.files import Disk, read_whole
from odradek.storage.paths import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_from_name, segment_path
from odradek.storage.producers.entry import NO_SEQUENCE, CachedBatch, ProducerEntry
from odradek.storage.producers.recent_batches import (
    delete_recent,
    encode_recent,
    parse_recent,
    read_recent,
    recent_path,
    restore_recent,
)

__all__ = [
    "crc_of",
    "delete_snapshot",
    "encode_snapshot",
    "is_vouched_for",
    "list_snapshots",
    "load_snapshot",
    "parse_snapshot",
    "rename_snapshot_deleted",
    "snapshot_path",
    "sync_snapshot",
    "write_file",
    "write_snapshot",
]

logger = logging.getLogger(__name__)

_VERSION = 1
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6  # Where the checksummed bytes begin.
_COUNT = Struct(">i")
_NO_OFFSET = -1
_NO_BATCH = CachedBatch(NO_SEQUENCE, _NO_OFFSET, 0, -1)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file for these producers, in the order given."""
    packed = [_encode_entry(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(_VERSION, crc32c(body), len(packed)) + body[_COUNT.size :]


def _encode_entry(entry: ProducerEntry) -> bytes:
    batch = entry.batches[-1] if entry.batches else _NO_BATCH
    transaction_first_offset = entry.current_transaction_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        _NO_OFFSET if transaction_first_offset is None else transaction_first_offset,
    )


def parse_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """The producers in a file's bytes; `path` is for the error message.

    Raises:
        CorruptSnapshotError: Length, version or checksum is wrong, or an entry is impossible.
    """
    if len(data) < _HEADER.size:
        raise CorruptSnapshotError(
            path, expected=f"a header of {_HEADER.size} bytes", found=f"{len(data)} bytes"
        )
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(path, expected=f"version {_VERSION}", found=version)
    computed_crc = crc32c(memoryview(data)[_CRC_END:])
    if crc != computed_crc:
        raise CorruptSnapshotError(path, expected=f"CRC {computed_crc:08x}", found=f"{crc:08x}")
    length = _HEADER.size + _ENTRY.size * count
    if count < 0 or len(data) != length:
        expected = f"{length} bytes for {count} entries"
        raise CorruptSnapshotError(path, expected=expected, found=f"{len(data)} bytes")
    entries: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]):
        entry = _parse_entry(fields, path)
        if entries.setdefault(entry.producer_id, entry) is not entry:
            found = f"{entry.producer_id} twice"
            raise CorruptSnapshotError(path, expected="each producer id once", found=found)
    return list(entries.values())


def _parse_entry(fields: tuple[int, ...], path: str) -> ProducerEntry:
    (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        transaction_first_offset,
    ) = fields
    if producer_id < 0:
        raise CorruptSnapshotError(path, expected="a producer id >= 0", found=producer_id)
    if transaction_first_offset < _NO_OFFSET:
        expected = "a transaction's first offset >= -1"
        raise CorruptSnapshotError(path, expected=expected, found=transaction_first_offset)
    entry = ProducerEntry(
        producer_id,
        producer_epoch,
        last_timestamp=timestamp,
        coordinator_epoch=coordinator_epoch,
        current_transaction_first_offset=(
            None if transaction_first_offset == _NO_OFFSET else transaction_first_offset
        ),
    )
    if last_offset != _NO_OFFSET:
        if not 0 <= offset_delta <= last_offset:
            expected = "a batch of offsets >= 0"
            found = f"last offset {last_offset}, offset delta {offset_delta}"
            raise CorruptSnapshotError(path, expected=expected, found=found)
        entry.batches.append(CachedBatch(last_sequence, last_offset, offset_delta, timestamp))
    return entry


def snapshot_path(directory: str, offset: int) -> str:
    """Path of the snapshot of `offset`."""
    return segment_path(directory, offset, SNAPSHOT_SUFFIX)


def list_snapshots(directory: str) -> list[int]:
    """Offsets of the snapshots in a partition directory, ascending; none without a directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    offsets = []
    for name in names:
        offset = offset_from_name(name)
        # The whole name: a `.snapshot.deleted` does not count, nor another program's file.
        if offset is not None and snapshot_path(directory, offset) == f"{directory}/{name}":
            offsets.append(offset)
    return sorted(offsets)


def write_snapshot(
    disk: Disk, directory: str, offset: int, entries: Sequence[ProducerEntry], *, sync: bool
) -> str:
    """Writes the snapshot of `offset` and the file beside it, durable on return if `sync`.

    Returns its path.

    Raises:
        OSError: The disk refused, or wrote only a part of it.
    """
    path = snapshot_path(directory, offset)
    data = encode_snapshot(entries)
    recent = encode_recent(entries, offset, crc_of(data))
    if recent is not None:
        _replace(disk, recent_path(directory, offset), recent, sync=sync)
    _replace(disk, path, data, sync=sync)
    if sync:
        disk.fsync_dir(directory)
    return path


def crc_of(snapshot: bytes) -> int:
    """The checksum in a snapshot's bytes."""
    crc: int = _HEADER.unpack_from(snapshot)[1]
    return crc


def write_file(disk: Disk, fd: int, path: str, data: bytes, *, sync: bool) -> None:
    """Writes a new file and closes its descriptor; `path` is for the error message.

    Raises:
        OSError: The disk refused, or wrote only a part of it.
    """
    try:
        written = disk.write(fd, data)
        if written != len(data):
            raise OSError(f"short write to {path}: {written} of {len(data)} bytes")
        if sync:
            disk.fsync(fd)
    finally:
        disk.close(fd)


def _replace(disk: Disk, path: str, data: bytes, *, sync: bool) -> None:
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    write_file(disk, fd, path, data, sync=sync)


def sync_snapshot(disk: Disk, directory: str, offset: int) -> bool:
    """Makes a snapshot and its name durable. Returns False if it does not exist any more.

    Raises:
        OSError: The disk refused.
    """
    try:
        disk.fsync_path(snapshot_path(directory, offset))
    except FileNotFoundError:
        return False
    with contextlib.suppress(FileNotFoundError):
        disk.fsync_path(recent_path(directory, offset))
    disk.fsync_dir(directory)
    return True


def load_snapshot(disk: Disk, directory: str, offset: int) -> list[ProducerEntry]:
    """The producers as of `offset`.

    Raises:
        CorruptSnapshotError: The file is damaged, or contains offsets above its own.
        OSError: It cannot be read.
    """
    path = snapshot_path(directory, offset)
    data = read_whole(disk, path)
    entries = parse_snapshot(data, path)
    for entry in entries:
        batch = entry.batches[-1] if entry.batches else _NO_BATCH
        transaction_first_offset = entry.current_transaction_first_offset
        known = batch.last_offset
        if transaction_first_offset is not None:
            known = max(known, transaction_first_offset)
        if known >= offset:
            found = f"{known} of producer {entry.producer_id}"
            raise CorruptSnapshotError(path, expected=f"offsets below {offset}", found=found)
    recent_data = read_recent(disk, directory, offset)
    if recent_data is None:
        return entries
    beside = recent_path(directory, offset)
    try:
        recent = parse_recent(recent_data, beside, offset)
    except CorruptSnapshotError as error:
        logger.warning("only the newest batch of each producer is known: %s", error)
        return entries
    if recent.snapshot_crc != crc_of(data):
        raise CorruptSnapshotError(
            path,
            expected=f"CRC {recent.snapshot_crc:08x}, as {beside} says",
            found=f"{crc_of(data):08x}: it is sound, but belongs to another offset",
        )
    restore_recent(recent, beside, entries)
    return entries


def is_vouched_for(disk: Disk, directory: str, offset: int) -> bool:
    """Whether there is a valid snapshot of `offset`, and the file beside it confirms it.

    Raises:
        OSError: They cannot be read.
    """
    try:
        data = read_whole(disk, snapshot_path(directory, offset))
    except FileNotFoundError:
        return False
    beside = read_recent(disk, directory, offset)
    if beside is None:
        return False
    try:
        parse_snapshot(data, snapshot_path(directory, offset))
        recent = parse_recent(beside, recent_path(directory, offset), offset)
    except CorruptSnapshotError:
        return False
    return recent.snapshot_crc == crc_of(data)


def delete_snapshot(disk: Disk, directory: str, offset: int, *, renamed: bool = False) -> bool:
    """Removes a snapshot, or the file that `rename_snapshot_deleted` made of it.

    Returns False if there is none.

    Raises:
        OSError: The disk refused.
    """
    path = snapshot_path(directory, offset) + (DELETED_SUFFIX if renamed else "")
    if not renamed:
        delete_recent(disk, directory, offset)
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return False
    return True


def rename_snapshot_deleted(disk: Disk, directory: str, offset: int) -> str | None:
    """Renames a snapshot, to be removed later; returns its new path, None if there is none.

    Raises:
        OSError: The disk refused.
    """
    path = snapshot_path(directory, offset)
    delete_recent(disk, directory, offset)
    try:
        disk.rename(path, path + DELETED_SUFFIX)
    except FileNotFoundError:
        return None
    return path + DELETED_SUFFIX
