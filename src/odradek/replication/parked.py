"""Requests that wait for partitions, and when they are checked.

A call notes the partitions it changes, and the requests that wait for them are checked once, when
the outermost call has given its own answer (04b section 9). An answer may start the next request of
a pipelined client; that call only adds to the notes of the outermost one: the stack stays flat, and
no partition is touched in the middle of its append. A call is bracketed like this::

    is_outermost = parked.begin()
    try:
        ...                               # parked.note(tp, moved=True)
    finally:
        if is_outermost:
            parked.end()                  # or end_after_answers()

A call that returns its answer instead of calling back with it ends with `end_after_answers`:
waiting requests are checked when the answers to all requests of the same read have been sent.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed_delete_records import DelayedDeleteRecords
from odradek.replication.delayed_fetch import DelayedFetch
from odradek.replication.delayed_produce import DelayedProduce
from odradek.replication.news_fetch import NewsFetch
from odradek.replication.shared_read import SharedRead

__all__ = ["ParkedRequests", "Purgatories"]


class Purgatories(NamedTuple):
    """Where requests wait, by kind."""

    produce: DelayedOperationPurgatory[DelayedProduce]
    fetch: DelayedOperationPurgatory[DelayedFetch | NewsFetch]
    delete_records: DelayedOperationPurgatory[DelayedDeleteRecords]


class ParkedRequests:
    """The parked requests of a broker, and the partitions whose requests have to be checked.

    Args:
        purgatories: Hold the parked requests.
    """

    __slots__ = (
        "_changed",
        "_delete_records",
        "_fetch",
        "_is_busy",
        "_is_check_asked_for",
        "_produce",
        "after_answers",
        "is_checking_fetches",
        "shared_read",
    )

    def __init__(self, purgatories: Purgatories) -> None:
        self._produce, self._fetch, self._delete_records = purgatories
        # Partitions whose waiting requests have to be checked, in order, and whether a watermark
        # of theirs moved.
        self._changed: dict[Hashable, bool] = {}
        # Whether a call is under way that will process `_changed` at its end.
        self._is_busy = False
        # Calls back once, when the answers of the requests under way have been sent. None: there
        # is no such signal, and waiting requests are checked at once.
        self.after_answers: Callable[[Callable[[], None]], None] | None = None
        self._is_check_asked_for = False
        # While the fetches that wait for one partition are checked: the latest read.
        self.is_checking_fetches = False
        self.shared_read: SharedRead | None = None

    def begin(self) -> bool:
        """Begins a call that may change partitions; returns whether it is the outermost."""
        if self._is_busy:
            return False
        self._is_busy = True
        return True

    def is_awaited(self, tp: TopicPartition) -> bool:
        """Whether a request waits for a partition."""
        fetch, produce, delete_records = self._fetch, self._produce, self._delete_records
        # Most of the time no request is parked: that needs no look-up of the partition.
        return (
            (not fetch.is_empty and fetch.is_watched(tp))
            or (not produce.is_empty and produce.is_watched(tp))
            or (not delete_records.is_empty and delete_records.is_watched(tp))
        )

    def note(self, tp: Hashable, moved: bool) -> None:
        """Notes that the call under way changed a partition, and whether a watermark moved.

        A follower's fetch waits under the key of its session, which is noted in the same way.
        """
        self._changed[tp] = moved or self._changed.get(tp, False)

    def end(self) -> None:
        """Checks the requests of all noted partitions; a call made meanwhile adds to the notes."""
        if not self._changed:
            self._is_busy = False
            return
        fetch, produce, delete_records = self._fetch, self._produce, self._delete_records
        changed = self._changed
        try:
            while changed:
                tp = next(iter(changed))
                moved = changed.pop(tp)
                self.is_checking_fetches = True
                fetch.check_and_complete(tp)
                self.is_checking_fetches = False
                self.shared_read = None
                if moved:
                    produce.check_and_complete(tp)
                    delete_records.check_and_complete(tp)
        finally:
            self._is_busy = self.is_checking_fetches = False
            self.shared_read = None

    def end_after_answers(self) -> None:
        """Ends a call whose waiting requests are checked after the present answers are sent."""
        if not self._changed:
            self._is_busy = False
        elif self.after_answers is None:
            self.end()
        else:
            self._is_busy = False
            if not self._is_check_asked_for:
                self._is_check_asked_for = True
                self.after_answers(self._on_answers_given)

    def release(self, changed: Iterable[tuple[Hashable, bool]]) -> None:
        """Checks the requests that wait for these; each is (partition, watermark moved)."""
        self.shared_read = None
        for tp, moved in changed:
            self.note(tp, moved)
        if self.begin():
            self.end()

    def wake(self, session: Hashable) -> None:
        """Checks the fetches of a follower's session, which has news."""
        self.release([(session, False)])

    def _on_answers_given(self) -> None:
        self._is_check_asked_for = False
        self.release(())
