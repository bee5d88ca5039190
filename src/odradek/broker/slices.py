"""Work that grows with a request: done in slices, with other tasks of the loop in between.

Such work is a generator. It yields after each element, where it may be interrupted, and returns the
answer to its request, or None if the request is answered otherwise. A handler of this kind
(`in_slices`) runs its first slice within the call: a quick one is answered like any other. After a
millisecond the rest continues as a task. In each turn of the loop one slice is done, of all
requests together: a thousand such requests take turns, and the loop is as quick as with one of
them. If the client disconnects, the rest is not done.

Example: DescribeConfigs for 10,000 topics, a tenth of a millisecond each::

    handle ── 10 topics ── 1 ms is over ──► task ── 10 topics ── turn ── 10 topics ── … answer

A step that cannot be made smaller, such as the expansion of a compressed batch, is yielded as a
job: it runs on a thread, one job at a time, and the generator continues afterwards.

State that a handler uses after a `yield` has to be taken before the first one, like an image, which
never changes, or has to be looked up again.

Requests above `LONG_REQUEST_BYTES` are parsed in slices before their handler is called
(`parse_in_slices`), and long answers are encoded in slices (`reply_in_slices`). A handler that
waits for the store in between is a coroutine, and runs its longer parts by `finish_in_slices`; one
that answers in a callback starts the answer by `start_in_slices`.
"""

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from functools import wraps
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.broker.error_answers import failure_answer
from odradek.broker.error_counts import count_errors_steps
from odradek.errors import DecodeError
from odradek.network.request import CloseConnectionResponse, Request, Response, SendResponse
from odradek.protocol.codec import encode_message_steps, parse_message, parse_message_steps
from odradek.protocol.headers import encode_response_header
from odradek.protocol.registry import request_type
from odradek.protocol.schema import Message, replace

__all__ = [
    "LONG_REQUEST_BYTES",
    "Gathering",
    "Job",
    "Steps",
    "StepsOrNone",
    "body_of",
    "finish_in_slices",
    "in_slices",
    "parse_in_slices",
    "portions",
    "reply_in_slices",
    "start_apart",
    "start_in_slices",
]

# Longer requests are parsed in slices: a shorter one takes a millisecond or two at most.
LONG_REQUEST_BYTES: Final = 8 << 10
# How long a handler runs before other tasks of the loop do: 02 section 12.
_SLICE_NS: Final = 1_000_000

# Work that is done on a thread before the next step.
Job: TypeAlias = Callable[[], None]
# Yields where it may be interrupted: None, or a `Job`. Returns the answer.
Steps: TypeAlias = Generator[Any, None, Response]
# The same; returns None for a request that is answered otherwise.
StepsOrNone: TypeAlias = Generator[Any, None, Response | None]
_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


class _Slice(NamedTuple):
    """What a slice has come to."""

    is_done: bool
    result: Any  # If done.
    job: Job | None  # To be run before the next slice.


def in_slices(
    handler: Callable[[Request, BrokerContext], StepsOrNone],
) -> Callable[[Request, BrokerContext], Response | None]:
    """Makes a handler of a generator."""

    @wraps(handler)
    def handle(request: Request, context: BrokerContext) -> Response | None:
        steps = handler(request, context)
        first = _run_slice(steps, context)
        if first.is_done:
            response: Response | None = first.result
            return response
        _start_rest(request, steps, first, context)
        return None

    return handle


def start_in_slices(
    request: Request, steps: StepsOrNone, context: BrokerContext, *, outlives_client: bool = False
) -> None:
    """Answers a parked request with what the steps return; the first slice is run now.

    Args:
        request: The request.
        steps: The work.
        context: The parts of the broker.
        outlives_client: Whether the work is done even if the client disconnects.
    """
    first = _run_slice(steps, context)
    if not first.is_done:
        _start_rest(request, steps, first, context, outlives_client=outlives_client)
    elif first.result is not None:
        request.reply(first.result)


def _start_rest(
    request: Request,
    steps: StepsOrNone,
    last: _Slice,
    context: BrokerContext,
    *,
    outlives_client: bool = False,
) -> None:
    assert context.slices is not None, "longer work needs a loop to share"
    rest = _run_rest(request, steps, last, context, outlives_client=outlives_client)
    context.slices.spawn(rest)


async def _run_rest(
    request: Request,
    steps: StepsOrNone,
    last: _Slice,
    context: BrokerContext,
    *,
    outlives_client: bool,
) -> None:
    try:
        while not last.is_done:
            await _run_job(last.job, context)
            if request.connection.is_closed and not outlives_client:
                steps.close()
                break
            last = await _next_slice(request.header.api_key.name, steps, context)
        response: Response | None = last.result
        if request.connection.is_closed and not outlives_client:
            response = CloseConnectionResponse(
                request, "the client disconnected while it was served"
            )
    except DecodeError as error:
        response = CloseConnectionResponse(request, f"{request}: {error}")
    except Exception as error:  # noqa: BLE001 - one request must not end others
        response = failure_answer(request, error)
    if response is not None:
        request.reply(response)


def start_apart(
    request: Request, handling: Coroutine[Any, Any, Response | None], context: BrokerContext
) -> Coroutine[Any, Any, Response | None] | None:
    """Runs a handler that waits for another broker, without a slot.

    If that broker is silent, the request of its successor, by which this broker learns of that,
    needs a slot. Not for handlers that write to the store: the slots are there to bound those.
    """
    if context.slices is None:
        return handling
    context.slices.spawn(_run_apart(request, handling))
    return None


async def _run_apart(request: Request, handling: Coroutine[Any, Any, Response | None]) -> None:
    response: Response | None
    try:
        response = await handling
    except DecodeError as error:
        response = CloseConnectionResponse(request, f"{request}: {error}")
    except Exception as error:  # noqa: BLE001 - one request must not end others
        response = failure_answer(request, error)
    if response is not None:
        request.reply(response)


async def finish_in_slices(
    steps: Generator[Any, None, _T], request: Request, context: BrokerContext
) -> _T:
    """Runs all steps, for a handler that waits; returns their result."""
    last = _run_slice(steps, context)
    while not last.is_done:
        await _run_job(last.job, context)
        last = await _next_slice(request.header.api_key.name, steps, context)
    result: _T = last.result
    return result


async def _next_slice(
    name: str, steps: Generator[Any, None, Any], context: BrokerContext
) -> _Slice:
    if context.slices is None:
        return _run_slice(steps, context)
    return await context.slices.run(name, lambda: _run_slice(steps, context))


def _run_slice(steps: Generator[Any, None, Any], context: BrokerContext) -> _Slice:
    """Runs steps for a slice of time, or up to a job."""
    now_ns = context.clock.monotonic_ns
    end_ns = now_ns() + _SLICE_NS
    try:
        job = next(steps)
        while job is None and now_ns() < end_ns:
            job = next(steps)
    except StopIteration as stop:
        return _Slice(True, stop.value, None)
    return _Slice(False, None, job)


async def _run_job(job: Job | None, context: BrokerContext) -> None:
    if job is None:
        return
    if context.expansions is None:
        job()
    else:
        await context.expansions.run(job)


def body_of(cls: type[_M], request: Request) -> _M:
    """The parsed body of a request.

    Raises:
        DecodeError: It is malformed.
    """
    if request.parsed is not None:
        parsed: _M = request.parsed
        return parsed
    message, _ = parse_message(
        cls, request.payload, request.header.api_version, request.body_offset
    )
    return message


def parse_in_slices(request: Request, context: BrokerContext, max_elements: int) -> bool:
    """Parses a long request, of so many elements in all arrays at most.

    Returns whether it is parsed; if not, it is handed to its handler again when it is.

    Raises:
        DecodeError: It is malformed.
    """
    is_first_slice = True

    def steps() -> StepsOrNone:
        header = request.header
        request.parsed = yield from parse_message_steps(
            request_type(header.api_key),
            request.payload,
            header.api_version,
            request.body_offset,
            max_elements=max_elements,
        )
        if not is_first_slice:
            request.submit_again()
        return None

    parsing = steps()
    first = _run_slice(parsing, context)
    is_first_slice = False
    if not first.is_done:
        _start_rest(request, parsing, first, context)
    return first.is_done


def reply_in_slices(
    request: Request, message: Message, context: BrokerContext, *, throttle_ms: int = 0
) -> Steps:
    """As `reply_throttled`, for an answer that may be long."""
    header = request.header
    chunks = yield from encode_message_steps(message, header.api_version)
    request.errors = yield from count_errors_steps(message)
    # Last, since the work is counted against the client's share.
    throttle_ms = request_throttle_ms(request, context, other_ms=throttle_ms)
    if throttle_ms > 0:
        throttled = replace(message, throttle_time_ms=throttle_ms)
        chunks = yield from encode_message_steps(throttled, header.api_version)
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start, *chunks])


class Gathering:
    """Work of a request that is begun in portions, each of which calls back when it is done.

    Args:
        on_all: Called once, when every portion is done and `end` was called.
    """

    __slots__ = ("_on_all", "_open_count")

    def __init__(self, on_all: Callable[[], None]) -> None:
        self._on_all = on_all
        self._open_count = 1  # Portions that are not done; one more until the last is begun.

    def begin(self) -> None:
        """A portion begins."""
        self._open_count += 1

    def end(self) -> None:
        """A portion is done, or the last one has begun."""
        self._open_count -= 1
        if not self._open_count:
            self._on_all()


def portions(elements: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """The elements in lists of that size; the last one may be shorter."""
    remaining = iter(elements)
    while portion := list(islice(remaining, size)):
        yield portion
