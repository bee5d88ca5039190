"""The controller's channels to the brokers: one queue and one sender each, its own included.

Rules:

1. One request in flight per broker, strictly in the order they were queued.
2. A request that could not be delivered is sent again every 100 ms, for as long as the broker is
   registered and this broker is controller: it must arrive, and no later one may overtake it. One
   that no attempt can deliver (the broker does not serve its version, or it cannot be encoded) is
   dropped with an error in the log, and the next one is sent.
3. A slow or dead broker delays no other broker's requests.
4. Answers go to a callback that only enqueues a controller event. One that comes after the broker
   was removed, or the controller was deposed, is dropped.

A `ControlChannel` transports the requests: to the own broker it passes the object inside the
process, to others it writes to a socket. Only the channels know the difference.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from odradek.clock import Clock
from odradek.errors import ApiError, InvariantViolation, OdradekError
from odradek.metadata.control_requests import (
    ControlRequest,
    ControlRequestHandler,
    ControlResponse,
)
from odradek.metadata.image import LiveBroker
from odradek.metrics import MetricGroup, MetricRegistry
from odradek.model import Endpoint
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = [
    "RETRY_PAUSE_S",
    "ControlChannel",
    "ControllerChannels",
    "LocalChannel",
    "OpenChannel",
    "Sleep",
]

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
ResponseCallback: TypeAlias = Callable[[ControlResponse], None]

# Makes the channel to a broker; the endpoint is None if the broker lacks the listener.
OpenChannel: TypeAlias = Callable[[LiveBroker, Endpoint | None], "ControlChannel"]

_RESPONSES: dict[type[ControlRequest], type[ControlResponse]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}


class ControlChannel(Protocol):
    """The transport of requests to one broker."""

    async def send(self, request: ControlRequest) -> ControlResponse:
        """Delivers a request, connecting first if need be, and waits for the answer.

        Raises:
            Exception: It was not delivered, or the answer is lost: the sender tries again, unless
                the error shows that no attempt can succeed.
        """
        ...

    async def close(self) -> None:
        """Drops the connection; a later `send` makes a new one."""
        ...


class LocalChannel:
    """The channel to the controller's own broker: it passes the request object itself."""

    __slots__ = ("_handler",)

    def __init__(self, handler: ControlRequestHandler) -> None:
        self._handler = handler

    async def send(self, request: ControlRequest) -> ControlResponse:
        return await self._handler(request)

    async def close(self) -> None:
        """Does nothing: there is no connection."""


class _Item(NamedTuple):
    request: ControlRequest
    callback: ResponseCallback | None
    enqueue_time_ms: int


class _BrokerSender:
    """Queue and sender task of one broker."""

    def __init__(
        self, channel: ControlChannel, *, clock: Clock, sleep: Sleep, group: MetricGroup
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._sleep = sleep
        self._group = group
        self._queue: deque[_Item] = deque()
        self._is_filled = asyncio.Event()
        # Whether everything that was queued has been answered, or dropped.
        self.is_told = asyncio.Event()
        self.is_told.set()
        self._is_removed = False
        self._is_sending = False
        self.task: asyncio.Task[None] | None = None  # Set once it runs.
        self._queue_time = group.timer("RequestRateAndQueueTimeMs")
        group.gauge("QueueSize", lambda: self.size)

    @property
    def size(self) -> int:
        """The number of requests that wait, without the one being sent."""
        return len(self._queue)

    @property
    def is_busy(self) -> bool:
        """Whether a request waits or is being sent."""
        return self._is_sending or bool(self._queue)

    def put(self, request: ControlRequest, callback: ResponseCallback | None) -> None:
        self._queue.append(_Item(request, callback, self._clock.monotonic_ms()))
        self.is_told.clear()
        self._is_filled.set()

    async def run(self) -> None:
        while True:
            while not self._queue:
                self._is_filled.clear()
                self.is_told.set()
                await self._is_filled.wait()
            item = self._queue.popleft()
            self._queue_time.update(self._clock.monotonic_ms() - item.enqueue_time_ms)
            self._is_sending = True
            response = await self._deliver(item.request)
            if response is not None and not self._is_removed:
                await self._tell(item, response)
            self._is_sending = False

    async def _deliver(self, request: ControlRequest) -> ControlResponse | None:
        """The answer; None if no attempt can deliver the request."""
        last = ""
        while True:
            try:
                return await self._channel.send(request)
            except Exception as error:
                await self._channel.close()
                if not _may_succeed_later(error):
                    logger.exception("%s is dropped: it can never be delivered", _name(request))
                    return None
                if repr(error) != last:  # An unreachable broker is one line, not ten a second.
                    last = repr(error)
                    logger.warning("%s was not delivered, will retry: %s", _name(request), last)
            await self._sleep(RETRY_PAUSE_S)

    async def _tell(self, item: _Item, response: ControlResponse) -> None:
        try:
            expected = _RESPONSES[type(item.request)]
            if not isinstance(response, expected):
                raise TypeError(f"expected {expected.__name__}, found {type(response).__name__}")
            if item.callback is not None:
                item.callback(response)
        except Exception:
            logger.exception("the answer to %s could not be used", _name(item.request))
            await self._channel.close()

    async def stop(self) -> None:
        """Ends the task before its channel is closed, and drops the queued requests."""
        self._is_removed = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        await self._channel.close()
        self._queue.clear()
        self.is_told.set()
        self._group.remove()


class ControllerChannels:
    """All senders of an active controller.

    Args:
        controller_id: This broker.
        open_channel: Makes the channel to a broker, without connecting it.
        listener: The listener of brokers that the controller connects to.
        tasks: Owns the senders.
        clock: For the time requests wait.
        metrics: Gets `QueueSize` and `RequestRateAndQueueTimeMs` per broker, `TotalQueueSize`.
        sleep: Waits between two attempts.
        name_prefix: Put before the senders' task names.
    """

    def __init__(
        self,
        controller_id: int,
        open_channel: OpenChannel,
        *,
        listener: str,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        metrics: MetricRegistry,
        sleep: Sleep = asyncio.sleep,
        name_prefix: str | None = None,
    ) -> None:
        self._controller_id = controller_id
        self._open_channel = open_channel
        self._listener = listener
        self._tasks = tasks
        self._clock = clock
        self._metrics = metrics
        self._sleep = sleep
        self._name_prefix = "" if name_prefix is None else f"{name_prefix}:"
        self._senders: dict[int, _BrokerSender] = {}
        metrics.group("kafka.controller", "ControllerChannelManager").gauge(
            "TotalQueueSize", lambda: self.total_queue_size
        )

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._senders)

    @property
    def total_queue_size(self) -> int:
        return sum(sender.size for sender in self._senders.values())

    def queue_size(self, broker_id: int) -> int:
        return self._senders[broker_id].size

    def task_name(self, broker_id: int) -> str:
        controller = f"{self._name_prefix}Controller-{self._controller_id}"
        return f"{controller}-to-broker-{broker_id}-send-thread"

    def add_broker(self, broker: LiveBroker) -> None:
        """Starts a sender; a broker that has one keeps it."""
        if broker.id in self._senders:
            return
        endpoint = next((e for e in broker.endpoints if e.listener == self._listener), None)
        sender = _BrokerSender(
            self._open_channel(broker, endpoint),
            clock=self._clock,
            sleep=self._sleep,
            group=self._metrics.group(
                "kafka.controller", "ControllerChannelManager", **{"broker-id": str(broker.id)}
            ),
        )
        self._senders[broker.id] = sender
        sender.task = self._tasks.create_task(sender.run(), name=self.task_name(broker.id))

    async def remove_broker(self, broker_id: int) -> None:
        """Drops a broker and the requests queued for it."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            await sender.stop()

    def send(
        self, broker_id: int, request: ControlRequest, callback: ResponseCallback | None = None
    ) -> None:
        """Queues a request; for an unknown broker it is dropped with a warning."""
        sender = self._senders.get(broker_id)
        if sender is None:
            logger.warning("%s for broker %d dropped: no such broker", _name(request), broker_id)
        else:
            sender.put(request, callback)

    async def told(self, broker_id: int) -> None:
        """Returns when a broker has answered all requests queued for it, or is removed."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            await sender.is_told.wait()

    async def shutdown(self) -> None:
        """Stops all senders."""
        for broker_id in self.broker_ids:
            await self.remove_broker(broker_id)


def _may_succeed_later(error: Exception) -> bool:
    """Whether the same request may arrive if it is sent again."""
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, OSError | OdradekError) and not isinstance(error, InvariantViolation)


def _name(request: ControlRequest) -> str:
    return type(request).__name__.removesuffix("Request")
