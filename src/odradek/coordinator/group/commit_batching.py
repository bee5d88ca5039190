"""Batching of commits that arrive together: one batch, one append, then all the answers.

A broker under load finds many requests at each wake-up of its poller. The cost of an append is
nearly the same for one record as for fifty, so plain commits (one partition, no metadata) wait
until the last of these requests has been served, and those of one partition of the offsets topic
become one batch. Rules:

1. No commit waits for requests that have not arrived: the batcher is emptied at the end of the
   wake-up that filled it, and a commit that arrives alone never enters it.
2. The log keeps the order of the requests. Any other append empties the batcher first, and so does
   a request that reads committed offsets, and the end of a leadership: all commits that wait for
   one partition were made in one leader epoch.
3. A batch that is refused for its size is split: each commit is then appended on its own.
4. Every commit is answered, whatever happens to the others of its batch: an answer or an append
   that fails by an internal error is logged, and the others continue.

Where groups are spread over so many partitions that two commits rarely share one, waiting has a
cost and no gain: after such a wake-up the next `_SKIPPED` commits are appended on their own.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from odradek.coordinator.group.group import Group
from odradek.coordinator.group.offsets import MAX_MERGED, CommitWrite, merge_commits
from odradek.coordinator.writing import InternalTopic
from odradek.errors import ErrorCode

__all__ = ["CommitAnswer", "CommitBatcher", "Rejected", "WakeUps"]

logger = logging.getLogger(__name__)

# Beyond this size the next batch begins; far below the default limit of a batch.
_MAX_MERGED_BYTES: Final = 64 << 10
_SKIPPED: Final = 256
_TOO_LARGE: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }
)


class WakeUps(Protocol):
    """The requests that were found at one wake-up of the poller."""

    @property
    def has_more(self) -> bool:
        """Whether further requests are served before this wake-up ends."""
        ...

    def at_end(self, callback: Callable[[], object]) -> None:
        """Calls back once, when all requests of the wake-up were served."""
        ...


# Partitions whose metadata was too large.
Rejected: TypeAlias = set[tuple[str, int]] | None
# Gets the error of all partitions of a commit but the rejected ones.
CommitAnswer: TypeAlias = Callable[[ErrorCode, Rejected], None]
# Applies the outcome of an append, the error and the batch's offset; returns the error to answer.
Complete: TypeAlias = Callable[[Group, CommitWrite, ErrorCode, int], ErrorCode]
_Waiting: TypeAlias = tuple[Group, CommitWrite, CommitAnswer]


class CommitBatcher:
    """Plain commits that wait for the end of a wake-up.

    Args:
        topic: The offsets topic.
        complete: Called for each commit when its append has an outcome, before its answer.
        wake_ups: Whether further requests are served in this wake-up; None: every commit is
            appended on its own.
    """

    __slots__ = ("_complete", "_count", "_skip", "_topic", "_waiting", "_wake_ups", "wall_ms")

    def __init__(
        self, topic: InternalTopic, complete: Complete, wake_ups: WakeUps | None = None
    ) -> None:
        self._topic = topic
        self._complete = complete
        self._wake_ups = wake_ups
        # By partition of the offsets topic, in the order of the requests.
        self._waiting: dict[int, list[_Waiting]] = {}
        self._count = 0
        self._skip = 0  # The number of next commits that do not enter.
        self.wall_ms = 0  # The time of the waiting commits; 0 if there are none.

    def try_add(self, group: Group, write: CommitWrite, wall_ms: int, answer: CommitAnswer) -> bool:
        """Queues a commit; returns False if it has to be appended on its own."""
        if write.plain_record is None or self._wake_ups is None:
            return False
        if not self._count:
            if not self._wake_ups.has_more:
                return False
            if self._skip:
                self._skip -= 1
                return False
            self.wall_ms = wall_ms
            self._wake_ups.at_end(self.flush)
        waiting = self._waiting.get(group.partition)
        if waiting is None:
            waiting = self._waiting[group.partition] = []
        waiting.append((group, write, answer))
        self._count += 1
        return True

    def flush(self) -> None:
        """Appends the waiting commits."""
        if not self._count:
            return
        waiting, self._waiting = self._waiting, {}
        if self._count < 2 * len(waiting):
            self._skip = _SKIPPED
        self._count = self.wall_ms = 0
        for partition, commits in waiting.items():
            for chunk in _split(commits):
                self._append(partition, chunk)

    def _append(self, partition: int, commits: Sequence[_Waiting]) -> None:
        is_answered = False

        def on_appended(error: ErrorCode, base_offset: int) -> None:
            nonlocal is_answered
            is_answered = True
            if error in _TOO_LARGE and len(commits) > 1:
                for commit in commits:
                    self._append(partition, (commit,))
                return
            self._answer_all(commits, error, base_offset)

        try:
            if len(commits) == 1:
                batch = commits[0][1].batch
            else:
                batch = merge_commits([write for _, write, _ in commits])
            leader_epoch = commits[0][0].leader_epoch
            outcome = self._topic.try_append(partition, leader_epoch, batch)
            if outcome is None:
                self._topic.append(partition, leader_epoch, batch, on_appended)
                return
        except Exception:  # the border between requests: one must not end others
            logger.exception("%d commits to offsets partition %d failed", len(commits), partition)
            if is_answered:
                return
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR, -1
        on_appended(*outcome)

    def _answer_all(self, commits: Sequence[_Waiting], error: ErrorCode, base_offset: int) -> None:
        complete = self._complete
        for group, write, answer in commits:
            try:
                answer(complete(group, write, error, base_offset), write.rejected)
            except Exception:  # the border between requests: one must not end others
                logger.exception("An answer to a commit failed")


def _split(commits: Sequence[_Waiting]) -> list[Sequence[_Waiting]]:
    """Splits commits into pieces that fit into one batch each."""
    size = sum([len(write.plain_record or b"") for _, write, _ in commits])
    if len(commits) <= MAX_MERGED and size <= _MAX_MERGED_BYTES:
        return [commits]
    chunks: list[Sequence[_Waiting]] = []
    chunk: list[_Waiting] = []
    size = 0
    for commit in commits:
        record_size = len(commit[1].plain_record or b"")
        if chunk and (len(chunk) == MAX_MERGED or size + record_size > _MAX_MERGED_BYTES):
            chunks.append(chunk)
            chunk, size = [], 0
        chunk.append(commit)
        size += record_size
    chunks.append(chunk)
    return chunks
