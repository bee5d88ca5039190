"""Verification of the offsets that transactions commit to groups."""

from collections.abc import Callable
from typing import Final

from odradek.broker.transactions.verification import (
    Support,
    TransactionVerification,
    VerificationErrors,
    offset_commit_error,
)
from odradek.coordinator.group.partition_load import OFFSETS_TOPIC
from odradek.coordinator.group.transactional_commits import TransactionalCommit
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.records.batch import CURRENT_MAGIC, TRANSACTIONAL_MASK, BatchHeader
from odradek.storage.producers.entry import NO_SEQUENCE

__all__ = ["OffsetVerification"]

_FIRST_ABORTABLE_VERSION: Final = 4
_FIRST_ADDING_VERSION: Final = 5


class OffsetVerification:
    """Confirms that a transaction includes the offsets partition of a group.

    Args:
        verification: Asks the coordinators.
    """

    def __init__(self, verification: TransactionVerification) -> None:
        self._verification = verification

    def confirm(
        self, partition: int, commit: TransactionalCommit, respond: Callable[[ErrorCode], None]
    ) -> None:
        """Calls back with NONE or the error to answer, perhaps before this returns."""
        tp = TopicPartition(OFFSETS_TOPIC, partition)
        support = _support(commit.version)
        needed = self._verification.needed({tp: _header(commit)}, support)
        if not needed:
            respond(ErrorCode.NONE)
            return

        def on_verified(errors: VerificationErrors) -> None:
            error = errors.get(tp)
            respond(ErrorCode.NONE if error is None else offset_commit_error(error, support))

        self._verification.start(commit.transactional_id, needed, support, on_verified)


def _support(version: int) -> Support:
    if version >= _FIRST_ADDING_VERSION:
        return Support.ADDED
    return Support.ABORTABLE if version >= _FIRST_ABORTABLE_VERSION else Support.VERIFIED


def _header(commit: TransactionalCommit) -> BatchHeader:
    """The producer of the batch that is to be appended; a group's batches have no sequence."""
    return BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_MASK,
        last_offset_delta=0,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=commit.producer_id,
        producer_epoch=commit.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
