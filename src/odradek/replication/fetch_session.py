"""Fetch sessions (KIP-227): memory of a reader's partitions, so that requests name only changes.

A session remembers the partitions a client fetches and the watermarks last sent for each. An
incremental request names only the partitions that changed since; its answer names only partitions
with news.

| session id, epoch | meaning                                            | answer                 |
|-------------------|----------------------------------------------------|------------------------|
| 0, -1             | no session wanted                                  | all partitions, id 0   |
| 0, 0              | a full request that would like a session           | all, new id if granted |
| id, 0             | a full request; the old session ends               | all, new id if granted |
| id, -1            | a full request that ends the session               | all, id 0              |
| id, n             | incremental; n is what the session expects         | partitions with news   |

Another n is INVALID_FETCH_SESSION_EPOCH, an unknown id FETCH_SESSION_ID_NOT_FOUND. A session has
names or ids for its topics, never both: a request of the other kind is
FETCH_SESSION_TOPIC_ID_ERROR. After epoch 2147483647 comes 1. A session that is left without
partitions ends, and the answer has id 0.

The cache has a fixed number of slots, and a maximum of partitions over all sessions. A new session
replaces one that was not used for a while, or one with fewer partitions that is not a follower's;
otherwise the request is served without a session. Sessions outlive their connections, so a client
must not fill them with names it invents: a session accepts no partition that this broker does not
know. A full request that names one gets no session; an incremental one ends its session with
FETCH_SESSION_ID_NOT_FOUND, and the client's next request is a full one.

A fetch of a consumer's session looks at all its partitions; one of a follower's at those with news
(`follower_news`).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias, final

from odradek.errors import ApiError, ErrorCode
from odradek.replication.fetch_values import FetchResult
from odradek.replication.follower_news import FollowerWatch, SessionNews
from odradek.replication.partition import Partition

__all__ = [
    "EVICTION_MS",
    "FINAL_EPOCH",
    "INITIAL_EPOCH",
    "MAX_CACHED_PARTITIONS",
    "FetchContext",
    "FetchSessionCache",
    "PartitionKey",
    "SessionPartition",
    "next_epoch",
]

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000  # A session unused for longer may be evicted for any new session.
# Partitions in all sessions together: some 100 MB. 200 in each of the 1,000 default sessions.
MAX_CACHED_PARTITIONS = 200_000


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows the one with `epoch`."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


# A partition as the client names it: the name of its topic, or the id from Fetch 13 on; its index.
PartitionKey: TypeAlias = tuple[str | bytes, int]


@final
class SessionPartition:
    """A client's wishes for a partition, and the watermarks that were last sent to it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "watch",
    )

    def __init__(
        self,
        key: PartitionKey,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        max_bytes: int,
    ) -> None:
        self.key = key
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.max_bytes = max_bytes
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.watch: FollowerWatch | None = None  # Only in a follower's session.

    def update(self, other: "SessionPartition") -> None:
        """Replaces the client's wishes by those of its newest request."""
        self.current_leader_epoch = other.current_leader_epoch
        self.fetch_offset = other.fetch_offset
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset
        self.max_bytes = other.max_bytes

    def take_note(self, result: FetchResult) -> bool:
        """Remembers the result as sent; returns whether it contains news."""
        is_news = (
            bool(result.records)
            or result.preferred_read_replica >= 0
            or result.diverging_epoch is not None
        )
        if self.told_high_watermark != result.high_watermark:
            is_news = True
            self.told_high_watermark = result.high_watermark
        if self.told_log_start_offset != result.log_start_offset:
            is_news = True
            self.told_log_start_offset = result.log_start_offset
        if result.error is not ErrorCode.NONE:
            # An error is news every time, and so is the first result after an error.
            is_news = True
            self.told_high_watermark = -1
        return is_news


class _Session:
    __slots__ = (
        "epoch",
        "id",
        "is_privileged",
        "last_used_ms",
        "news",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, is_privileged: bool, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.is_privileged = is_privileged  # A follower's: never evicted for a consumer's.
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1  # Expected in the next request.
        self.last_used_ms = 0
        # In the order of service; a partition moves to the end when an answer names it.
        self.partitions: OrderedDict[PartitionKey, SessionPartition] = OrderedDict()
        # Which of them have to be looked at; None: all of them, as in a consumer's session.
        self.news = SessionNews() if is_privileged else None

    def forget(self, key: PartitionKey) -> bool:
        """Removes a partition; returns whether it was there."""
        entry = self.partitions.pop(key, None)
        if entry is None:
            return False
        if entry.watch is not None:
            entry.watch.end()
            entry.watch = None
        if self.news is not None:
            self.news.entries.pop(key, None)
        return True


class FetchContext:
    """One fetch: which partitions to read, and which results to send.

    `partitions` are the client's wishes as of this request. An answer may come late; if the session
    has moved on by then, because the client asked again on another connection, it is an error and
    leaves the session as it is.
    """

    __slots__ = ("_epoch", "_session", "error", "is_incremental", "partitions")

    def __init__(
        self, partitions: list[SessionPartition], session: _Session | None, *, is_incremental: bool
    ) -> None:
        self.partitions = partitions
        self.is_incremental = is_incremental
        # For the answer as a whole; known once the results were selected.
        self.error = ErrorCode.NONE
        self._session = session
        self._epoch = 0 if session is None else session.epoch

    @property
    def session_id(self) -> int:
        """The session id for the answer; 0 without a session."""
        return 0 if self._session is None else self._session.id

    @property
    def news(self) -> SessionNews | None:
        """The news of a follower's session; None for a consumer, or without a session."""
        return None if self._session is None else self._session.news

    def look_again(self) -> None:
        """Takes the partitions that have news by now, for a fetch that has waited for them."""
        session = self._session
        if session is not None and session.news is not None and session.epoch == self._epoch:
            self.partitions = list(session.news.entries.values())

    def watch(self, entry: SessionPartition, partition: Partition, replica_id: int) -> None:
        """Lets a partition tell its changes to the session."""
        session = self._session
        if session is None or session.news is None or session.epoch != self._epoch:
            return
        watch = entry.watch
        if watch is not None and watch.partition is partition:
            return
        if session.partitions.get(entry.key) is not entry:
            return  # Forgotten meanwhile.
        if watch is not None:
            watch.end()
        entry.watch = FollowerWatch(partition, replica_id, entry, session.news)

    def select(
        self, results: Sequence[tuple[SessionPartition, FetchResult]]
    ) -> list[tuple[SessionPartition, FetchResult]]:
        """Selects the results to send, in order, and remembers them in the session."""
        session = self._session
        if session is None:
            return list(results)
        if session.epoch != self._epoch:
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return []
        told = []
        for partition, result in results:
            is_news = partition.take_note(result)
            if not self.is_incremental:
                told.append((partition, result))
            elif is_news:
                told.append((partition, result))
                # Behind the partitions without records, so that a size limit starves none of them.
                session.partitions.move_to_end(partition.key)
            if session.news is not None:
                self.settle(partition, result)
        return told

    def settle(self, entry: SessionPartition, result: FetchResult) -> None:
        """Removes a partition from a follower's news, if it is told everything about it."""
        news, watch = self.news, entry.watch
        if news is None:
            return
        if (
            watch is not None
            and result.error is ErrorCode.NONE
            and result.diverging_epoch is None
            and watch.is_all_told()
        ):
            news.entries.pop(entry.key, None)
        elif result.records:
            news.move_to_end(entry.key)


class FetchSessionCache:
    """The sessions of one broker.

    Args:
        slots: The maximum of sessions (max.incremental.fetch.session.cache.slots).
        random: The source of session ids.
        max_partitions: The maximum of partitions over all sessions.
    """

    def __init__(
        self, slots: int, *, random: Random, max_partitions: int = MAX_CACHED_PARTITIONS
    ) -> None:
        self._slots = slots
        self._random = random
        self._max_partitions = max_partitions
        self._sessions: dict[int, _Session] = {}
        # In all sessions together. Invariant: at most _max_partitions.
        self.partition_count = 0
        # Called for each evicted session.
        self.on_eviction: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: Mapping[PartitionKey, SessionPartition],
        forgotten: Iterable[PartitionKey],
        is_from_follower: bool,
        uses_topic_ids: bool,
        is_known: Callable[[PartitionKey], bool],
        now_ms: int,
    ) -> FetchContext:
        """Resolves a request to the partitions it reads, with the help of its session.

        Args:
            is_known: Whether this broker knows a partition; called for partitions that are new to
                the session.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session_id)
            session = None
            if epoch == INITIAL_EPOCH and all(map(is_known, wanted)):
                session = self._create(len(wanted), is_from_follower, uses_topic_ids, now_ms)
            if session is not None:
                session.partitions.update(wanted)
                self.partition_count += len(wanted)
                if session.news is not None:
                    session.news.entries.update(wanted)
                    session.news.last_fetch_ms = now_ms
            return FetchContext(list(wanted.values()), session, is_incremental=False)
        session = self._find(session_id, epoch, uses_topic_ids=uses_topic_ids)
        for key, partition in wanted.items():
            known = session.partitions.get(key)
            if known is not None:
                known.update(partition)
                if session.news is not None:
                    session.news.entries.setdefault(key, known)
                continue
            if self.partition_count >= self._max_partitions or not is_known(key):
                self._remove(session_id)
                raise ApiError(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"fetch session {session_id} ends: there is no room for partition"
                    f" {key[1]} of {key[0]!r}, or no such partition",
                )
            session.partitions[key] = partition
            self.partition_count += 1
            if session.news is not None:
                session.news.entries[key] = partition
        for key in forgotten:
            self.partition_count -= session.forget(key)
        # Also if the session ends here: an answer still under way must see that the epoch moved.
        session.epoch = next_epoch(session.epoch)
        if not session.partitions:
            self._remove(session_id)
            return FetchContext([], None, is_incremental=False)
        session.last_used_ms = now_ms
        news = session.news
        if news is None:
            touched = list(session.partitions.values())
        else:
            news.add_further(session.partitions, session.partitions)
            touched = list(news.entries.values())
            news.last_fetch_ms = now_ms
        return FetchContext(touched, session, is_incremental=True)

    def _find(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {session_id} here"
            )
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id}: expected epoch {session.epoch}, found {epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} began with topic "
                + ("ids" if session.uses_topic_ids else "names"),
            )
        return session

    def _create(
        self, size: int, is_from_follower: bool, uses_topic_ids: bool, now_ms: int
    ) -> _Session | None:
        if size == 0 or not self._make_room(size, is_from_follower, now_ms):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31 - 1)
        session = _Session(
            session_id, is_privileged=is_from_follower, uses_topic_ids=uses_topic_ids
        )
        session.last_used_ms = now_ms
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int, is_privileged: bool, now_ms: int) -> bool:
        """Makes room for a session of that size, evicting one if needed; returns whether it did."""
        has_slot = len(self._sessions) < self._slots
        spare = self._max_partitions - self.partition_count - size
        if has_slot and spare >= 0:
            return True
        if not self._sessions or size > self._max_partitions:
            return False
        stalest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - stalest.last_used_ms > EVICTION_MS:
            return self._evict(stalest, spare)
        smallest = min(
            self._sessions.values(),
            key=lambda session: (session.is_privileged, len(session.partitions)),
        )
        rank = (smallest.is_privileged, len(smallest.partitions))
        return rank < (is_privileged, size) and self._evict(smallest, spare)

    def _evict(self, session: _Session, spare: int) -> bool:
        """Evicts a session if that frees enough partitions; returns whether it did."""
        if spare + len(session.partitions) < 0:
            return False
        self._remove(session.id)
        self.on_eviction()
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            if session.news is not None:
                for entry in session.partitions.values():
                    if entry.watch is not None:
                        entry.watch.end()
                        entry.watch = None
