"""The timers: who wakes whom, in which order expired tasks run, and what stays undone."""

import asyncio
import random

import pytest

from odradek.clock import SystemClock
from odradek.purgatory.timer import MAX_TASKS_PER_TURN, ManualTimer, SystemTimer
from odradek.purgatory.timing_wheel import TimerTask
from tests.unit.purgatory.purgatory_fakes import FakeClock, FakeLoop, Note


def driven_timer(loop: FakeLoop, wheel_size: int = 20) -> SystemTimer:
    timer = SystemTimer("Test", loop=loop, clock=FakeClock(loop), wheel_size=wheel_size)
    timer.drive_with(lambda: timer.advance_clock(0))
    return timer


def test_nothing_is_due_on_an_empty_timer() -> None:
    """04a:W14."""
    assert ManualTimer("Test").advance_clock(0) is False
    assert driven_timer(FakeLoop()).advance_clock(0) is False


def test_overdue_tasks_are_submitted_at_once() -> None:
    """04a:W15: delays -5 to -1 on a wheel of three."""
    ran: list[int] = []
    timer = ManualTimer("Test", wheel_size=3)
    for delay_ms in range(-5, 0):
        timer.add(Note(delay_ms, ran))
    assert timer.submitted == 5
    timer.advance_clock(0)
    assert ran == [-5, -4, -3, -2, -1]
    assert timer.size == 0


def test_tasks_run_in_order_of_their_delays() -> None:
    """04a:W16: 585 tasks on a wheel of three, added in any order."""
    delays = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    random.Random(16).shuffle(delays)
    ran: list[int] = []
    timer = ManualTimer("Test", wheel_size=3)
    for delay_ms in delays:
        timer.add(Note(delay_ms, ran))
    timer.advance_clock(2_000)
    assert len(ran) == 585
    assert ran == sorted(delays)


@pytest.mark.slow
def test_add_cancel_and_advance_interleaved() -> None:
    """04a:W17, on one loop: each of 100 000 tasks runs or is cancelled, exactly once."""
    choose = random.Random(17)
    loop = FakeLoop()
    timer = driven_timer(loop)
    ran: list[int] = []
    waiting: dict[int, Note] = {}
    cancelled: set[int] = set()
    for label in range(100_000):
        waiting[label] = Note(choose.choice((0, 1, 7, 50, 700, 9_000)), ran, label)
        timer.add(waiting[label])
        if choose.random() < 0.5:
            victim = choose.randrange(label + 1)
            task = waiting.get(victim)
            # Too late once it was handed out, which is when it left the wheel.
            if task is not None and task.timer_entry is not None and task.timer_entry.bucket:
                task.cancel()
                del waiting[victim]
                cancelled.add(victim)
        if choose.random() < 0.1:
            loop.run_until(loop.now_ms + choose.randrange(30))
    loop.run_until(loop.now_ms + 10_000)
    assert timer.size == 0
    assert len(ran) == len(set(ran))
    assert set(ran).isdisjoint(cancelled)
    assert len(ran) + len(cancelled) == 100_000
    assert cancelled


def test_zero_delay_is_submitted_without_entering_the_wheel() -> None:
    """04b:T8: never in place, always through the queue."""
    ran: list[int] = []
    loop = FakeLoop(start_ms=77)
    timer = driven_timer(loop)
    timer.add(Note(0, ran))
    assert timer.size == 0
    assert ran == []
    loop.turn()
    assert ran == [0]


def test_a_lagging_clock_is_caught_up_by_the_next_wakeup() -> None:
    """04b:T9 on the loop: the bucket is past already, so the wake-up is immediate."""
    ran: list[int] = []
    loop = FakeLoop()
    timer = driven_timer(loop)
    loop.now_ms = 500
    timer.add(Note(0, ran))
    assert timer.size == 1
    assert loop.timed == [500]
    loop.run_until(500)
    assert ran == [0]


def test_one_wakeup_for_the_earliest_bucket_and_none_when_idle() -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = driven_timer(loop)
    assert loop.timed == []
    timer.add(Note(300, ran))
    assert loop.timed == [300]
    timer.add(Note(350, ran))
    assert loop.timed == [300], "a later bucket changes nothing"
    timer.add(Note(5, ran))
    assert loop.timed == [5], "an earlier one takes the place"
    loop.run_until(10_000)
    assert ran == [5, 300, 350]
    assert loop.timed == []
    # 5; 300; 340 for [340, 360); 350.
    assert loop.wakeups == 4


def test_a_loop_that_rings_early_is_armed_again() -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = driven_timer(loop)
    timer.add(Note(10, ran))
    timer._wake()
    assert ran == []
    assert loop.timed[-1] == 10
    loop.run_until(10)
    assert ran == [10]


def test_nobody_moves_a_timer_that_is_not_driven() -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = SystemTimer("Test", loop=loop, clock=FakeClock(loop))
    timer.add(Note(10, ran))
    loop.run_until(100)
    assert ran == []
    assert timer.advance_clock(0) is True
    loop.turn()
    assert ran == [10]


def test_driving_a_timer_that_holds_tasks_already() -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = SystemTimer("Test", loop=loop, clock=FakeClock(loop))
    timer.add(Note(10, ran))
    timer.drive_with(lambda: timer.advance_clock(0))
    loop.run_until(10)
    assert ran == [10]


def test_a_mass_expiry_leaves_turns_to_the_sockets() -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = driven_timer(loop)
    for label in range(MAX_TASKS_PER_TURN * 2 + 1):
        timer.add(Note(5, ran, label))
    loop.now_ms = 5
    loop.turn()
    sizes = []
    for _ in range(3):
        loop.turn()
        sizes.append(len(ran))
    assert sizes == [MAX_TASKS_PER_TURN, MAX_TASKS_PER_TURN * 2, MAX_TASKS_PER_TURN * 2 + 1]
    assert ran == sorted(ran)


class Broken(TimerTask):
    def run(self) -> None:
        raise RuntimeError("broken task")


@pytest.mark.parametrize("delay_ms", [0, 5])
def test_a_task_that_raises_does_not_stop_the_others(
    delay_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = driven_timer(loop)
    timer.add(Broken(delay_ms))
    timer.add(Note(delay_ms, ran))
    loop.run_until(5)
    assert ran == [delay_ms]
    assert "executor-Test: expired task" in caplog.text


@pytest.mark.parametrize("delay_ms", [0, 5])
def test_shutdown_leaves_pending_tasks_unexecuted(delay_ms: int) -> None:
    ran: list[int] = []
    loop = FakeLoop()
    timer = driven_timer(loop)
    timer.add(Note(delay_ms, ran))
    timer.shutdown()
    timer.add(Note(delay_ms, ran))
    loop.run_until(100)
    assert ran == []
    assert loop.timed == []

    manual = ManualTimer("Test")
    manual.add(Note(delay_ms, ran))
    manual.shutdown()
    manual.add(Note(delay_ms, ran))
    assert manual.advance_clock(100) is False
    assert ran == []


def test_manual_time_passes_task_by_task() -> None:
    """A task that adds another one sees its own time, not the end of the jump."""
    timer = ManualTimer("Test", start_ms=1_000)
    times: list[int] = []

    class Chain(TimerTask):
        def run(self) -> None:
            times.append(timer.now_ms)
            if len(times) < 4:
                timer.add(Chain(100))

    timer.add(Chain(100))
    assert timer.advance_clock(350) is True
    assert times == [1_100, 1_200, 1_300]
    assert timer.now_ms == 1_350
    assert timer.executor_name == "executor-Test"


def test_on_a_real_event_loop() -> None:
    """The fake loop's counterpart: same timer, asyncio and the machine's clock."""

    async def scenario() -> list[int]:
        ran: list[int] = []
        done = asyncio.Event()
        timer = SystemTimer("Test", loop=asyncio.get_running_loop(), clock=SystemClock())
        timer.drive_with(lambda: timer.advance_clock(0))

        class Last(TimerTask):
            def run(self) -> None:
                done.set()

        for task in (Last(40), Note(25, ran), Note(3, ran), Note(0, ran)):
            timer.add(task)
        cancelled = Note(10, ran)
        timer.add(cancelled)
        cancelled.cancel()
        await asyncio.wait_for(done.wait(), timeout=30)
        assert timer.size == 0
        timer.shutdown()
        return ran

    assert asyncio.run(scenario()) == [0, 3, 25]
