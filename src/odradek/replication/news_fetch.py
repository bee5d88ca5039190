"""A follower's fetch, parked until its session has news.

It waits under one key, that of its session, however many partitions it has. It ends as soon as a
partition notes itself in the session's news (`follower_news`); if the follower waits for more than
one byte, once the bytes behind its fetch offsets add up, or a role is news. A high watermark ends
it when it has waited for records long enough. Partitions whose records are held back (`throttles`)
do not end it.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from odradek.errors import ApiError, StorageError
from odradek.purgatory import DelayedOperation
from odradek.replication.fetch_session import SessionPartition
from odradek.replication.fetch_values import FetchParams, FetchPartition, FetchResults
from odradek.replication.follower_news import SessionNews
from odradek.replication.throttles import ReplicationThrottle
from odradek.storage.log.reader import FetchIsolation

__all__ = ["NewsFetch", "NewsReader"]


class NewsReader(Protocol):
    """A fetch of a follower's session, until it is answered."""

    def take_again(self) -> list[FetchPartition]:
        """The partitions that have news now."""
        ...

    def settle(self, results: FetchResults) -> None:
        """Lets the partitions of results that are not sent yet tell their changes."""
        ...

    def respond(self, results: FetchResults) -> None:
        """Answers."""
        ...

    def park(self, operation: DelayedOperation) -> None:
        """Ends the operation if the follower disconnects."""
        ...


class NewsFetch(DelayedOperation):
    """One parked fetch.

    Args:
        params: The fetch as a whole.
        news: Of its session.
        reader: Its partitions, and its answer.
        finish: Reads the news and answers.
        on_expired: Called when the time ran out, with whether the reader is a follower.
        throttle: Holds back the records of partitions.
    """

    __slots__ = ("_finish", "_on_expired", "_throttle", "news", "params", "reader")

    def __init__(
        self,
        params: FetchParams,
        news: SessionNews,
        reader: NewsReader,
        *,
        finish: Callable[["NewsFetch"], None],
        on_expired: Callable[[bool], None],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.news = news
        self.reader = reader
        self._finish = finish
        self._on_expired = on_expired
        self._throttle = throttle

    def try_complete(self) -> bool:
        news = self.news
        if not news.is_pressing and not news.is_watermark_due:
            return False
        entries: Collection[SessionPartition] = news.entries.values()
        if self._throttle is not None and self._throttle.is_limited:
            entries = [entry for entry in entries if not self._is_held_back(entry, self._throttle)]
        if not entries:
            return False
        min_bytes = self.params.min_bytes
        if min_bytes <= 1:
            return self.force_complete()
        readable = 0
        for entry in entries:
            watch = entry.watch
            log = None if watch is None else watch.partition.log
            if (
                watch is None
                or log is None
                or watch.partition.leader_epoch != entry.current_leader_epoch
                or (news.is_watermark_due and log.high_watermark != entry.told_high_watermark)
            ):
                return self.force_complete()
            try:
                records = log.read(entry.fetch_offset, min_bytes, FetchIsolation.LOG_END).records
            except (ApiError, StorageError):
                return self.force_complete()
            readable += 0 if records is None else records.length
        return readable >= min_bytes and self.force_complete()

    def _is_held_back(self, entry: SessionPartition, throttle: ReplicationThrottle) -> bool:
        if entry.watch is None:
            return False
        partition = entry.watch.partition
        return partition.is_leader and throttle.holds_back(
            partition.tp, is_in_sync=self.params.replica_id in partition.isr
        )

    def on_complete(self) -> None:
        self._finish(self)

    def on_expiration(self) -> None:
        self._on_expired(self.params.is_from_follower)
