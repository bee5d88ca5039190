"""Offsets that a transaction commits: staged with their batch, settled by its marker. Pure.

They are in the log, in a transactional batch of the producer, before the client is answered, and
stay *staged* until the marker of the transaction is on every replica in sync. Then they are the
group's offsets, as of the position of their batch, or are dropped. Meanwhile a reader gets the
offset before, or UNSTABLE_OFFSET_COMMIT if it asked for stable ones.

They are staged as soon as their batch is in this broker's log, whatever becomes of its replication
and of the answer: a marker that follows decides about them here as it does in a replay of the log.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from odradek.coordinator.group.group import Group
from odradek.coordinator.group.offsets import (
    CommittedTopics,
    GroupOffsets,
    is_metadata_too_long,
)
from odradek.coordinator.group.records import (
    OffsetAndMetadata,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.group.sessions import check_commit
from odradek.errors import ErrorCode
from odradek.records.builder import build_batch
from odradek.records.compression import Codec

__all__ = [
    "StagedCommit",
    "TransactionGate",
    "TransactionalCommit",
    "build_staged_commit",
    "check_transactional_commit",
    "stage_commit",
]


class TransactionalCommit(NamedTuple):
    """A TxnOffsetCommit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    generation_id: int  # -1: of no member.
    member_id: str
    group_instance_id: str | None
    topics: CommittedTopics
    version: int  # Of the request.


class TransactionGate(Protocol):
    """Confirms that a transaction includes an offsets partition."""

    def confirm(
        self, partition: int, commit: TransactionalCommit, respond: Callable[[ErrorCode], None]
    ) -> None:
        """Calls back with NONE or the error to answer, perhaps before this returns."""
        ...


class StagedCommit(NamedTuple):
    """Offsets that are to be appended in a transaction."""

    batch: bytearray
    values: Sequence[tuple[tuple[str, int], OffsetAndMetadata]]
    rejected: set[tuple[str, int]] | None  # Partitions whose metadata is too long.


def check_transactional_commit(
    group: Group, commit: TransactionalCommit, timer_ms: int
) -> ErrorCode:
    """Checks whether the sender may commit, as in OffsetCommit; without ids any client may."""
    if commit.generation_id < 0 and not commit.member_id and commit.group_instance_id is None:
        is_gone = group.is_dead or group.is_being_deleted
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_gone else ErrorCode.NONE
    return check_commit(
        group, commit.member_id, commit.generation_id, commit.group_instance_id, timer_ms
    )


def build_staged_commit(
    commit: TransactionalCommit, wall_ms: int, max_metadata_size: int, codec: int
) -> StagedCommit | None:
    """Makes one batch of all offsets that may be stored; None if there are none."""
    values: list[tuple[tuple[str, int], OffsetAndMetadata]] = []
    rejected: set[tuple[str, int]] | None = None
    for topic, partitions in commit.topics:
        for partition, offset, leader_epoch, metadata in partitions:
            if metadata and is_metadata_too_long(metadata, max_metadata_size):
                rejected = rejected or set()
                rejected.add((topic, partition))
                continue
            value = OffsetAndMetadata(offset, leader_epoch, metadata or "", wall_ms)
            values.append(((topic, partition), value))
    if not values:
        return None
    batch = build_batch(
        [
            (wall_ms, encode_offset_key(commit.group_id, *key), encode_offset_value(value), ())
            for key, value in values
        ],
        codec=Codec(codec),
        producer_id=commit.producer_id,
        producer_epoch=commit.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    return StagedCommit(batch, values, rejected)


def stage_commit(
    offsets: GroupOffsets, producer_id: int, write: StagedCommit, base_offset: int
) -> None:
    """Stages offsets whose batch is in the log at `base_offset`."""
    staged = offsets.transactional.setdefault(producer_id, {})
    for key, value in write.values:
        staged[key] = (base_offset, value)
