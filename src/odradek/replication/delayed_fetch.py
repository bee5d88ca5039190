"""A fetch, parked until there is enough to read.

It is done at once when waiting cannot help (a partition is gone, not led here, or the epoch moved
on), when the readable end lies on another segment than the fetch offset, or when the bytes between
them add up to `min_bytes`. It answers by reading again: whatever is there then.
"""

from collections.abc import Callable, Sequence

from odradek.errors import ApiError, StorageError
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperation
from odradek.replication.fetching import FetchParams, FetchPartition
from odradek.replication.partition import Partition
from odradek.storage.log import FetchIsolation, Log
from odradek.storage.offsets import LogOffsetMetadata

__all__ = ["DelayedFetch"]


class DelayedFetch(DelayedOperation):
    """One parked fetch.

    Args:
        params: The fetch as a whole.
        partitions: What is wanted, with the place of each fetch offset.
        find_partition: Resolves a partition, or raises why it cannot be.
        read_and_respond: Reads what is there now and answers.
        on_expired: Told that the time ran out.
    """

    __slots__ = ("_find_partition", "_on_expired", "_params", "_partitions", "_read_and_respond")

    def __init__(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[FetchPartition, LogOffsetMetadata]],
        *,
        find_partition: Callable[[TopicPartition], Partition],
        read_and_respond: Callable[[], None],
        on_expired: Callable[[], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._partitions = partitions
        self._find_partition = find_partition
        self._read_and_respond = read_and_respond
        self._on_expired = on_expired

    def try_complete(self) -> bool:
        accumulated = 0
        for wanted, place in self._partitions:
            try:
                log = self._find_partition(wanted.tp).log_for(
                    wanted.current_leader_epoch, only_leader=self._params.only_from_leader
                )
                end = _visible_end(log, self._params.isolation)
            except (ApiError, StorageError):
                return self.force_complete()
            if end.message_offset == place.message_offset:
                continue  # Nothing new; the segment may have rolled below the same offset.
            if end.message_offset < place.message_offset or not end.is_on_same_segment(place):
                return self.force_complete()
            accumulated += min(end.position_difference(place), wanted.max_bytes)
        return accumulated >= self._params.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        self._read_and_respond()

    def on_expiration(self) -> None:
        self._on_expired()


def _visible_end(log: Log, isolation: FetchIsolation) -> LogOffsetMetadata:
    match isolation:
        case FetchIsolation.LOG_END:
            return log.log_end_offset_metadata
        case FetchIsolation.TXN_COMMITTED:
            return log.fetch_last_stable_offset_metadata()
        case _:
            return log.fetch_high_watermark_metadata()
