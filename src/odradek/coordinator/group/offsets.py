"""Committed offsets, by group: encoding them into batches, applying, and reading them. Pure.

They are kept apart from the members of a group: `OffsetStore` has groups by name only, so a group
of any protocol, and a transaction, commits by the same functions. The steps of a commit::

    build_commit   makes the batch to append       the partitions count as pending from here on
    ... the coordinator appends the batch ...
    apply_commit   readers see the offsets         or fail_commit: they see the old ones

Between the last two, readers see the old offset, or UNSTABLE_OFFSET_COMMIT if they asked for stable
ones. A partition whose metadata is too long is never pending: it would stay so for ever.

A batch of one plain record is the usual case and the whole cost of a commit here, so most of its
bytes are kept in the partition's `OffsetSlot`, and several of them may share one batch
(`merge_commits`). Of a slot's `head` only the offset delta changes::

    length varint, attributes 0, timestamp delta 0
    offset delta                                        at `delta_position`, one byte below 64
    key length varint, key, value length varint 24, value version 3

Behind it: offset, leader epoch, metadata length 0, commit timestamp, header count 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, TypeAlias

from crc32c import crc32c

from odradek.coordinator.group.records import (
    MAX_STRING_BYTES,
    NO_TIMESTAMP,
    OffsetAndMetadata,
    OffsetKey,
    encode_offset_key,
    encode_offset_value,
    parse_key,
)
from odradek.coordinator.writing import Record
from odradek.errors import ErrorCode
from odradek.records.batch import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD
from odradek.records.builder import encode_record
from odradek.records.varint import encode_varint

__all__ = [
    "MAX_MERGED",
    "NO_OFFSET",
    "CommitWrite",
    "CommittedTopics",
    "FetchedOffset",
    "GroupOffsets",
    "OffsetSlot",
    "OffsetStore",
    "TransactionalOffsets",
    "apply_commit",
    "build_commit",
    "complete_transaction",
    "drop_staged",
    "fail_commit",
    "fetch_all",
    "fetch_offset",
    "has_pending_commit",
    "is_metadata_too_long",
    "merge_commits",
    "store_offsets",
]

# (topic, ((partition, offset, leader epoch or -1, metadata), ...)), as a request lists them.
CommittedTopics: TypeAlias = Sequence[tuple[str, Sequence[tuple[int, int, int, str | None]]]]

# Offset, leader epoch, metadata, error code.
FetchedOffset: TypeAlias = tuple[int, int, str, int]
NO_OFFSET: Final[FetchedOffset] = (-1, -1, "", 0)
_UNSTABLE: Final[FetchedOffset] = (-1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))

# Base offset 0, length, leader epoch -1, magic, CRC: the fields that the CRC does not cover.
_HEAD: Final = Struct(">8xiibI").pack
_HEAD_SIZE: Final = 21
# No attributes, last offset delta, both timestamps, no producer, record count.
_TAIL: Final = Struct(">2xiqq14si").pack
_NO_PRODUCER: Final = b"\xff" * 14  # Id, epoch and sequence, each -1.
assert _HEAD_SIZE + Struct(">2xiqq14si").size == HEADER_SIZE
# Offset, leader epoch, metadata length 0, commit timestamp, header count 0.
_PLAIN_VALUE: Final = Struct(">qi2xqx").pack

# Offset deltas of one byte.
_DELTAS: Final = tuple(bytes((2 * delta,)) for delta in range(64))
# The maximum of plain commits in one batch.
MAX_MERGED: Final = len(_DELTAS)

EMPTY_METADATA_VALUE_SIZE: Final = 24
_HEAD_END: Final = encode_varint(EMPTY_METADATA_VALUE_SIZE) + b"\x00\x03"

# Producer id to the commits of its open transaction: partition to offset of the batch and value.
TransactionalOffsets: TypeAlias = dict[int, dict[tuple[str, int], tuple[int, OffsetAndMetadata]]]

_NONE: Final = ErrorCode.NONE


class OffsetSlot:
    """One partition's committed offset in a group, and its encoded record head."""

    __slots__ = ("committed", "delta_position", "head", "pending_count", "record_offset")

    def __init__(self, group_id: str, topic: str, partition: int) -> None:
        key = encode_offset_key(group_id, topic, partition)
        back = encode_varint(len(key)) + key + _HEAD_END
        # Attributes, timestamp delta and offset delta before, value and header count after.
        length = 3 + len(back) - 2 + EMPTY_METADATA_VALUE_SIZE + 1
        front = encode_varint(length) + b"\x00\x00"
        self.delta_position = len(front)
        self.head = front + b"\x00" + back  # With offset delta 0.
        self.committed: OffsetAndMetadata | None = None  # Durable. None: no commit yet.
        self.record_offset = -1  # Of the batch with `committed`.
        self.pending_count = 0  # Commits that are being written.

    @property
    def key(self) -> bytes:
        """The key of its records."""
        start = self.delta_position + 1
        while self.head[start] >= 0x80:
            start += 1
        return self.head[start + 1 : -len(_HEAD_END)]


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("group_id", "slots", "transactional")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.slots: dict[tuple[str, int], OffsetSlot] = {}  # By topic and partition.
        self.transactional: TransactionalOffsets = {}

    def staged_keys(self) -> list[tuple[str, int]]:
        """The partitions with offsets of open transactions, each once."""
        return list(dict.fromkeys(key for staged in self.transactional.values() for key in staged))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self.slots and not self.transactional


class OffsetStore:
    """The offsets of all groups that are coordinated here, by the group's name.

    The registry opens an entry with a group and closes it with the group.
    """

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}

    def __iter__(self) -> Iterator[GroupOffsets]:
        """Iterates over a copy: commits and removals happen meanwhile."""
        return iter(tuple(self._groups.values()))

    def of(self, group_id: str) -> GroupOffsets:
        """The offsets of a group that is coordinated here."""
        return self._groups[group_id]

    def open(self, offsets: GroupOffsets) -> None:
        """Begins to serve the offsets of a group."""
        self._groups[offsets.group_id] = offsets

    def close(self, group_id: str) -> None:
        """Stops serving the offsets of a group."""
        self._groups.pop(group_id, None)

    def is_current(self, offsets: GroupOffsets) -> bool:
        """Whether they are still served, and not those of an earlier group of the same name."""
        return self._groups.get(offsets.group_id) is offsets


class CommitWrite:
    """A commit that is to be appended."""

    __slots__ = ("_batch", "offsets", "plain_record", "rejected", "slots", "values")

    def __init__(
        self,
        offsets: GroupOffsets,
        batch: bytearray | None,
        slots: Sequence[OffsetSlot],
        values: Sequence[OffsetAndMetadata],
        rejected: set[tuple[str, int]] | None,
        plain_record: bytes | None = None,
    ) -> None:
        self.offsets = offsets
        self._batch = batch
        # The only record of a plain commit, with offset delta 0: it can share a batch.
        self.plain_record = plain_record
        self.slots = slots
        self.values = values
        # Partitions whose metadata is too long: OFFSET_METADATA_TOO_LARGE, the rest is written.
        self.rejected = rejected

    @property
    def batch(self) -> bytearray:
        """The batch of its records, complete except for the base offset; not compressed."""
        if self._batch is None:
            assert self.plain_record is not None
            self._batch = _seal(self.plain_record, 1, self.values[0].commit_ms)
        return self._batch

    def records(self) -> list[Record]:
        """Its records, for a compressed batch."""
        return [
            (slot.key, encode_offset_value(value))
            for slot, value in zip(self.slots, self.values, strict=True)
        ]


def build_commit(
    offsets: GroupOffsets,
    topics: CommittedTopics,
    wall_ms: int,
    max_metadata_size: int,
    *,
    expire_ms: int = NO_TIMESTAMP,
) -> CommitWrite | None:
    """Makes one batch of all offsets that may be stored, and counts them as pending.

    Returns:
        The write, or None if there is nothing to store: all metadata is too long.
    """
    if len(topics) == 1 and expire_ms == NO_TIMESTAMP:
        topic, partitions = topics[0]
        if len(partitions) == 1:
            partition, offset, leader_epoch, metadata = partitions[0]
            if not metadata:
                return _build_plain_commit(
                    offsets, (topic, partition), offset, leader_epoch, wall_ms
                )
    slots: list[OffsetSlot] = []
    values: list[OffsetAndMetadata] = []
    parts: list[bytes] = []
    rejected: set[tuple[str, int]] | None = None
    delta = 0
    for topic, partitions in topics:
        for partition, offset, leader_epoch, metadata in partitions:
            key = (topic, partition)
            if metadata and is_metadata_too_long(metadata, max_metadata_size):
                if rejected is None:
                    rejected = set()
                rejected.add(key)
                continue
            slot = offsets.slots.get(key)
            if slot is None:
                slot = offsets.slots[key] = OffsetSlot(offsets.group_id, topic, partition)
            slot.pending_count += 1
            value = OffsetAndMetadata(offset, leader_epoch, metadata or "", wall_ms, expire_ms)
            if metadata or expire_ms != NO_TIMESTAMP or delta >= 64:
                parts.append(encode_record(delta, 0, slot.key, encode_offset_value(value)))
            else:
                head = slot.head
                position = slot.delta_position
                parts += (
                    head[:position],
                    _DELTAS[delta],
                    head[position + 1 :],
                    _PLAIN_VALUE(offset, leader_epoch, wall_ms),
                )
            slots.append(slot)
            values.append(value)
            delta += 1
    if not delta:
        return None
    return CommitWrite(offsets, _seal(b"".join(parts), delta, wall_ms), slots, values, rejected)


def _build_plain_commit(
    offsets: GroupOffsets, key: tuple[str, int], offset: int, leader_epoch: int, wall_ms: int
) -> CommitWrite:
    """Makes a plain commit: one partition, no metadata."""
    slot = offsets.slots.get(key)
    if slot is None:
        slot = offsets.slots[key] = OffsetSlot(offsets.group_id, *key)
    slot.pending_count += 1
    record = slot.head + _PLAIN_VALUE(offset, leader_epoch, wall_ms)
    # As calling the class, at half the cost.
    value = tuple.__new__(OffsetAndMetadata, (offset, leader_epoch, "", wall_ms, NO_TIMESTAMP))
    return CommitWrite(offsets, None, (slot,), (value,), None, record)


def merge_commits(writes: Sequence[CommitWrite]) -> bytearray:
    """Makes one batch of several plain commits, `MAX_MERGED` at most, in their order.

    Its timestamp is that of the first.
    """
    assert len(writes) <= MAX_MERGED, "offset deltas have to fit in one byte"
    records = bytearray(b"".join([write.plain_record or b"" for write in writes]))
    start = 0
    for delta, write in enumerate(writes):
        assert write.plain_record is not None, "only plain commits share a batch"
        records[start + write.slots[0].delta_position] = 2 * delta  # A varint of one byte.
        start += len(write.plain_record)
    return _seal(records, len(writes), writes[0].values[0].commit_ms)


def _seal(records: bytes | bytearray, count: int, wall_ms: int) -> bytearray:
    """Makes a batch of encoded records with one timestamp."""
    tail = _TAIL(count - 1, wall_ms, wall_ms, _NO_PRODUCER, count) + records
    length = len(tail) + _HEAD_SIZE - LOG_OVERHEAD
    return bytearray(_HEAD(length, -1, CURRENT_MAGIC, crc32c(tail)) + tail)


def apply_commit(write: CommitWrite, base_offset: int) -> None:
    """Applies a batch that is durable at `base_offset`; the commit later in the log wins."""
    for slot, value in zip(write.slots, write.values):  # noqa: B905 - hot, and both of one length
        slot.pending_count -= 1
        # If a partition is in one batch twice, the last one counts, as in a replay.
        if base_offset >= slot.record_offset:
            slot.record_offset = base_offset
            slot.committed = value


def fail_commit(write: CommitWrite) -> None:
    """Ends a commit whose batch was not written."""
    slots = write.offsets.slots
    for slot in write.slots:
        slot.pending_count -= 1
        if slot.committed is None and not slot.pending_count:
            key = parse_key(slot.key)
            assert isinstance(key, OffsetKey)
            if slots.get(key[1:]) is slot:
                del slots[key[1:]]


def has_pending_commit(offsets: GroupOffsets, key: tuple[str, int]) -> bool:
    """Whether a commit of the partition is being written, or waits for its transaction."""
    slot = offsets.slots.get(key)
    if slot is not None and slot.pending_count:
        return True
    return any(key in staged for staged in offsets.transactional.values())


def fetch_offset(
    offsets: GroupOffsets, topic: str, partition: int, require_stable: bool
) -> FetchedOffset:
    """The durable committed offset of a partition."""
    key = (topic, partition)
    if require_stable and has_pending_commit(offsets, key):
        return _UNSTABLE
    slot = offsets.slots.get(key)
    if slot is None or slot.committed is None:
        return NO_OFFSET
    committed = slot.committed
    return committed.offset, committed.leader_epoch, committed.metadata, 0


def fetch_all(
    offsets: GroupOffsets, require_stable: bool
) -> list[tuple[str, list[tuple[int, int, int, str, int]]]]:
    """All committed offsets, by topic, each preceded by its partition."""
    topics: dict[str, list[tuple[int, int, int, str, int]]] = {}
    for (topic, partition), slot in offsets.slots.items():
        fetched = fetch_offset(offsets, topic, partition, require_stable)
        if slot.committed is not None or fetched[3] != _NONE:
            topics.setdefault(topic, []).append((partition, *fetched))
    if require_stable and offsets.transactional:
        for topic, partition in offsets.staged_keys():
            if (topic, partition) not in offsets.slots:
                topics.setdefault(topic, []).append((partition, *_UNSTABLE))
    return list(topics.items())


def complete_transaction(offsets: GroupOffsets, producer_id: int, *, is_commit: bool) -> int:
    """Ends a producer's transaction: its offsets are stored, or dropped; returns their number."""
    staged = offsets.transactional.pop(producer_id, {})
    if is_commit:
        store_offsets(offsets, ((*key, *entry) for key, entry in staged.items()))
    return len(staged)


def drop_staged(
    offsets: GroupOffsets, key: tuple[str, int], before_offset: int | None = None
) -> None:
    """Drops what open transactions have committed for a partition, before an offset of the log."""
    for producer_id, staged in tuple(offsets.transactional.items()):
        entry = staged.get(key)
        if entry is not None and (before_offset is None or entry[0] < before_offset):
            del staged[key]
            if not staged:
                del offsets.transactional[producer_id]


def store_offsets(
    offsets: GroupOffsets, entries: Iterable[tuple[str, int, int, OffsetAndMetadata]]
) -> None:
    """Stores durable offsets: (topic, partition, offset of their batch, value)."""
    for topic, partition, record_offset, value in entries:
        slot = offsets.slots.get((topic, partition))
        if slot is None:
            slot = OffsetSlot(offsets.group_id, topic, partition)
            offsets.slots[topic, partition] = slot
        if record_offset >= slot.record_offset:
            slot.record_offset = record_offset
            slot.committed = value


def is_metadata_too_long(metadata: str, max_size: int) -> bool:
    """Whether metadata exceeds the limit in characters, or that of a record's string in bytes."""
    return len(metadata) > max_size or (
        len(metadata) * 4 > MAX_STRING_BYTES and len(metadata.encode()) > MAX_STRING_BYTES
    )
