"""One read of the log for all consumers that wait for the same records."""

from typing import final

from odradek.replication.fetch_values import FetchParams, FetchPartition, FetchResult
from odradek.replication.stats import TopicStats

__all__ = ["SharedRead"]


@final
class SharedRead:
    """The result of a woken fetch of one partition, for other fetches of the same records.

    Consumers that wait at the end of a partition all ask for the same offset. They are woken
    together, before anything else can happen to the partition, so one read serves all of them. If
    there are few bytes they are kept in memory, and the answers are made of one copy.

    Args:
        params: The fetch as a whole.
        wanted: Its partition.
        result: What was found there.
        stats: Of the topic, to count each fetch.
    """

    __slots__ = ("_params", "_result", "_size", "_stats", "_wanted")

    def __init__(
        self, params: FetchParams, wanted: FetchPartition, result: FetchResult, stats: TopicStats
    ) -> None:
        self._params = params
        self._wanted = wanted
        self._result = result
        self._stats = stats
        self._size = 0
        if result.records is not None:
            self._size = result.records.length
            result.records.keep_bytes()

    def suits(self, params: FetchParams, wanted: FetchPartition) -> bool:
        """Whether another consumer's fetch would read the same."""
        read, mine = self._params, self._wanted
        return (
            wanted.fetch_offset == mine.fetch_offset
            and wanted.max_bytes == mine.max_bytes
            and params.max_bytes == read.max_bytes
            and params.isolation is read.isolation
            and params.only_from_leader == read.only_from_leader
            and params.place == read.place
            and params.is_hard_limit == read.is_hard_limit
            and wanted.current_leader_epoch == mine.current_leader_epoch
            and wanted.last_fetched_epoch == mine.last_fetched_epoch
            and wanted.topic_id == mine.topic_id
            and wanted.tp == mine.tp
        )

    def take(self) -> FetchResult:
        """Returns the result for another fetch, which is counted."""
        self._stats.count_fetch()
        self._stats.count_bytes_out(self._size)
        return self._result
