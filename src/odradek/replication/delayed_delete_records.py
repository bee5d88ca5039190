"""A DeleteRecords, parked until every live replica has raised its log start."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperation
from odradek.replication.partition import Partition

__all__ = ["DelayedDeleteRecords", "DeleteRecordsResult"]


class DeleteRecordsResult(NamedTuple):
    """The answer for one partition."""

    error: ErrorCode
    low_watermark: int = -1


class DelayedDeleteRecords(DelayedOperation):
    """One parked DeleteRecords.

    Args:
        delay_ms: The client's timeout.
        requested: The offset that each pending partition's low watermark has to reach.
        results: The answer of partitions that are settled already.
        find_leader: Resolves a partition, or raises an error with the reason.
        respond: Takes the final answer.
    """

    __slots__ = ("_find_leader", "_pending", "_respond", "_results")

    def __init__(
        self,
        delay_ms: int,
        *,
        requested: Mapping[TopicPartition, int],
        results: Mapping[TopicPartition, DeleteRecordsResult],
        find_leader: Callable[[TopicPartition], Partition],
        respond: Callable[[Mapping[TopicPartition, DeleteRecordsResult]], None],
    ) -> None:
        super().__init__(delay_ms)
        self._pending = dict(requested)
        self._results = dict(results)
        self._find_leader = find_leader
        self._respond = respond

    def try_complete(self) -> bool:
        for tp, offset in list(self._pending.items()):
            try:
                low_watermark = self._find_leader(tp).low_watermark
            except ApiError as refused:
                self._results[tp] = DeleteRecordsResult(refused.code)
                del self._pending[tp]
                continue
            if low_watermark >= offset:
                self._results[tp] = DeleteRecordsResult(ErrorCode.NONE, low_watermark)
                del self._pending[tp]
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        for tp in self._pending:
            self._results[tp] = DeleteRecordsResult(ErrorCode.REQUEST_TIMED_OUT)
        self._respond(self._results)

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` answers REQUEST_TIMED_OUT, and no meter counts it."""
