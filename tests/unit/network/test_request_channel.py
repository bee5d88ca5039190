"""From connections to handlers and back: queue, slots, routing."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from odradek.errors import DecodeError
from odradek.metrics import Gauge, MetricName
from odradek.network.request import (
    CloseConnectionResponse,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
)
from odradek.protocol.api_keys import ApiKey
from tests.unit.network.network_fakes import Bench, FakeConnection, FakeProcessor, make_request


def answer_at_once(request: Request) -> Response:
    return SendResponse(request, [b"done"])


class WaitingHandler:
    """Suspends every request until its coroutine is run."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    def __call__(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self._finish(request)

    async def _finish(self, request: Request) -> Response:
        self.begun.append(request.header.correlation_id)
        return NoOpResponse(request)


def finish_tasks(bench: Bench) -> None:
    while bench.tasks:
        bench.finish_task()


def test_a_handler_that_does_not_wait_answers_from_the_call_itself() -> None:
    bench = Bench(answer_at_once)
    request = make_request()
    response = bench.channel.submit(request)

    assert isinstance(response, SendResponse)
    assert bench.processor.responses == []
    assert request.dequeue_ns == request.start_ns
    assert request.is_answered_at_once
    assert request.response_complete_ns >= request.dequeue_ns
    assert bench.channel.is_idle


def test_a_parked_request_is_answered_through_its_processor() -> None:
    bench = Bench(lambda request: None)
    request = make_request()
    assert bench.channel.submit(request) is None
    bench.clock.advance(5)
    response = NoOpResponse(request)
    bench.channel.send_response(response)

    assert bench.processor.responses == [response]
    assert request.response_complete_ns - request.api_local_complete_ns == 5_000_000


def test_an_answer_given_while_the_handler_runs_takes_no_detour() -> None:
    def handler(request: Request) -> None:
        bench.channel.send_response(NoOpResponse(request))

    bench = Bench(handler)
    response = bench.channel.submit(make_request())

    assert isinstance(response, NoOpResponse)  # 02:D-6: the one name of it.
    assert bench.processor.responses == []


def test_an_answer_of_a_handler_that_failed_after_it_is_nobody_elses() -> None:
    def handler(request: Request) -> None:
        if request is failing:
            bench.channel.send_response(NoOpResponse(request))
            raise ValueError("bug")

    bench = Bench(handler)
    failing = make_request()

    assert isinstance(bench.channel.submit(failing), CloseConnectionResponse)
    assert bench.channel.submit(make_request()) is None


def test_a_full_queue_keeps_requests_with_their_connections() -> None:
    """02:N-10: nothing blocks, nothing is lost, order is kept."""
    handler = WaitingHandler()
    bench = Bench(handler, queue_size=1, slots=1)
    for correlation_id in range(4):
        assert bench.channel.submit(make_request(correlation_id=correlation_id)) is None

    assert bench.begun_count == 1
    assert bench.channel.queue_length == 1
    for expected in (2, 3, 4):
        bench.finish_task()
        assert bench.turns
        bench.channel.run_queued()
        assert bench.begun_count == expected
    bench.finish_task()
    assert handler.begun == [0, 1, 2, 3]
    assert bench.channel.is_idle
    assert len(bench.processor.responses) == 4


def test_slots_grow_and_shrink_without_hurting_anybody() -> None:
    """02:N-13: 8, then 10, then 5; those that are suspended finish first."""
    bench = Bench(WaitingHandler(), slots=8)
    for correlation_id in range(20):
        bench.channel.submit(make_request(correlation_id=correlation_id))
    assert bench.begun_count == 8

    bench.channel.resize(10)
    bench.channel.run_queued()
    assert bench.channel.suspended_count == bench.begun_count == 10
    bench.channel.resize(5)
    for _ in range(5):
        bench.finish_task()
        bench.channel.run_queued()
    assert (bench.channel.suspended_count, bench.begun_count) == (5, 10)
    bench.finish_task()
    bench.channel.run_queued()

    assert (bench.channel.suspended_count, bench.begun_count) == (5, 11)
    finish_tasks(bench)
    bench.channel.clear()


def test_every_suspended_handler_frees_its_slot_at_the_end() -> None:
    """02:N-14, 02:D-4: a slot ends with its request, and ends nothing else."""
    bench = Bench(WaitingHandler(), slots=3)
    for _ in range(3):
        bench.channel.submit(make_request())
    bench.channel.clear()
    for _ in range(3):
        bench.finish_task()

    assert bench.channel.suspended_count == 0
    assert bench.channel.is_idle


def test_a_handler_that_does_not_wait_needs_no_slot() -> None:
    """02:N-14: a slot is for an `await`; Produce, Fetch and Heartbeat have none."""

    def handler(request: Request) -> Coroutine[Any, Any, Response] | Response:
        if request.header.api_key is ApiKey.ALTER_CLIENT_QUOTAS:
            return waiting(request)
        return NoOpResponse(request)

    waiting = WaitingHandler()
    bench = Bench(handler, queue_size=1, slots=1)
    for _ in range(3):
        assert bench.channel.submit(make_request(api_key=ApiKey.ALTER_CLIENT_QUOTAS)) is None

    assert isinstance(bench.channel.submit(make_request()), NoOpResponse)
    finish_tasks(bench)
    bench.channel.clear()


def test_a_queued_request_whose_peer_hung_up_is_dropped() -> None:
    """The handler never begins, and what it held is released at once."""
    handler = WaitingHandler()
    bench = Bench(handler, slots=1)
    requests = [make_request(correlation_id=number) for number in range(3)]
    for request in requests:
        bench.channel.submit(request)
    gone = requests[1]
    assert gone.on_abandoned is not None
    gone.on_abandoned()
    assert bench.channel.queue_length == 1

    for _ in range(2):
        bench.finish_task()
        bench.channel.run_queued()

    assert handler.begun == [0, 2]
    assert [response.request for response in bench.processor.responses] == [
        requests[0],
        requests[2],
    ]
    assert bench.channel.is_idle


def test_an_answered_request_cannot_be_abandoned() -> None:
    """What would end its wait leads back to it: a cycle that only the collector could free."""
    bench = Bench(lambda _request: None)
    request = make_request()
    bench.channel.submit(request)
    request.on_abandoned = lambda: request
    bench.channel.send_response(NoOpResponse(request))
    assert [one.request.on_abandoned for one in bench.processor.responses] == [None]


def test_a_running_handler_is_not_stopped_when_its_peer_hangs_up() -> None:
    """It may be inside a write; its answer finds the connection closed."""
    bench = Bench(WaitingHandler(), slots=1)
    requests = [make_request(correlation_id=number) for number in range(2)]
    for request in requests:
        bench.channel.submit(request)
    bench.finish_task()
    bench.channel.run_queued()

    assert [request.on_abandoned for request in requests] == [None, None]
    finish_tasks(bench)


def test_a_response_for_a_removed_processor_is_dropped() -> None:
    """02:N-16."""
    bench = Bench(lambda request: None)
    request = make_request()
    bench.channel.submit(request)
    bench.channel.remove_processor(0)

    bench.channel.send_response(NoOpResponse(request))

    assert bench.processor.responses == []


def test_a_second_processor_of_the_same_id_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(lambda request: None)
    second = FakeProcessor(0)
    bench.channel.add_processor(second)
    request = make_request()
    bench.channel.submit(request)
    bench.channel.send_response(NoOpResponse(request))

    assert len(bench.processor.responses) == 1
    assert second.responses == []
    assert "Processor 0" in caplog.text


@pytest.mark.parametrize("is_waiting", [False, True])
def test_bytes_that_are_no_request_close_their_connection_only(
    is_waiting: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """02:N-8: the handler met a malformed body."""

    async def fail_later(request: Request) -> Response:
        raise DecodeError("count -5")

    def fail(request: Request) -> Coroutine[Any, Any, Response] | Response:
        if is_waiting:
            return fail_later(request)
        raise DecodeError("count -5")

    bench = Bench(fail)
    response = bench.channel.submit(make_request())
    if is_waiting:
        bench.finish_task()
        (response,) = bench.processor.responses

    assert isinstance(response, CloseConnectionResponse)
    assert "count -5" in response.reason
    assert "HEARTBEAT v0" in response.reason
    assert caplog.records == []  # The connection logs it, once.


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_bug_in_a_handler_closes_the_connection_and_is_logged(
    is_waiting: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_later(request: Request) -> Response:
        raise RuntimeError("bug")

    def fail(request: Request) -> Coroutine[Any, Any, Response] | Response:
        if is_waiting:
            return fail_later(request)
        raise RuntimeError("bug")

    bench = Bench(fail)
    response = bench.channel.submit(make_request())
    if is_waiting:
        bench.finish_task()
        (response,) = bench.processor.responses

    assert isinstance(response, CloseConnectionResponse)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_cancelled_handler_gives_its_slot_back() -> None:
    async def scenario() -> None:
        async def wait_for_ever(request: Request) -> Response:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("never")

        bench = Bench(wait_for_ever)
        bench.channel.submit(make_request())
        task = asyncio.ensure_future(bench.tasks.pop())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.channel.suspended_count == 0

    asyncio.run(scenario())


def test_throttling_reaches_an_open_connection_and_zero_does_not() -> None:
    connection = FakeConnection()
    request = make_request(connection)
    request.throttle(0)
    request.throttle(250)
    connection.is_closed = True
    request.throttle(500)

    assert connection.throttles == [250]


def test_a_parked_request_is_answered_by_the_channel_that_it_came_by() -> None:
    parked: list[Request] = []
    benches = [Bench(parked.append), Bench(parked.append)]
    for bench in benches:
        connection = FakeConnection()
        connection.channel = bench.channel
        bench.channel.submit(make_request(connection))

    parked[1].reply(NoOpResponse(parked[1]))

    assert [len(bench.processor.responses) for bench in benches] == [0, 1]


def test_a_request_that_was_kept_is_submitted_again_to_its_own_channel() -> None:
    answers: list[Response | None] = [None]
    bench = Bench(lambda _request: answers.pop())
    connection = FakeConnection()
    connection.channel = bench.channel
    request = make_request(connection)
    assert bench.channel.submit(request) is None
    answers.append(NoOpResponse(request))

    request.submit_again()

    [response] = bench.processor.responses
    assert response.request is request
    assert request.api_local_complete_ns >= 0


@pytest.mark.parametrize("prefix", ["", "ControlPlane"])
def test_queue_sizes_are_gauges(prefix: str) -> None:
    bench = Bench(WaitingHandler(), slots=1, prefix=prefix)
    for _ in range(3):
        bench.channel.submit(make_request())
    bench.finish_task()

    def read(name: str, *tags: tuple[str, str]) -> float:
        gauge = bench.metrics.get(MetricName("kafka.network", "RequestChannel", name, tags))
        assert isinstance(gauge, Gauge)
        return gauge.read()

    assert read(f"{prefix}RequestQueueSize") == 2
    assert read(f"{prefix}ResponseQueueSize") == 1
    assert read(f"{prefix}ResponseQueueSize", ("processor", "0")) == 1
    bench.channel.remove_processor(0)
    name = MetricName(
        "kafka.network", "RequestChannel", f"{prefix}ResponseQueueSize", (("processor", "0"),)
    )
    assert bench.metrics.get(name) is None
    finish_tasks(bench)
    bench.channel.clear()


def test_time_in_handlers_lowers_the_idle_share() -> None:
    def slow(request: Request) -> Response:
        bench.clock.advance(6_000)
        return NoOpResponse(request)

    bench = Bench(slow)
    bench.channel.submit(make_request(start_ns=bench.clock.monotonic_ns()))
    bench.clock.advance(6_000)
    gauge = bench.metrics.get(
        MetricName("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent")
    )

    assert isinstance(gauge, Gauge)
    assert gauge.read() == pytest.approx(0.5)
