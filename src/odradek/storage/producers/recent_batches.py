"""The older of a producer's last five batches, beside a snapshot: ``<20 digits of offset>.recent``.

A snapshot (`snapshot`) has Kafka's layout and room for the newest batch of each producer.
A producer may have five batches in flight, and repeats all of them if the answers were lost. So the
others are kept here, and the broker recognises each of the five after a restart.

The file is a hint: it may be missing, as in a directory that Kafka wrote, and Kafka ignores it. If
it is damaged, or has the name of another offset than its own, it is ignored, and the snapshot is
used alone. A producer with one batch needs no entry; without producers there is no file.

It also confirms the snapshot, whose checksum it contains: the checksum of a snapshot does not cover
its offset, so a snapshot under the name of another offset would count as sound. And it proves that
there was a snapshot, if that is lost.

| offset | bytes | field                                                     |
|--------|-------|-----------------------------------------------------------|
| 0      | 2     | version, 1                                                |
| 2      | 4     | CRC-32C of all that follows                               |
| 6      | 8     | offset of the snapshot                                    |
| 14     | 4     | CRC-32C of the snapshot                                   |
| 18     | 4     | number of producers                                       |
| 22     |       | producers: id (8 bytes), number of batches (1), batches   |

A batch, oldest first, the newest included: last sequence (4), last offset (8), offset delta (4),
timestamp (8).
"""

import itertools
import os
import struct
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from odradek.errors import CorruptSnapshotError
from odradek.files import Disk, read_whole
from odradek.storage.paths import RECENT_SUFFIX, offset_from_name, segment_path
from odradek.storage.producers.entry import CACHED_BATCH_COUNT, CachedBatch, ProducerEntry

__all__ = [
    "RecentBatches",
    "delete_recent",
    "encode_recent",
    "list_recent",
    "parse_recent",
    "read_recent",
    "recent_path",
    "restore_recent",
]

_VERSION = 1
_HEADER = Struct(">hIqIi")
_CRC_END = 6  # Where the checksummed bytes begin.
_BODY = Struct(">qIi")
_PRODUCER = Struct(">qb")
_BATCH = Struct(">iqiq")


def recent_path(directory: str, offset: int) -> str:
    """Path of the file beside the snapshot of `offset`."""
    return segment_path(directory, offset, RECENT_SUFFIX)


def list_recent(directory: str) -> list[int]:
    """Offsets of these files in a partition directory."""
    offsets = []
    for name in os.listdir(directory):
        offset = offset_from_name(name)
        if offset is not None and recent_path(directory, offset) == f"{directory}/{name}":
            offsets.append(offset)
    return offsets


def encode_recent(entries: Sequence[ProducerEntry], offset: int, snapshot_crc: int) -> bytes | None:
    """The file beside the snapshot of these producers; None if there are none."""
    if not entries:
        return None
    parts = []
    for entry in entries:
        if len(entry.batches) > 1:
            parts.append(_PRODUCER.pack(entry.producer_id, len(entry.batches)))
            parts.extend(_BATCH.pack(*batch.values()) for batch in entry.batches)
    count = sum(len(part) == _PRODUCER.size for part in parts)
    body = _BODY.pack(offset, snapshot_crc, count) + b"".join(parts)
    return _HEADER.pack(_VERSION, crc32c(body), offset, snapshot_crc, count) + body[_BODY.size :]


def read_recent(disk: Disk, directory: str, offset: int) -> bytes | None:
    """The bytes of the file beside a snapshot; None without one.

    Raises:
        OSError: It cannot be read.
    """
    try:
        return read_whole(disk, recent_path(directory, offset))
    except FileNotFoundError:
        return None


class RecentBatches(NamedTuple):
    """The content of a `.recent` file."""

    offset: int
    snapshot_crc: int
    producers: list[tuple[int, list[CachedBatch]]]  # By producer id; oldest batch first.


def parse_recent(data: bytes, path: str, expected_offset: int | None = None) -> RecentBatches:
    """The batches in a file's bytes; `path` is for the error message.

    Args:
        data: The bytes.
        path: The file they were read from.
        expected_offset: The one in the file's name; None accepts any.

    Raises:
        CorruptSnapshotError: Length, version, checksum or offset is wrong.
    """
    if len(data) < _HEADER.size:
        raise CorruptSnapshotError(
            path, expected=f"a header of {_HEADER.size} bytes", found=f"{len(data)} bytes"
        )
    version, crc, offset, snapshot_crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(path, expected=f"version {_VERSION}", found=version)
    computed_crc = crc32c(memoryview(data)[_CRC_END:])
    if crc != computed_crc:
        raise CorruptSnapshotError(path, expected=f"CRC {computed_crc:08x}", found=f"{crc:08x}")
    if expected_offset not in (None, offset):
        raise CorruptSnapshotError(path, expected=f"offset {expected_offset}", found=offset)
    producers = []
    position = _HEADER.size
    try:
        for _ in range(count):
            producer_id, batch_count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            end = position + max(0, batch_count) * _BATCH.size
            batches = [CachedBatch(*batch) for batch in _BATCH.iter_unpack(data[position:end])]
            producers.append((producer_id, batches))
            position = end
    except struct.error as error:
        raise CorruptSnapshotError(path, expected="whole entries", found=str(error)) from None
    if position != len(data):
        expected = f"{position} bytes for {count} producers"
        raise CorruptSnapshotError(path, expected=expected, found=f"{len(data)} bytes")
    return RecentBatches(offset, snapshot_crc, producers)


def restore_recent(recent: RecentBatches, path: str, entries: Sequence[ProducerEntry]) -> None:
    """Adds their older batches to the producers of a snapshot; to all, or to none.

    Raises:
        CorruptSnapshotError: The file, whose path is given, contradicts the snapshot.
    """
    by_id = {entry.producer_id: entry for entry in entries}
    for producer_id, batches in recent.producers:
        entry = by_id.get(producer_id)
        if entry is None or not _lead_up_to_newest(batches, entry):
            expected = "the last batches of a producer in the snapshot"
            raise CorruptSnapshotError(path, expected=expected, found=f"producer {producer_id}")
    for producer_id, batches in recent.producers:
        entry = by_id[producer_id]
        entry.batches.clear()
        entry.batches.extend(batches)


def _lead_up_to_newest(batches: Sequence[CachedBatch], entry: ProducerEntry) -> bool:
    """Whether these batches end with the one that the snapshot has of a producer."""
    if not 1 < len(batches) <= CACHED_BATCH_COUNT or not entry.batches:
        return False
    return batches[-1].values()[:3] == entry.batches[-1].values()[:3] and all(
        0 <= batch.offset_delta <= batch.last_offset < following.first_offset
        for batch, following in itertools.pairwise(batches)
    )


def delete_recent(disk: Disk, directory: str, offset: int) -> None:
    """Removes the file, if there is one.

    Raises:
        OSError: The disk refused.
    """
    try:
        disk.unlink(recent_path(directory, offset))
    except FileNotFoundError:
        return
