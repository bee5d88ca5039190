"""The seam between connections and handlers: one per plane.

A handler is a plain function of a `Request`. It returns

* a `Response`: the answer leaves with the wake-up that brought the request;
* None: the request is parked, and its handler calls `request.reply` later, or has done so already;
* a coroutine that ends in one of the two: it runs as a task and takes a slot while it waits.

Every handler is called straight from the connection's read callback: no queue, no task. Slots
(`num.io.threads`; one on the control plane) bound how many coroutines run at a time. A coroutine
that finds all slots taken waits, unstarted, in a queue. A request that is answered without waiting
therefore never stands behind one that waits: administrative requests that write to the store delay
each other, and no producer, consumer or group member. The queue is as long as there are connections
at most, since a connection is not read while its request is in process; requests above
`queued.max.requests` count as still with their connections.

When a peer hangs up its request leaves the queue. A coroutine that runs is not cancelled: it may be
between a write to the store and the change that follows in memory.

A handler that raises `DecodeError` has met bytes that are no request: the connection closes with
one line in the log. Any other exception is our bug: it is logged, and the connection closes too.

Control plane and data plane differ in their sizes and their metrics' prefix, nothing else.
"""

import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeAlias

from odradek.clock import PreciseClock
from odradek.errors import DecodeError
from odradek.metrics import Meter, MetricRegistry
from odradek.network.loop_turns import SLOW_HANDLER_NS, LoopTurns
from odradek.network.request import (
    UNSET,
    CloseConnectionResponse,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
)
from odradek.network.request_metrics import RequestMetrics
from odradek.purgatory import Timer
from odradek.purgatory.timer import TimerCall
from odradek.tasks import Tasks

__all__ = [
    "CONTROL_PLANE_PREFIX",
    "CONTROL_PLANE_QUEUE_SIZE",
    "CONTROL_PLANE_SLOTS",
    "Handler",
    "RequestChannel",
    "ResponseSink",
]

logger = logging.getLogger(__name__)

CONTROL_PLANE_PREFIX: Final = "ControlPlane"
CONTROL_PLANE_QUEUE_SIZE: Final = 20
CONTROL_PLANE_SLOTS: Final = 1

# Times of requests appear in their histograms this late.
_FOLD_AFTER_MS: Final = 1_000

Handling: TypeAlias = Coroutine[Any, Any, Response | None]
Handler: TypeAlias = Callable[[Request], "Response | Handling | None"]


class ResponseSink(Protocol):
    """The owner of connections that a response goes back to: a processor."""

    @property
    def id(self) -> int: ...

    @property
    def response_queue_size(self) -> int: ...

    def enqueue_response(self, response: Response) -> None: ...


class RequestChannel:
    """Requests of one plane.

    Args:
        handler: Runs requests.
        queue_size: Requests that count as queued when they wait for a slot.
        slots: Handlers that may be suspended at a time.
        tasks: Runs handlers that wait.
        request_turn: Asks for `run_queued` in the next turn of the loop.
        turns: Records handlers that occupy the loop for long.
        metric_prefix: Empty for the data plane.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        queue_size: int,
        slots: int,
        clock: PreciseClock,
        timer: Timer,
        metrics: MetricRegistry,
        tasks: Tasks,
        request_turn: Callable[[], None],
        turns: LoopTurns,
        metric_prefix: str = "",
    ) -> None:
        self._handler = handler
        self._turns = turns
        self._queue_size = queue_size
        self._slots = slots
        self._now_ns = clock.monotonic_ns
        self._tasks = tasks
        self._request_turn = request_turn
        # Handlers that wait for a slot, not begun, in order. Invariant: their peers are there, and
        # each is the one request of a connection that is not read.
        self._queue: dict[Request, Handling] = {}
        self._suspended = 0  # Handlers that wait inside. Invariant: at most _slots when it rose.
        self._processors: dict[int, ResponseSink] = {}
        # The request whose handler is on the stack, and its response if that came by send_response.
        self._running: Request | None = None
        self._answered: Response | None = None
        self.metrics = RequestMetrics(metrics, self._fold_later)
        self._timer = timer
        self._registry = metrics
        self._prefix = metric_prefix
        self._group = metrics.group("kafka.network", "RequestChannel")
        self._group.gauge(f"{metric_prefix}RequestQueueSize", lambda: self.queue_length)
        self._group.gauge(f"{metric_prefix}ResponseQueueSize", self._response_queue_size)
        handlers = metrics.group("kafka.server", "KafkaRequestHandlerPool")
        self.busy = Meter(clock)  # Nanoseconds spent in handlers.
        handlers.gauge(f"{metric_prefix}RequestHandlerAvgIdlePercent", self._idle_share)

    @property
    def queue_length(self) -> int:
        """Requests that wait in the queue; those still with their connections do not count."""
        return min(len(self._queue), self._queue_size)

    @property
    def slot_count(self) -> int:
        """How many handlers may be suspended at a time."""
        return self._slots

    @property
    def suspended_count(self) -> int:
        return self._suspended

    @property
    def is_idle(self) -> bool:
        return not self._suspended and not self._queue

    def add_processor(self, processor: ResponseSink) -> None:
        """Routes responses to a processor, by its id."""
        if processor.id in self._processors:
            logger.warning("Processor %d is registered already", processor.id)
            return
        self._processors[processor.id] = processor
        self._group.gauge(
            f"{self._prefix}ResponseQueueSize",
            lambda: processor.response_queue_size,
            "",
            processor=str(processor.id),
        )

    def remove_processor(self, processor_id: int) -> None:
        """Stops routing to a processor; responses to it are dropped from now on."""
        if self._processors.pop(processor_id, None) is not None:
            self._registry.group(
                "kafka.network", "RequestChannel", processor=str(processor_id)
            ).remove()

    def submit(self, request: Request) -> Response | None:
        """Takes a request from a connection; returns its answer, or None if that comes later.

        In the usual case the handler returns its answer, and this is the only call for the request.
        """
        started_ns = request.dequeue_ns = request.start_ns
        self._running = request
        self._answered = None  # A handler may have answered, and failed after that.
        try:
            result = self._handler(request)
        except DecodeError as error:
            result = CloseConnectionResponse(request, f"{request}: {error}")
        except Exception:  # the border between requests: one must not end others
            logger.exception("The handler of %s failed", request)
            result = CloseConnectionResponse(request, "a handler failed")
        self._running = None
        end_ns = self._now_ns()
        spent_ns = end_ns - started_ns
        self.busy.count += spent_ns
        if spent_ns > SLOW_HANDLER_NS:
            self._turns.note(request.header.api_key.name, spent_ns)
        if result is None:
            result = self._take_answered()
            if result is None:
                request.api_local_complete_ns = end_ns
                return None
        elif type(result) is not SendResponse and not isinstance(result, Response):
            self._begin_or_queue(request, result)
            return None
        if request.api_local_complete_ns == UNSET:
            request.is_answered_at_once = True
            request.response_complete_ns = end_ns
        else:
            request.complete(end_ns)
        return result

    def submit_again(self, request: Request) -> Response | None:
        """As `submit`, for a request that was parked: its time until now is no handler's."""
        received_ns = request.start_ns
        request.start_ns = self._now_ns()
        try:
            return self.submit(request)
        finally:
            request.start_ns = received_ns

    def run_queued(self) -> None:
        """Begins the handlers that wait, as far as there are slots."""
        queue = self._queue
        while queue and self._suspended < self._slots:
            request = next(iter(queue))
            handling = queue.pop(request)
            request.on_abandoned = None
            request.dequeue_ns = self._now_ns()
            self._begin(request, handling)

    def send_response(self, response: Response) -> None:
        """Answers a request that was parked."""
        request = response.request
        if request is self._running:
            self._answered = response
            return
        if request.on_abandoned is not None:
            # It leads back to the request, mostly: without the cycle both are freed at once.
            request.on_abandoned = None
        now_ns = self._now_ns()
        request.response_complete_ns = now_ns
        if request.api_local_complete_ns < 0:
            request.api_local_complete_ns = now_ns
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(_ROUTED[type(response)], request)
        processor = self._processors.get(request.connection.processor_id)
        if processor is not None:
            processor.enqueue_response(response)

    def resize(self, slots: int) -> None:
        """Changes how many handlers may be suspended; suspended handlers finish undisturbed."""
        self._slots = slots
        if self._queue:
            self._request_turn()

    def clear(self) -> None:
        """Drops the queued requests; for shutdown."""
        for request in tuple(self._queue):
            self._drop(request)

    def _take_answered(self) -> Response | None:
        """The answer that a handler gave by `send_response` while it ran, if any."""
        answered, self._answered = self._answered, None
        return answered

    def _begin_or_queue(self, request: Request, handling: Handling) -> None:
        if self._suspended < self._slots and not self._queue:
            self._begin(request, handling)
        else:
            self._queue[request] = handling
            request.on_abandoned = lambda: self._drop(request)

    def _begin(self, request: Request, handling: Handling) -> None:
        self._suspended += 1
        self._tasks.spawn(self._finish(request, handling))

    def _drop(self, request: Request) -> None:
        """Removes a request from the queue whose peer has hung up."""
        handling = self._queue.pop(request, None)
        if handling is not None:
            handling.close()
            self.metrics.request_done(request, self._now_ns())

    async def _finish(self, request: Request, handling: Handling) -> None:
        response: Response | None
        try:
            response = await _Steps(handling, request.header.api_key.name, self._turns)
        except DecodeError as error:
            response = CloseConnectionResponse(request, f"{request}: {error}")
        except Exception:  # the border between requests: one must not end others
            logger.exception("The handler of %s failed", request)
            response = CloseConnectionResponse(request, "a handler failed")
        finally:
            self._suspended -= 1
            if self._queue:
                self._request_turn()
        if response is not None:
            self.send_response(response)
        elif request.api_local_complete_ns < 0:
            request.api_local_complete_ns = self._now_ns()

    def _fold_later(self) -> None:
        self._timer.add(TimerCall(_FOLD_AFTER_MS, self.metrics.fold))

    def _response_queue_size(self) -> int:
        return sum(processor.response_queue_size for processor in self._processors.values())

    def _idle_share(self) -> float:
        return max(0.0, 1.0 - self.busy.rates().one_minute / 1_000_000_000)


class _Steps:
    """A handler's coroutine; reports each of its steps that occupies the loop for long."""

    __slots__ = ("_handling", "_name", "_turns")

    def __init__(self, handling: Handling, name: str, turns: LoopTurns) -> None:
        self._handling = handling
        self._name = name
        self._turns = turns

    def __await__(self) -> Generator[Any, None, Response | None]:
        turns = self._turns
        failure: BaseException | None = None
        while True:
            started_ns = turns.now_ns()
            try:
                if failure is None:
                    awaited = self._handling.send(None)
                else:
                    awaited = self._handling.throw(failure)
            except StopIteration as end:
                result: Response | None = end.value
                return result
            finally:
                spent_ns = turns.now_ns() - started_ns
                if spent_ns > SLOW_HANDLER_NS:
                    turns.note(self._name, spent_ns)
            failure = None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, above
                failure = error


_ROUTED: Final[dict[type[Response], str]] = {
    SendResponse: "Sending the answer to %s",
    NoOpResponse: "Not answering %s: it wants no answer",
    CloseConnectionResponse: "Closing the connection of %s: it failed",
}
