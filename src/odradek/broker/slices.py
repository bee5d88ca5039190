"""Handlers whose work grows with their request: done in slices, with other tasks in between.

Such a handler is a generator. It yields after each element, where it may be interrupted, and
returns its answer. A quick one is answered within the call, like any other; after a millisecond the
rest continues as a coroutine, a millisecond per turn of the loop. If the client disconnects, the
rest is not done. A handler that waits for the store in between is a coroutine, and runs its longer
parts by `finish_in_slices`.

Example: DescribeConfigs for 10,000 topics, a tenth of a millisecond each::

    handle ── 10 topics ── 1 ms is over ──► coroutine ── 10 topics ── turn ── 10 topics ── … answer

A step that cannot be made smaller, such as the expansion of a compressed batch, is yielded as a
job: it runs on a thread, one job at a time, and the generator continues afterwards.

State that a handler uses after a `yield` has to be taken before the first one, like an image, which
never changes, or has to be looked up again.

Large answers are encoded in slices, too (`reply_in_slices`): a portion of the rows is encoded as if
it were all of them, and the bytes around the rows, the same for each portion, are added once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from functools import wraps
from typing import Any, Final, TypeAlias, TypeVar

from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.broker.error_counts import count_errors
from odradek.network.request import CloseConnectionResponse, Request, Response, SendResponse
from odradek.protocol.api_keys import is_flexible
from odradek.protocol.codec import encode_message
from odradek.protocol.headers import encode_response_header
from odradek.protocol.primitives import encode_uvarint
from odradek.protocol.schema import Message, replace

__all__ = ["Job", "Steps", "finish_in_slices", "in_slices", "reply_in_slices"]

# How long a handler runs before other tasks of the loop do: 02 section 12.
_SLICE_NS: Final = 1_000_000
# Rows that are encoded at a time, a fraction of a slice. A compact count of them has one byte.
_PORTION: Final = 100

# Work that is done on a thread before the next step.
Job: TypeAlias = Callable[[], None]
# Yields where it may be interrupted: None, or a `Job`. Returns the answer.
Steps: TypeAlias = Generator[Any, None, Response]
Handled: TypeAlias = Response | Coroutine[Any, Any, Response]
_T = TypeVar("_T")


def in_slices(
    handler: Callable[[Request, BrokerContext], Steps],
) -> Callable[[Request, BrokerContext], Handled]:
    """Makes a handler of a generator."""

    @wraps(handler)
    def handle(request: Request, context: BrokerContext) -> Handled:
        steps = handler(request, context)
        response, job = _run_slice(steps, context)
        return response if response is not None else _run_rest(steps, job, request, context)

    return handle


async def finish_in_slices(steps: Generator[Any, None, _T], context: BrokerContext) -> _T:
    """Runs all steps, a millisecond per turn of the loop; returns their result, never None."""
    while True:
        result, job = _run_slice(steps, context)
        if result is not None:
            return result
        await _pause(job, context)


def _run_slice(
    steps: Generator[Any, None, _T], context: BrokerContext
) -> tuple[_T | None, Job | None]:
    """Runs steps for a slice of time; returns their result, if they ended, and a pending job."""
    now_ns = context.clock.monotonic_ns
    end_ns = now_ns() + _SLICE_NS
    try:
        job = next(steps)
        while job is None and now_ns() < end_ns:
            job = next(steps)
    except StopIteration as stop:
        result: _T = stop.value
        return result, None
    return None, job


async def _pause(job: Job | None, context: BrokerContext) -> None:
    """Lets other tasks of the loop run, and runs the job, if there is one."""
    if job is None:
        await asyncio.sleep(0)
    elif context.expansions is None:
        job()
    else:
        await context.expansions.run(job)


async def _run_rest(
    steps: Steps, job: Job | None, request: Request, context: BrokerContext
) -> Response:
    while True:
        await _pause(job, context)
        if request.connection.is_closed:
            steps.close()
            return CloseConnectionResponse(request, "the client disconnected while it was served")
        response, job = _run_slice(steps, context)
        if response is not None:
            return response


def reply_in_slices(
    request: Request, message: Message, rows: str, context: BrokerContext, *, inner: str = ""
) -> Steps:
    """As `reply_throttled`, for an answer whose field `rows` may be long.

    Args:
        inner: A field of each row that may be long as well.
    """
    header = request.header
    version = header.api_version
    elements: Sequence[Message] = getattr(message, rows)
    frame = _Frame(message, rows, inner, version, is_flexible(header.api_key, version))
    counts = Counter(count_errors(frame.message))
    chunks: list[bytes] = []
    for portion in _portions(elements, inner):
        for element in portion:
            counts.update(count_errors(element))
        if inner and len(portion) == 1 and len(_inner_rows(portion[0], inner)) > _PORTION:
            chunks += yield from frame.encode_long(portion[0])
        else:
            chunks.append(frame.encode(portion))
        yield
    request.errors = counts
    throttle_ms = request_throttle_ms(request, context)
    before, after = frame.around(throttle_ms)
    start = encode_response_header(header.api_key, version, header.correlation_id)
    return SendResponse(request, [start, before, frame.count(len(elements)), *chunks, after])


class _Frame:
    """The bytes around the rows of an answer.

    Their place is found by comparison: with one row and without any, the encodings are the same up
    to the count of rows.
    """

    __slots__ = ("_count_size", "_inner", "_is_flexible", "_rows", "_start", "_version", "message")

    def __init__(
        self, message: Message, rows: str, inner: str, version: int, is_flexible: bool
    ) -> None:
        self.message = replace(message, **{rows: ()})  # Without its rows.
        self._rows = rows
        self._inner = inner
        self._version = version
        self._is_flexible = is_flexible
        self._count_size = 1 if is_flexible else 4
        self._start = -1  # The position of the count of rows; -1 before the first portion.
        elements = getattr(message, rows)
        if elements:
            sample = replace(elements[0], **{inner: ()}) if inner else elements[0]
            self._start = self._place_of_count(self._encode(()), self._encode((sample,)))

    def around(self, throttle_ms: int) -> tuple[bytes, bytes]:
        """The bytes before the count of rows, and those after the last row."""
        if throttle_ms > 0:
            self.message = replace(self.message, throttle_time_ms=throttle_ms)
        whole = self._encode(())
        if self._start < 0:
            # The place does not matter: without rows the count stays where it is.
            return b"", whole
        return whole[: self._start], whole[self._start + self._count_size :]

    def count(self, count: int) -> bytes:
        """The encoded count of rows."""
        if self._start < 0:
            return b""
        return encode_uvarint(count + 1) if self._is_flexible else count.to_bytes(4, "big")

    def encode(self, portion: Sequence[Message]) -> bytes:
        """The encoded rows alone; at most as many as a count of one byte permits."""
        data = self._encode(portion)
        end = len(data) - (len(self._encode(())) - self._start - self._count_size)
        return data[self._start + self._count_size : end]

    def encode_long(self, element: Message) -> Generator[None, None, list[bytes]]:
        """One row whose own rows are encoded in portions."""
        inner = _inner_rows(element, self._inner)
        empty = self.encode((replace(element, **{self._inner: ()}),))
        start = self._place_of_count(
            empty, self.encode((replace(element, **{self._inner: inner[:1]}),))
        )
        body = start + self._count_size
        tail = empty[body:]
        chunks = [empty[:start], self.count(len(inner))]
        for first in range(0, len(inner), _PORTION):
            portion = inner[first : first + _PORTION]
            data = self.encode((replace(element, **{self._inner: portion}),))
            chunks.append(data[body : len(data) - len(tail)])
            yield
        chunks.append(tail)
        return chunks

    def _encode(self, portion: Sequence[Message]) -> bytes:
        return encode_message(replace(self.message, **{self._rows: portion}), self._version)

    def _place_of_count(self, empty: bytes, one: bytes) -> int:
        """The position of the count: it ends where the two encodings first differ."""
        place = next(
            index for index, pair in enumerate(zip(empty, one, strict=False)) if pair[0] != pair[1]
        )
        return place + 1 - self._count_size


def _inner_rows(element: Message, inner: str) -> Sequence[Message]:
    return getattr(element, inner) or ()


def _portions(elements: Sequence[Message], inner: str) -> Iterator[list[Message]]:
    """Elements that are encoded together: `_PORTION` rows of either kind at most, or one."""
    portion: list[Message] = []
    weight = 0
    for element in elements:
        size = 1 + (len(_inner_rows(element, inner)) if inner else 0)
        if portion and weight + size > _PORTION:
            yield portion
            portion, weight = [], 0
        portion.append(element)
        weight += size
    if portion:
        yield portion
