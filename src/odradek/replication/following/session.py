"""A follower's side of a fetch session (KIP-227). Pure.

The leader remembers the partitions of a session: a request names those that changed, an answer
those with news. Building a request costs what changed, not what is followed (05:R30). A partition
that is held back (`replication.throttles`) leaves the session until its bytes may travel again.

A request names a limited number of partitions that are new, and does not wait for records while
others are left: a thousand partitions that are created at once would otherwise make one request and
one answer, behind which the records of all others wait.

| the leader answered              | the next request                                     |
|----------------------------------|------------------------------------------------------|
| nothing yet, or without session  | (0, 0) full                                          |
| a full request, with session id  | (id, 1) incremental                                  |
| an incremental request           | (id, epoch + 1); after 2147483647 comes 1            |
| FETCH_SESSION_ID_NOT_FOUND       | (0, 0) full                                          |
| another error, or not at all     | (id, 0) full: the leader ends the old session        |

Duties of the caller: `build`, send, then exactly one of `accept` and `fail`; one request at a time.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.replication.following.leader_endpoint import (
    FetchAnswer,
    FetchQuestion,
    PartitionKey,
    WantedPartition,
)
from odradek.replication.following.partition_states import FollowedPartition, FollowedPartitions

__all__ = ["MOST_NEW_PARTITIONS", "FollowerSession"]

_NO_SESSION: Final = 0
_INITIAL: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
# Partitions that enter the session with one request; each costs leader and follower some 0.1 ms.
MOST_NEW_PARTITIONS: Final = 50


class FollowerSession:
    """The session of one fetcher with its leader."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _INITIAL
        self._uses_topic_ids = False
        # What the leader has, or will have once it answers.
        self._known: dict[TopicPartition, WantedPartition] = {}
        self._by_key: dict[PartitionKey, TopicPartition] = {}
        # Partitions that the last request left out, and that are looked at again by the next one.
        self._held_back: dict[TopicPartition, None] = {}
        # New partitions for which the last request had no room.
        self._left: dict[TopicPartition, None] = {}

    @property
    def session_id(self) -> int:
        return self._id

    def asked(self, key: PartitionKey) -> tuple[TopicPartition, WantedPartition] | None:
        """The partition under a key, as it was last asked for; None if it never was."""
        tp = self._by_key.get(key)
        return None if tp is None else (tp, self._known[tp])

    def build(
        self,
        partitions: FollowedPartitions,
        *,
        uses_topic_ids: bool,
        is_held_back: Callable[[FollowedPartition], bool] | None = None,
    ) -> FetchQuestion | None:
        """The next request; None if there is no partition to fetch.

        Args:
            partitions: All that are followed.
            uses_topic_ids: Whether the request names topics by their ids.
            is_held_back: Whether no records of a partition may be fetched now; None: of none.
        """
        if uses_topic_ids != self._uses_topic_ids:
            self._epoch = _INITIAL  # A session has one kind of names only.
            self._uses_topic_ids = uses_topic_ids
        if self._id == _NO_SESSION or self._epoch == _INITIAL:
            return self._build_full(partitions, is_held_back)
        wanted: list[WantedPartition] = []
        forgotten: list[PartitionKey] = []
        first_left = dict.fromkeys(islice(self._left, MOST_NEW_PARTITIONS))
        for tp in first_left:
            del self._left[tp]
        looked_at = {**first_left, **dict.fromkeys(partitions.take_changed()), **self._held_back}
        self._held_back = {}
        room = MOST_NEW_PARTITIONS
        for tp in looked_at:
            one = partitions.get(tp)
            before = self._known.get(tp)
            now = None
            if one is not None and one.is_ready_for_fetch:
                if is_held_back is not None and is_held_back(one):
                    self._held_back[tp] = None
                elif before is None and not room:
                    self._left[tp] = None
                else:
                    room -= before is None
                    now = self._wish(one)
            if before is not None and (now is None or now.key != before.key):
                forgotten.append(before.key)
                self._forget(tp, before.key)
            if now is not None and now != before:
                wanted.append(now)
                self._remember(tp, now)
        if not self._known and not forgotten:
            return None
        return FetchQuestion(
            self._id, self._epoch, wanted, forgotten, uses_topic_ids, is_last=not self._left
        )

    def _build_full(
        self,
        partitions: FollowedPartitions,
        is_held_back: Callable[[FollowedPartition], bool] | None,
    ) -> FetchQuestion | None:
        partitions.take_changed()
        self._known.clear()
        self._by_key.clear()
        self._held_back.clear()
        self._left.clear()
        for one in partitions.ready():
            if is_held_back is not None and is_held_back(one):
                self._held_back[one.tp] = None
            elif len(self._known) >= MOST_NEW_PARTITIONS:
                self._left[one.tp] = None
            else:
                self._remember(one.tp, self._wish(one))
        if not self._known:
            return None
        return FetchQuestion(
            self._id,
            _INITIAL,
            list(self._known.values()),
            [],
            self._uses_topic_ids,
            is_last=not self._left,
        )

    def _wish(self, one: FollowedPartition) -> WantedPartition:
        topic: str | bytes = one.tp.topic
        if self._uses_topic_ids:
            assert one.topic_id is not None
            topic = one.topic_id.bytes
        return WantedPartition(
            (topic, one.tp.partition),
            one.leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.log_start_offset,
        )

    def _remember(self, tp: TopicPartition, wish: WantedPartition) -> None:
        self._known[tp] = wish
        self._by_key[wish.key] = tp

    def _forget(self, tp: TopicPartition, key: PartitionKey) -> None:
        del self._known[tp]
        del self._by_key[key]

    def accept(self, question: FetchQuestion, answer: FetchAnswer) -> str | None:
        """Takes an answer without an error; returns why it must not be used, or None."""
        keys = {one.key for one in answer.partitions}
        unknown = [key for key in keys if key not in self._by_key]
        if unknown:
            self.fail(None)
            return f"the answer names partitions that were not asked for: {unknown[:3]}"
        is_full = question.session_epoch == _INITIAL
        if is_full and len(keys) != len(self._known):
            self.fail(None)
            return f"the answer to a full fetch of {len(self._known)} partitions names {len(keys)}"
        if answer.session_id == _NO_SESSION:
            self._id, self._epoch = _NO_SESSION, _INITIAL
        elif is_full:
            self._id, self._epoch = answer.session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return None

    def fail(self, code: ErrorCode | None) -> None:
        """Begins anew: the leader refused the request, or did not answer (None)."""
        self._epoch = _INITIAL
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = _NO_SESSION
