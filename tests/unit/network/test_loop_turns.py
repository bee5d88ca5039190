"""02 section 12: the loop measures its own turns, and says which request kept it."""

import asyncio
import logging
import random
import socket
from collections.abc import Coroutine
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

import pytest

from odradek.metrics import MetricRegistry, render_prometheus
from odradek.network.loop_turns import (
    LOG_INTERVAL_NS,
    LoopTurns,
    MeasuredLoop,
    MeasuredSelector,
    turns_of,
)
from odradek.network.request import NoOpResponse, Request, Response
from odradek.protocol.api_keys import ApiKey
from odradek.testing import ManualClock
from tests.unit.network.network_fakes import Bench, make_request

MS = 1_000_000


class Time:
    """A clock in nanoseconds that is moved by hand."""

    def __init__(self) -> None:
        self.ns = 5

    def __call__(self) -> int:
        return self.ns


def turn(turns: LoopTurns, time: Time, duration_ns: int) -> None:
    time.ns += duration_ns
    turns.end(duration_ns)


def test_turns_are_a_histogram_of_prometheus() -> None:
    registry = MetricRegistry(ManualClock(), random.Random(1))
    time = Time()
    turns = LoopTurns(time)
    turns.register(registry)
    for duration_ns in (10_000, 3 * MS, 60_000 * MS):
        turn(turns, time, duration_ns)

    page = render_prometheus(registry)

    assert "# TYPE odradek_loop_turn_seconds histogram\n" in page
    assert 'odradek_loop_turn_seconds_bucket{le="6.5536e-05"} 1\n' in page
    assert 'odradek_loop_turn_seconds_bucket{le="0.002097152"} 1\n' in page
    assert 'odradek_loop_turn_seconds_bucket{le="0.004194304"} 2\n' in page
    assert 'odradek_loop_turn_seconds_bucket{le="4.294967296"} 2\n' in page
    assert 'odradek_loop_turn_seconds_bucket{le="+Inf"} 3\n' in page
    assert "odradek_loop_turn_seconds_sum 60.00301\n" in page
    assert "odradek_loop_turn_seconds_count 3\n" in page


def test_waiting_for_sockets_is_no_turn() -> None:
    time = Time()
    turns = LoopTurns(time)
    selector = MeasuredSelector(turns)
    with selector:
        for waited_ns in (1_000 * MS, 7):
            turns.buckets.total_ns = 0
            time.ns += 3 * MS
            selector.select(0)
            assert turns.buckets.total_ns == 3 * MS
            # What passes inside of a look is nobody's: the turn begins behind it.
            time.ns += waited_ns
            turns.started_ns = time.ns
    assert turns.buckets.count == 2


def test_the_selector_is_one_as_asyncio_wants_it() -> None:
    with MeasuredSelector(LoopTurns()) as selector:
        left, right = socket.socketpair()
        with left, right:
            key = selector.register(left, EVENT_READ, "data")
            with pytest.raises(KeyError):
                selector.register(left.fileno(), EVENT_READ)
            assert selector.get_key(left) is key
            assert selector.get_map()[left.fileno()] is key
            assert selector.select(0) == []
            right.send(b"x")
            assert selector.select(None) == [(key, EVENT_READ)]
            both = selector.modify(left, EVENT_READ | EVENT_WRITE)
            assert selector.select(1) == [(both, EVENT_READ | EVENT_WRITE)]
            writing = selector.modify(left, EVENT_WRITE)
            right.close()
            assert selector.select(0.0001) == [(writing, EVENT_WRITE)]
            assert selector.unregister(left) == writing
            assert selector.select(0) == []
            selector.register(left, EVENT_READ)
            left.close()
            with pytest.raises(KeyError):
                selector.unregister(right.fileno())


def test_a_long_turn_is_logged_with_the_request_that_took_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    time = Time()
    turns = LoopTurns(time)
    turns.note("METADATA", 2 * MS)
    turns.note("DESCRIBE_CONFIGS", 30 * MS)
    turns.note("PRODUCE", 3 * MS)
    turn(turns, time, 40 * MS)

    (record,) = caplog.records
    assert record.getMessage() == (
        "The loop served no socket for 40 ms, 30 ms of it for DESCRIBE_CONFIGS"
    )
    assert turns.longest_ns == 40 * MS


def test_lines_about_long_turns_are_few(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    time = Time()
    turns = LoopTurns(time)
    for duration_ms in (30, 90, 50):
        turns.note("FETCH", 1)
        turn(turns, time, duration_ms * MS)
    turn(turns, time, 19 * MS)
    assert len(caplog.records) == 1
    time.ns += LOG_INTERVAL_NS
    turn(turns, time, 25 * MS)

    assert [record.getMessage() for record in caplog.records[1:]] == [
        "The loop served no socket for 25 ms; 2 more long turns since the last line, the longest"
        " 90 ms"
    ]


def test_a_handler_that_takes_long_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def slow(request: Request) -> Response:
        bench.clock.advance(25)
        return NoOpResponse(request)

    bench = Bench(slow)
    bench.channel.submit(
        make_request(api_key=ApiKey.LIST_OFFSETS, start_ns=bench.clock.monotonic_ns())
    )
    bench.turns_measured.end(26 * MS)

    assert "25 ms of it for LIST_OFFSETS" in caplog.text


def test_a_step_of_a_waiting_handler_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    """Each step by itself: what passes while the handler waits is not its own."""
    caplog.set_level(logging.INFO)

    async def waiting(request: Request) -> Response:
        await asyncio.sleep(0)
        bench.clock.advance(30)
        return NoOpResponse(request)

    def handler(request: Request) -> Coroutine[Any, Any, Response]:
        return waiting(request)

    bench = Bench(handler)
    bench.channel.submit(
        make_request(api_key=ApiKey.ALTER_CONFIGS, start_ns=bench.clock.monotonic_ns())
    )
    (task,) = bench.tasks
    turns = bench.turns_measured
    task.send(None)
    turns.end(1)
    assert caplog.records == []
    bench.clock.advance(60_000)
    with pytest.raises(StopIteration):
        task.send(None)
    turns.end(30 * MS)

    assert "30 ms of it for ALTER_CONFIGS" in caplog.text


def test_a_loop_counts_its_turns() -> None:
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, MeasuredLoop)
        runner.run(asyncio.sleep(0))
        assert loop.turns.buckets.count > 0
        assert turns_of(loop) is loop.turns
    assert turns_of(object()).buckets.count == 0
