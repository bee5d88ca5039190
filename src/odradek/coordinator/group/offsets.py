"""Committed offsets: the commit lane from request to batch, and reading them back.

A commit goes decide, persist, apply::

    check_commit   may the sender commit?          moves its session deadline
    build_commit   the batch to append             the partitions count as pending from here on
    ... the driver appends the batch ...
    apply_commit   the offsets are what is read    or fail_commit, and nothing happened

Between the last two, readers see the old offset, or UNSTABLE_OFFSET_COMMIT if they asked for stable
ones. A partition whose metadata is too long is never pending: it would stay so for ever.

A batch of one plain record is the everyday case and the whole cost of a commit here, so most of it
is bytes kept in the partition's slot (`slots`), and several of them may share one batch
(`merge_commits`).
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from crc32c import crc32c

from odradek.coordinator.group.decisions import Record
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.joining import check_member
from odradek.coordinator.group.records import (
    MAX_STRING_BYTES,
    NO_TIMESTAMP,
    OffsetAndMetadata,
    OffsetKey,
    encode_offset_value,
    parse_key,
)
from odradek.coordinator.group.slots import OffsetSlot
from odradek.coordinator.group.states import GroupState
from odradek.errors import ErrorCode
from odradek.records.batch import CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD
from odradek.records.builder import encode_record

__all__ = [
    "MAX_MERGED",
    "NO_OFFSET",
    "CommitWrite",
    "CommittedTopics",
    "FetchedOffset",
    "apply_commit",
    "build_commit",
    "check_commit",
    "complete_transaction",
    "fail_commit",
    "fetch_all",
    "fetch_offset",
    "has_pending_commit",
    "map_commit_error",
    "merge_commits",
]

# (topic, ((partition, offset, leader epoch or -1, metadata), ...)), as a request lists them.
CommittedTopics: TypeAlias = Sequence[tuple[str, Sequence[tuple[int, int, int, str | None]]]]

# Offset, leader epoch, metadata, error code.
FetchedOffset: TypeAlias = tuple[int, int, str, int]
NO_OFFSET: Final[FetchedOffset] = (-1, -1, "", 0)
_UNSTABLE: Final[FetchedOffset] = (-1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))

# Base offset 0, length, leader epoch -1, magic, CRC: what the CRC does not cover.
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
# Everyday commits in one batch.
MAX_MERGED: Final = len(_DELTAS)

_COMMIT_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # It may be written all the same: the client commits again, and nothing is lost.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

_NONE: Final = ErrorCode.NONE


class CommitWrite:
    """A commit on its way to the log."""

    __slots__ = ("_batch", "plain_record", "rejected", "slots", "values")

    def __init__(
        self,
        batch: bytearray | None,
        slots: Sequence[OffsetSlot],
        values: Sequence[OffsetAndMetadata],
        rejected: set[tuple[str, int]] | None,
        plain_record: bytes | None = None,
    ) -> None:
        self._batch = batch
        # Of the everyday commit its only record, with offset delta 0: it can share a batch.
        self.plain_record = plain_record
        self.slots = slots
        self.values = values
        # Partitions whose metadata is too long: OFFSET_METADATA_TOO_LARGE, the rest is written.
        self.rejected = rejected

    @property
    def batch(self) -> bytearray:
        """Its records, complete but for the base offset; not compressed."""
        if self._batch is None:
            assert self.plain_record is not None
            self._batch = _seal(self.plain_record, 1, self.values[0].commit_ms)
        return self._batch

    @property
    def count(self) -> int:
        """Offsets in it."""
        return len(self.values)

    def records(self) -> list[Record]:
        """What the batch holds, for a batch of another kind."""
        return [
            (slot.key, encode_offset_value(value))
            for slot, value in zip(self.slots, self.values, strict=True)
        ]


def map_commit_error(error: ErrorCode) -> ErrorCode:
    """The answer to OffsetCommit when its append failed with `error`."""
    return _COMMIT_ERRORS.get(error, error)


def check_commit(
    group: Group, member_id: str, generation_id: int, instance_id: str | None, timer_ms: int
) -> ErrorCode:
    """Whether the sender may commit; a member that may is alive."""
    member = group.members.get(member_id)
    if member is None or instance_id is not None or group.is_being_deleted:
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and not member_id and instance_id is None:
            # Somebody outside of the group, who must not fight its members.
            return _NONE if group.state is GroupState.EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        error = check_member(group, member_id, instance_id)
        if error is not _NONE:
            return error
        assert member is not None
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    member.deadline_ms = timer_ms + member.session_timeout_ms
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return _NONE


def build_commit(
    group: Group, topics: CommittedTopics, wall_ms: int, *, expire_ms: int = NO_TIMESTAMP
) -> CommitWrite | None:
    """Make one batch of all offsets that may be stored, and count them as pending.

    Returns:
        The write, or None if there is nothing to store: all metadata is too long.
    """
    if len(topics) == 1 and expire_ms == NO_TIMESTAMP:
        topic, partitions = topics[0]
        if len(partitions) == 1:
            partition, offset, leader_epoch, metadata = partitions[0]
            if not metadata:
                return _build_plain_commit(group, (topic, partition), offset, leader_epoch, wall_ms)
    slots: list[OffsetSlot] = []
    values: list[OffsetAndMetadata] = []
    parts: list[bytes] = []
    rejected: set[tuple[str, int]] | None = None
    delta = 0
    for topic, partitions in topics:
        for partition, offset, leader_epoch, metadata in partitions:
            key = (topic, partition)
            if metadata and _is_too_long(metadata, group.config.max_metadata_size):
                if rejected is None:
                    rejected = set()
                rejected.add(key)
                continue
            slot = group.offsets.get(key)
            if slot is None:
                slot = group.offsets[key] = OffsetSlot(group.group_id, topic, partition)
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
    return CommitWrite(_seal(b"".join(parts), delta, wall_ms), slots, values, rejected)


def _build_plain_commit(
    group: Group, key: tuple[str, int], offset: int, leader_epoch: int, wall_ms: int
) -> CommitWrite:
    """The everyday commit: one partition, no metadata."""
    slot = group.offsets.get(key)
    if slot is None:
        slot = group.offsets[key] = OffsetSlot(group.group_id, *key)
    slot.pending_count += 1
    record = slot.head + _PLAIN_VALUE(offset, leader_epoch, wall_ms)
    value = OffsetAndMetadata(offset, leader_epoch, "", wall_ms)
    return CommitWrite(None, (slot,), (value,), None, record)


def merge_commits(writes: Sequence[CommitWrite]) -> bytearray:
    """One batch of several everyday commits, `MAX_MERGED` at most, in their order.

    Its timestamp is that of the first.
    """
    assert len(writes) <= MAX_MERGED, "offset deltas have to fit in one byte"
    records = bytearray(b"".join([write.plain_record or b"" for write in writes]))
    start = 0
    for delta, write in enumerate(writes):
        assert write.plain_record is not None, "only everyday commits share a batch"
        records[start + write.slots[0].delta_position] = 2 * delta  # A varint of one byte.
        start += len(write.plain_record)
    return _seal(records, len(writes), writes[0].values[0].commit_ms)


def _seal(records: bytes | bytearray, count: int, wall_ms: int) -> bytearray:
    """A batch of encoded records, all of one time."""
    tail = _TAIL(count - 1, wall_ms, wall_ms, _NO_PRODUCER, count) + records
    length = len(tail) + _HEAD_SIZE - LOG_OVERHEAD
    return bytearray(_HEAD(length, -1, CURRENT_MAGIC, crc32c(tail)) + tail)


def apply_commit(group: Group, write: CommitWrite, base_offset: int) -> None:
    """The batch is durable at `base_offset`. Of two commits the one later in the log wins."""
    if group.state is GroupState.DEAD:
        return
    for slot, value in zip(write.slots, write.values):  # noqa: B905 - hot, and both of one length
        slot.pending_count -= 1
        # The same partition twice in one batch: the last counts, as it does when it is read.
        if base_offset >= slot.record_offset:
            slot.record_offset = base_offset
            slot.committed = value


def fail_commit(group: Group, write: CommitWrite) -> None:
    """The batch was not written."""
    for slot in write.slots:
        slot.pending_count -= 1
        if slot.committed is None and not slot.pending_count:
            key = parse_key(slot.key)
            assert isinstance(key, OffsetKey)
            if group.offsets.get(key[1:]) is slot:
                del group.offsets[key[1:]]


def has_pending_commit(group: Group, key: tuple[str, int]) -> bool:
    """Whether a commit of the partition is being written, or waits for its transaction."""
    slot = group.offsets.get(key)
    if slot is not None and slot.pending_count:
        return True
    return any(key in staged for staged in group.transactional.values())


def fetch_offset(group: Group, topic: str, partition: int, require_stable: bool) -> FetchedOffset:
    """What is committed for a partition, as far as it is durable."""
    if group.state is GroupState.DEAD:
        return NO_OFFSET
    key = (topic, partition)
    if require_stable and has_pending_commit(group, key):
        return _UNSTABLE
    slot = group.offsets.get(key)
    if slot is None or slot.committed is None:
        return NO_OFFSET
    committed = slot.committed
    return committed.offset, committed.leader_epoch, committed.metadata, 0


def fetch_all(
    group: Group, require_stable: bool
) -> list[tuple[str, list[tuple[int, int, int, str, int]]]]:
    """Everything that is committed, by topic, each with its partition in front."""
    if group.state is GroupState.DEAD:
        return []
    topics: dict[str, list[tuple[int, int, int, str, int]]] = {}
    for (topic, partition), slot in group.offsets.items():
        fetched = fetch_offset(group, topic, partition, require_stable)
        if slot.committed is not None or fetched[3] != _NONE:
            topics.setdefault(topic, []).append((partition, *fetched))
    return list(topics.items())


def complete_transaction(group: Group, producer_id: int, *, is_commit: bool) -> None:
    """A producer's transaction ended: its offsets count, or never were."""
    staged = group.transactional.pop(producer_id, {})
    if is_commit:
        store_offsets(group, ((*key, *entry) for key, entry in staged.items()))


def store_offsets(group: Group, entries: Iterable[tuple[str, int, int, OffsetAndMetadata]]) -> None:
    """Take over durable offsets: (topic, partition, offset of their batch, value)."""
    for topic, partition, record_offset, value in entries:
        slot = group.offsets.get((topic, partition))
        if slot is None:
            slot = group.offsets[topic, partition] = OffsetSlot(group.group_id, topic, partition)
        if record_offset >= slot.record_offset:
            slot.record_offset = record_offset
            slot.committed = value


def _is_too_long(metadata: str, max_size: int) -> bool:
    """The limit is in characters; a record's string has one of its own, in bytes."""
    return len(metadata) > max_size or (
        len(metadata) * 4 > MAX_STRING_BYTES and len(metadata.encode()) > MAX_STRING_BYTES
    )
