"""A produce with acks=all, parked until every partition's batch is on all in-sync replicas.

A partition that failed on the local append is settled from the start and keeps its error. The
others are pending; those still pending when the time runs out get REQUEST_TIMED_OUT.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperation
from odradek.replication.partition import Partition
from odradek.storage.log.expansion import ExpandedRecords

__all__ = ["DelayedProduce", "ProduceResult"]


class ProduceResult(NamedTuple):
    """The answer for one partition of a produce."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str], ...] = ()
    error_message: str | None = None
    # Set if the batch has to be expanded before it can be validated: called on a thread, it notes
    # the facts about the records that an append needs.
    expand: Callable[[ExpandedRecords], None] | None = None


class DelayedProduce(DelayedOperation):
    """One parked produce.

    Args:
        delay_ms: The client's timeout.
        required_offsets: The high watermark that each appended partition has to reach.
        results: The provisional answer of every partition.
        find_leader: Resolves a partition, or raises an error with the reason.
        respond: Takes the final answer.
        on_expired: Called for each partition whose time ran out.
    """

    __slots__ = ("_find_leader", "_on_expired", "_pending", "_respond", "_results")

    def __init__(
        self,
        delay_ms: int,
        *,
        required_offsets: Mapping[TopicPartition, int],
        results: Mapping[TopicPartition, ProduceResult],
        find_leader: Callable[[TopicPartition], Partition],
        respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
        on_expired: Callable[[TopicPartition], None],
    ) -> None:
        super().__init__(delay_ms)
        self._pending = dict(required_offsets)
        self._results = dict(results)
        self._find_leader = find_leader
        self._respond = respond
        self._on_expired = on_expired

    def try_complete(self) -> bool:
        for tp, required_offset in list(self._pending.items()):
            try:
                is_enough, error = self._find_leader(tp).has_enough_replicas(required_offset)
            except ApiError as refused:
                is_enough, error = False, refused.code
            if is_enough or error is not ErrorCode.NONE:
                del self._pending[tp]
                if error is not ErrorCode.NONE:
                    self._results[tp] = self._results[tp]._replace(error=error)
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        for tp in self._pending:
            self._results[tp] = self._results[tp]._replace(error=ErrorCode.REQUEST_TIMED_OUT)
        self._respond(self._results)

    def on_expiration(self) -> None:
        for tp in self._pending:
            self._on_expired(tp)
