"""Deadlines stand still with the event loop."""

from collections.abc import Callable

from odradek.coordinator.stall_clock import TICK_MS, TOLERANCE_MS, StallClock
from odradek.testing import ManualClock


class Call:
    """A call that a loop was asked for."""

    def __init__(self, delay_s: float, action: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Watch:
    """A stall clock whose loop is moved by hand."""

    def __init__(self) -> None:
        self.machine = ManualClock()
        self.calls: list[Call] = []
        self.is_needed = True
        self.clock = StallClock(self.machine, self._call_later, lambda: self.is_needed)

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> Call:
        self.calls.append(call := Call(delay_s, action))
        return call

    def tick(self) -> None:
        self.calls.pop(0).action()


def test_it_says_what_the_machine_says_while_ticks_come_in_time() -> None:
    watch = Watch()
    start_ms = watch.machine.monotonic_ms()
    watch.clock.watch()
    for _ in range(10):
        watch.machine.advance(TICK_MS)
        watch.tick()
    assert watch.clock.monotonic_ms() == start_ms + 10 * TICK_MS
    assert watch.clock.stalled_ms == 0


def test_a_late_tick_moves_it_back_by_the_delay() -> None:
    """07:G-16: a session that would have ended meanwhile has left what it had."""
    watch = Watch()
    start_ms = watch.machine.monotonic_ms()
    watch.clock.watch()
    watch.machine.advance(20_000)
    assert watch.clock.monotonic_ms() == start_ms + TICK_MS, "whoever asks first finds it"
    watch.tick()
    assert watch.clock.monotonic_ms() == start_ms + TICK_MS
    watch.machine.advance(TICK_MS)
    watch.tick()
    assert watch.clock.monotonic_ms() == start_ms + 2 * TICK_MS
    assert watch.clock.stalled_ms == 20_000 - TICK_MS


def test_a_second_is_tolerated() -> None:
    watch = Watch()
    start_ms = watch.machine.monotonic_ms()
    watch.clock.watch()
    watch.machine.advance(TICK_MS + TOLERANCE_MS)
    assert watch.clock.monotonic_ms() == start_ms + TICK_MS + TOLERANCE_MS


def test_nobody_is_woken_while_nobody_waits() -> None:
    watch = Watch()
    watch.clock.watch()
    watch.is_needed = False
    watch.machine.advance(TICK_MS)
    watch.tick()
    assert not watch.calls
    start_ms = watch.clock.monotonic_ms()
    watch.machine.advance(60_000)
    assert watch.clock.monotonic_ms() == start_ms + 60_000, "no tick is missing"


def test_watching_twice_ticks_once() -> None:
    watch = Watch()
    watch.clock.watch()
    watch.clock.watch()
    assert len(watch.calls) == 1


def test_stopped_it_ticks_no_more() -> None:
    watch = Watch()
    watch.clock.watch()
    watch.clock.stop()
    assert watch.calls[0].is_cancelled
    start_ms = watch.clock.monotonic_ms()
    watch.machine.advance(60_000)
    assert watch.clock.monotonic_ms() == start_ms + 60_000


def test_wall_time_is_the_machines() -> None:
    watch = Watch()
    watch.clock.watch()
    watch.machine.advance(60_000)
    assert watch.clock.now_ms() == watch.machine.now_ms()
