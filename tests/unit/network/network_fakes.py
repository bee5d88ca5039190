"""Stand-ins for what surrounds a request channel."""

import random
from collections.abc import Coroutine
from typing import Any

from odradek.metrics import MetricRegistry
from odradek.model import SecurityProtocol
from odradek.network.loop_turns import LoopTurns
from odradek.network.request import (
    ClientInformation,
    ConnectionContext,
    Request,
    RequestPlane,
    Response,
)
from odradek.network.request_channel import Handler, RequestChannel
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import RequestHeader
from odradek.purgatory import ManualTimer
from odradek.testing import ManualClock


class NoChannel:
    """Of connections whose requests nobody parks."""

    def submit(self, request: Request) -> Response | None:
        raise AssertionError("not asked for here")

    def submit_again(self, request: Request) -> Response | None:
        raise AssertionError("not asked for here")

    def send_response(self, response: Response) -> None:
        raise AssertionError("not asked for here")


class FakeConnection:
    """An owner of requests that remembers what it is told."""

    def __init__(self, processor_id: int = 0) -> None:
        self.processor_id = processor_id
        self.is_closed = False
        self.channel: RequestPlane = NoChannel()
        self.context = ConnectionContext(
            connection_id="127.0.0.1:9092-127.0.0.1:4711-0",
            listener="PLAINTEXT",
            security_protocol=SecurityProtocol.PLAINTEXT,
            client_address="127.0.0.1",
        )
        self.throttles: list[int] = []

    def register_client(self, information: ClientInformation) -> None:
        raise AssertionError("not asked for here")

    def throttle(self, throttle_ms: int) -> None:
        self.throttles.append(throttle_ms)

    def complete(self, response: Response) -> None:
        raise AssertionError("a processor does that")


class FakeProcessor:
    """A sink of responses."""

    def __init__(self, processor_id: int = 0) -> None:
        self.id = processor_id
        self.responses: list[Response] = []

    @property
    def response_queue_size(self) -> int:
        return len(self.responses)

    def enqueue_response(self, response: Response) -> None:
        self.responses.append(response)


class Bench:
    """A request channel with fakes around it; tasks are run by hand."""

    def __init__(
        self, handler: Handler, *, queue_size: int = 500, slots: int = 8, prefix: str = ""
    ) -> None:
        self.clock = ManualClock()
        self.metrics = MetricRegistry(self.clock, random.Random(1))
        self.timer = ManualTimer("channel")
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.begun_count = 0  # Handlers that got a slot.
        self.turns = 0
        self.turns_measured = LoopTurns(self.clock.monotonic_ns)
        self.processor = FakeProcessor()
        self.channel = RequestChannel(
            handler,
            queue_size=queue_size,
            slots=slots,
            clock=self.clock,
            timer=self.timer,
            metrics=self.metrics,
            tasks=self,
            request_turn=self.request_turn,
            turns=self.turns_measured,
            metric_prefix=prefix,
        )
        self.channel.add_processor(self.processor)

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        self.begun_count += 1
        self.tasks.append(work)

    async def sleep(self, delay_s: float, /) -> None:
        raise AssertionError("a channel does not wait")

    def request_turn(self) -> None:
        self.turns += 1

    def finish_task(self, index: int = 0) -> None:
        """Run a coroutine that waits for nothing any more to its end."""
        task = self.tasks.pop(index)
        try:
            task.send(None)
        except StopIteration:
            return
        raise AssertionError("the handler still waits")


def make_request(
    connection: FakeConnection | None = None,
    correlation_id: int = 1,
    *,
    api_key: ApiKey = ApiKey.HEARTBEAT,
    start_ns: int = 0,
) -> Request:
    header = RequestHeader(api_key, 0, correlation_id, "test")
    return Request(connection or FakeConnection(), header, memoryview(b"payload"), 2, start_ns)
