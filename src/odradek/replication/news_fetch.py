"""A follower's fetch, parked until its session has news.

It waits under one key, that of its session, however many partitions it has. It ends as soon as a
partition notes itself in the session's news (`follower_news`); if the follower waits for more than
one byte, once the bytes behind its fetch offsets add up, or a watermark or role is news.
"""

from collections.abc import Callable
from typing import Protocol

from odradek.errors import ApiError, StorageError
from odradek.purgatory import DelayedOperation
from odradek.replication.fetch_values import FetchParams, FetchPartition, FetchResults
from odradek.replication.follower_news import SessionNews
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
    """

    __slots__ = ("_finish", "_on_expired", "news", "params", "reader")

    def __init__(
        self,
        params: FetchParams,
        news: SessionNews,
        reader: NewsReader,
        *,
        finish: Callable[["NewsFetch"], None],
        on_expired: Callable[[bool], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.news = news
        self.reader = reader
        self._finish = finish
        self._on_expired = on_expired

    def try_complete(self) -> bool:
        entries = self.news.entries
        if not entries:
            return False
        min_bytes = self.params.min_bytes
        if min_bytes <= 1:
            return self.force_complete()
        readable = 0
        for entry in entries.values():
            watch = entry.watch
            log = None if watch is None else watch.partition.log
            if (
                watch is None
                or log is None
                or watch.partition.leader_epoch != entry.current_leader_epoch
                or log.high_watermark != entry.told_high_watermark
            ):
                return self.force_complete()
            try:
                records = log.read(entry.fetch_offset, min_bytes, FetchIsolation.LOG_END).records
            except (ApiError, StorageError):
                return self.force_complete()
            readable += 0 if records is None else records.length
        return readable >= min_bytes and self.force_complete()

    def on_complete(self) -> None:
        self._finish(self)

    def on_expiration(self) -> None:
        self._on_expired(self.params.is_from_follower)
