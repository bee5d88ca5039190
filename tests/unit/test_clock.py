"""The machine's clocks, in milliseconds."""

import time

from odradek.clock import Clock, SystemClock


def test_wall_time_is_in_milliseconds_since_the_epoch() -> None:
    clock: Clock = SystemClock()

    before_ns = time.time_ns()
    now_ms = clock.now_ms()
    after_ns = time.time_ns()

    assert before_ns // 1_000_000 <= now_ms <= after_ns // 1_000_000


def test_monotonic_time_is_in_milliseconds_and_never_steps_back() -> None:
    clock = SystemClock()

    before_ns = time.monotonic_ns()
    readings = [clock.monotonic_ms() for _ in range(10)]
    after_ns = time.monotonic_ns()

    assert readings == sorted(readings)
    assert before_ns // 1_000_000 <= readings[0]
    assert readings[-1] <= after_ns // 1_000_000
