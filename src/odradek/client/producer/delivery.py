"""Deliveries of records: a light handle per record, one outcome per batch.

`send` makes a handle for every record, so a handle is a bare tuple: the batch, the record's place
in it, and the values of this record alone. The outcome and the callbacks that wait for it belong to
the batch.

A batch that a broker found too large is split in halves. Its handles stay: they find their record
in the half that has it, however often that is split again.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from odradek.client.errors import CallTimeoutError
from odradek.errors import OdradekError

__all__ = ["Delivery", "Outcome", "OutcomeOwner", "RecordMetadata"]

logger = logging.getLogger(__name__)


class RecordMetadata(NamedTuple):
    """The place of a record in its log."""

    topic: str
    partition: int
    offset: int  # -1 if unknown: acks=0, or the broker had it from an earlier attempt.
    timestamp: int  # The broker's if the topic has append time.
    serialized_key_size: int  # -1 for no key.
    serialized_value_size: int  # -1 for no value.


class OutcomeOwner:
    """The state that the outcomes of one producer share."""

    __slots__ = ("lock", "loop", "thread_id")

    def __init__(self) -> None:
        # Guards the waiting callbacks and the producer's own state, so that `send` takes one lock.
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0

    def is_here(self) -> bool:
        """Whether the caller is on the thread of the loop."""
        return threading.get_ident() == self.thread_id


class Outcome:
    """Whether a batch of records was written, and where. Decided once, on the loop."""

    __slots__ = (
        "_callbacks",
        "_event",
        "_first_count",
        "_halves",
        "append_time_ms",
        "base_offset",
        "error",
        "is_done",
        "owner",
        "partition",
        "topic",
    )

    def __init__(self, owner: OutcomeOwner, topic: str, partition: int) -> None:
        self.owner = owner
        self.topic = topic
        self.partition = partition
        self.is_done = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: OdradekError | None = None
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] | None = None
        self._halves: tuple[Outcome, Outcome] | None = None
        self._first_count = 0  # Records of the first half.

    def finish(
        self,
        *,
        base_offset: int = -1,
        append_time_ms: int = -1,
        error: OdradekError | None = None,
    ) -> bool:
        """Decides it and runs the waiting callbacks; False if it was decided before."""
        with self.owner.lock:
            if self.is_done:
                return False
            self.base_offset = base_offset
            self.append_time_ms = append_time_ms
            self.error = error
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, None
        if self._event is not None:
            self._event.set()
        for callback in callbacks or ():
            _call(callback)
        return True

    def split(self, first: "Outcome", second: "Outcome", first_count: int) -> None:
        """Lets two halves decide it: it is done when both are."""
        self._halves = (first, second)
        self._first_count = first_count

        def half_is_done() -> None:
            if first.is_done and second.is_done:
                self.finish(error=first.error or second.error)

        first.when_done(half_is_done)
        second.when_done(half_is_done)

    def find(self, index: int) -> "tuple[Outcome, int]":
        """The outcome that has a record, and the record's place in it."""
        if self._halves is None:
            return self, index
        first, second = self._halves
        if index < self._first_count:
            return first.find(index)
        return second.find(index - self._first_count)

    def halves_of(self, first: int, count: int) -> "Iterator[tuple[Outcome, int, int]]":
        """The outcomes that have some of the records, with the places of these in each."""
        if self._halves is None:
            yield self, first, count
            return
        left, right = self._halves
        in_left = max(0, min(count, self._first_count - first))
        if in_left:
            yield from left.halves_of(first, in_left)
        if count > in_left:
            yield from right.halves_of(first + in_left - self._first_count, count - in_left)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Calls back on the loop's thread; at once if it is done. Its exceptions are logged."""
        with self.owner.lock:
            if not self.is_done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        _call(callback)

    def wait(self, timeout: float | None) -> None:
        """Blocks until it is done.

        Raises:
            CallTimeoutError: Not in time.
            RuntimeError: The caller is on the loop's thread, which would have to decide it.
        """
        if self.owner.is_here():
            raise RuntimeError(
                "the outcome is not known yet, and waiting here would keep it from coming: "
                "await the delivery, or add a callback"
            )
        with self.owner.lock:
            if self.is_done:
                return
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        if not event.wait(timeout):
            raise CallTimeoutError(f"no outcome of {self.what} within {timeout} s")

    def awaited(self) -> Generator[Any, None, None]:
        """Waits on any loop until it is done."""
        if self.is_done:
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        if loop is self.owner.loop:
            self.when_done(lambda: _set_done(done))
        else:
            self.when_done(lambda: loop.call_soon_threadsafe(_set_done, done))
        yield from done

    @property
    def what(self) -> str:
        """The record or records of the outcome, for messages."""
        return f"a record for {self.topic}-{self.partition}"


class Delivery(tuple[Outcome, int, int, int, int]):
    """The delivery of a record: ask `result`, await it, or ignore it.

    Made by `Producer.send`. `on_error` of the producer is called for a failure that is not asked
    for.
    """

    # Outcome of the batch, index in it, timestamp, size of key and of value. A tuple, because one
    # is made per record and nothing that Python can make is cheaper.
    __slots__ = ()

    def done(self) -> bool:
        """Whether the record has arrived or failed."""
        return self[0].is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the record and returns its place.

        Args:
            timeout: Seconds; None waits as long as the producer tries (`delivery.timeout.ms`).

        Raises:
            OdradekError: The reason why it failed.
            TimeoutError: It has no outcome yet.
        """
        if not self[0].is_done:
            self[0].wait(timeout)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> OdradekError | None:
        """Waits for the record and returns the reason why it failed; None if it did not.

        Raises:
            TimeoutError: It has no outcome yet.
        """
        if not self[0].is_done:
            self[0].wait(timeout)
        outcome, _ = self[0].find(self[1])
        return outcome.error

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Calls back with this delivery when it is done, on the producer's own thread.

        At once, and on this thread, if it is done already. Exceptions of the callback are logged.
        """
        self[0].when_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self[0].awaited()
        return self._metadata()

    def __repr__(self) -> str:
        outcome, index = self[0].find(self[1])
        where = f"{outcome.topic}-{outcome.partition}"
        if not self.done():
            return f"<Delivery to {where}: on its way>"
        if outcome.error is not None:
            return f"<Delivery to {where}: failed: {outcome.error}>"
        offset = outcome.base_offset + index if outcome.base_offset >= 0 else "unknown"
        return f"<Delivery to {where}: at offset {offset}>"

    # Two handles are equal only if they are the same object.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def _metadata(self) -> RecordMetadata:
        batch, position, timestamp, key_size, value_size = self
        outcome, index = batch.find(position)
        if outcome.error is not None:
            raise outcome.error
        return RecordMetadata(
            outcome.topic,
            outcome.partition,
            outcome.base_offset + index if outcome.base_offset >= 0 else -1,
            timestamp if outcome.append_time_ms < 0 else outcome.append_time_ms,
            key_size,
            value_size,
        )


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # it may raise anything, and others wait as well
        logger.exception("a callback of a delivery failed")


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
