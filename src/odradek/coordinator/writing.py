"""Writes of a coordinator's state: one decision, one batch, in the epoch it was made in. Pure.

Rules, each against a way in which a coordinator and its log came to differ:

1. The records of one decision are one batch, so a broker that loads the partition finds all of them
   or none. A decision too large for a batch is refused by the log (MESSAGE_TOO_LARGE or
   RECORD_LIST_TOO_LARGE) and never split. A coordinator with much to write makes several
   independent decisions of it (`cut_records`).
2. A batch is appended under the leader epoch in which its partition's state was loaded. If this
   broker no longer leads in that epoch, nothing is written and the error is
   NOT_LEADER_OR_FOLLOWER: a decision made from old state must not follow a later leader's records.
3. The local append and the commit are two events. After the first the records are in this broker's
   log, have their offset, and later decisions may build on them; they can still be lost with the
   broker. After the second they are on every replica in sync: only then may a client be answered.
4. The log keeps the order of decisions: commits collected for a shared batch are appended first
   (`before_append`).

`APPEND_ERRORS` maps the error of a failed append to the answer, by the kind of request.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from odradek.errors import ErrorCode
from odradek.records.builder import build_batch
from odradek.records.compression import Codec

__all__ = [
    "APPEND_ERRORS",
    "Asked",
    "InternalTopic",
    "OnAppended",
    "OnCommitted",
    "Record",
    "StateWriter",
    "append_error",
    "cut_records",
]

# Key and value of a record of an internal topic; a value of None deletes the key.
Record: TypeAlias = tuple[bytes, bytes | None]
# Gets the offset of the first record, when the batch is in this broker's log.
OnAppended: TypeAlias = Callable[[int], None]
# Gets the error and the offset of the first record, -1 with an error, when the batch is committed.
OnCommitted: TypeAlias = Callable[[ErrorCode, int], None]

# Half of the default limit of a batch.
_MAX_CUT_BYTES: Final = 512 << 10
_RECORD_OVERHEAD: Final = 32  # More than the other fields of a record need.


class InternalTopic(Protocol):
    """Appends to the partitions of an internal topic that this broker leads."""

    def try_append(
        self, partition: int, leader_epoch: int, batch: bytearray
    ) -> tuple[ErrorCode, int] | None:
        """Appends a batch if there is no replica to wait for; returns (error, first offset).

        Returns None and appends nothing if `append` has to be used.
        """
        ...

    def append(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        on_committed: OnCommitted,
        on_appended: OnAppended | None = None,
    ) -> None:
        """Appends a batch if this broker leads in that epoch.

        `on_appended` is called before this returns, unless the append fails; `on_committed` exactly
        once, afterwards: before this returns if there is no replica to wait for.
        """
        ...


class Asked(IntEnum):
    """The kind of a request whose append failed: a column of `APPEND_ERRORS`."""

    MEMBERSHIP = 0  # JoinGroup, SyncGroup.
    OFFSETS = 1  # OffsetCommit, OffsetDelete, DeleteGroups.
    TRANSACTION = 2  # InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.


_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_ELSEWHERE: Final = ErrorCode.NOT_COORDINATOR
_UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR
_TOO_LARGE: Final = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
_REBALANCE: Final = ErrorCode.REBALANCE_IN_PROGRESS
_LOADS: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_NETWORK: Final = ErrorCode.NETWORK_EXCEPTION
_FETCH_SIZE: Final = ErrorCode.INVALID_FETCH_SIZE

# fmt: off
APPEND_ERRORS: Final[Mapping[ErrorCode, tuple[ErrorCode, ErrorCode, ErrorCode]]] = (
    MappingProxyType({
    # The log's error                            MEMBERSHIP      OFFSETS         TRANSACTION
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:       (_NOT_AVAILABLE, _NOT_AVAILABLE, _NOT_AVAILABLE),
    ErrorCode.NOT_ENOUGH_REPLICAS:              (_NOT_AVAILABLE, _NOT_AVAILABLE, _NOT_AVAILABLE),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (_NOT_AVAILABLE, _NOT_AVAILABLE, _NOT_AVAILABLE),
    ErrorCode.NOT_LEADER_OR_FOLLOWER:           (_ELSEWHERE,     _ELSEWHERE,     _ELSEWHERE),
    ErrorCode.KAFKA_STORAGE_ERROR:              (_ELSEWHERE,     _ELSEWHERE,     _ELSEWHERE),
    # It may have been written nevertheless: members join again, the others repeat their request.
    ErrorCode.REQUEST_TIMED_OUT:                (_REBALANCE,     _NOT_AVAILABLE, _NOT_AVAILABLE),
    ErrorCode.MESSAGE_TOO_LARGE:                (_UNKNOWN,       _TOO_LARGE,     _UNKNOWN),
    ErrorCode.RECORD_LIST_TOO_LARGE:            (_UNKNOWN,       _TOO_LARGE,     _UNKNOWN),
    ErrorCode.INVALID_FETCH_SIZE:               (_UNKNOWN,       _TOO_LARGE,     _FETCH_SIZE),
    ErrorCode.NETWORK_EXCEPTION:                (_NETWORK,       _LOADS,         _NETWORK),
    })
)
# fmt: on


def append_error(error: ErrorCode, asked: Asked) -> ErrorCode:
    """The answer to a request whose append ended with `error`, which may be NONE."""
    answers = APPEND_ERRORS.get(error)
    return error if answers is None else answers[asked]


def cut_records(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Splits independent records into pieces for one batch each, in their order.

    A piece has half a megabyte at most, and at least one record.
    """
    piece: list[Record] = []
    size = 0
    for record in records:
        key, value = record
        record_size = len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD
        if piece and size + record_size > _MAX_CUT_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += record_size
    if piece:
        yield piece


class StateWriter:
    """Appends decisions to the partitions of one internal topic.

    Args:
        topic: The topic.
        now_ms: Wall-clock time, for the records.
        codec: The compression of batches.
        before_append: Called before each append: appends the commits collected for shared batches.
    """

    __slots__ = ("_before_append", "_codec", "_now_ms", "_topic")

    def __init__(
        self,
        topic: InternalTopic,
        *,
        now_ms: Callable[[], int],
        codec: int = 0,
        before_append: Callable[[], object] = lambda: None,
    ) -> None:
        self._topic = topic
        self._now_ms = now_ms
        self._codec = Codec(codec)
        self._before_append = before_append

    def write(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[Record],
        on_committed: OnCommitted,
        on_appended: OnAppended | None = None,
    ) -> None:
        """Appends the records of one decision as one batch; see the module's rules.

        Args:
            partition: The partition of the topic.
            leader_epoch: The epoch in which the decision's state was loaded.
            records: At least one.
            on_committed: Called exactly once, perhaps before this returns.
            on_appended: Called before `on_committed`, and before this returns, unless the append
                fails.
        """
        batch = self._build(records)
        self._before_append()
        self._topic.append(partition, leader_epoch, batch, on_committed, on_appended)

    def try_write(
        self, partition: int, leader_epoch: int, records: Sequence[Record]
    ) -> tuple[ErrorCode, int] | None:
        """Does the same at once, if there is no replica to wait for.

        Returns the error and the offset of the first record, -1 with an error. Returns None and
        appends nothing if `write` has to be used.
        """
        batch = self._build(records)
        self._before_append()
        return self._topic.try_append(partition, leader_epoch, batch)

    def _build(self, records: Sequence[Record]) -> bytearray:
        assert records, "a decision without records needs no append"
        wall_ms = self._now_ms()
        return build_batch([(wall_ms, key, value, ()) for key, value in records], codec=self._codec)
