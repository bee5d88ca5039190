"""The wheel against the vectors of 04a section 8 and 04b section 8; times in whole ms."""

import pytest

from odradek.purgatory.timing_wheel import BucketQueue, Schedule, TimerTaskEntry, TimingWheel
from tests.unit.purgatory.purgatory_fakes import Note

# (level counted from 1, index of the bucket, its start); None: not in the wheel.
Place = tuple[int, int, int] | None


def levels(schedule: Schedule) -> list[TimingWheel]:
    wheels: list[TimingWheel] = []
    wheel: TimingWheel | None = schedule.wheel
    while wheel is not None:
        wheels.append(wheel)
        wheel = wheel.overflow_wheel
    return wheels


def place_of(schedule: Schedule, task: Note) -> Place:
    bucket = task.timer_entry and task.timer_entry.bucket
    for level, wheel in enumerate(levels(schedule), start=1):
        for index, candidate in enumerate(wheel.buckets):
            if candidate is bucket:
                return level, index, candidate.expiration_ms
    return None


def run(schedule: Schedule, now_ms: int) -> None:
    for task in schedule.advance_to(now_ms):
        task.run()


def test_each_level_ticks_once_per_turn_of_the_level_below() -> None:
    """04a:W1 and 04b:T1: 1, 20, 400, 8000 ms; four levels hold every timeout below 160 s."""
    schedule = Schedule(start_ms=0)
    longest = Note(159_999, [])
    schedule.add(longest, 0)
    assert [wheel.tick_ms for wheel in levels(schedule)] == [1, 20, 400, 8_000]
    assert [wheel.interval_ms for wheel in levels(schedule)] == [20, 400, 8_000, 160_000]
    schedule.add(Note(160_000, []), 0)
    assert len(levels(schedule)) == 5


def test_clock_starts_at_a_multiple_of_the_tick() -> None:
    """04a:W2."""
    wheel = TimingWheel(tick_ms=20, wheel_size=20, start_ms=123, queue=BucketQueue())
    assert wheel.current_time_ms == 120


@pytest.mark.parametrize(
    ("expiration_ms", "path"),
    [
        # Each step: where the entry is, and from when on.
        pytest.param(237, [(0, (2, 11, 220)), (220, (1, 17, 237))], id="04a:W3"),
        pytest.param(18, [(0, (1, 18, 18))], id="04a:W4, 04b:T3"),
        pytest.param(123, [(0, (2, 6, 120)), (120, (1, 3, 123))], id="04a:W5, 04b:T4"),
        pytest.param(30_000, [(0, (4, 3, 24_000)), (24_000, (3, 15, 30_000))], id="04a:W7"),
        pytest.param(1, [(0, (1, 1, 1))], id="04a:W8 e=1"),
        pytest.param(400, [(0, (3, 1, 400))], id="04a:W8 e=400"),
        pytest.param(160_000, [(0, (5, 1, 160_000))], id="04a:W8 e=160000"),
        pytest.param(
            159_999,
            [
                (0, (4, 19, 152_000)),
                (152_000, (3, 19, 159_600)),
                (159_600, (2, 19, 159_980)),
                (159_980, (1, 19, 159_999)),
            ],
            id="04a:W9",
        ),
    ],
)
def test_an_entry_moves_down_and_runs_on_time(
    expiration_ms: int, path: list[tuple[int, Place]]
) -> None:
    ran: list[int] = []
    schedule = Schedule(start_ms=0)
    task = Note(expiration_ms, ran)
    assert schedule.add(task, 0)
    for from_ms, place in path:
        if from_ms:
            run(schedule, from_ms - 1)
            assert place_of(schedule, task) != place
        run(schedule, from_ms)
        assert place_of(schedule, task) == place
    run(schedule, expiration_ms - 1)
    assert ran == []
    run(schedule, expiration_ms)
    assert ran == [expiration_ms]
    assert schedule.size == 0


def test_clocks_of_upper_levels_move_in_their_own_ticks() -> None:
    """04a:W7: at 30 000 the fourth level still stands at 24 000."""
    schedule = Schedule(start_ms=0)
    schedule.add(Note(30_000, []), 0)
    run(schedule, 30_000)
    assert [wheel.current_time_ms for wheel in levels(schedule)] == [30_000, 30_000, 30_000, 24_000]


def test_due_now_is_refused() -> None:
    """04a:W8 e=0: expired, never in the wheel."""
    schedule = Schedule(start_ms=0)
    assert not schedule.add(Note(0, []), 0)
    assert schedule.size == 0


def test_first_buckets_of_level_one_are_one_millisecond_wide() -> None:
    """04b:T2: [0, 1) then [1, 2)."""
    schedule = Schedule(start_ms=0)
    assert not schedule.add(Note(0, []), 0), "0 belongs to the bucket the clock stands on"
    first, second = Note(1, []), Note(2, [])
    schedule.add(first, 0)
    schedule.add(second, 0)
    assert place_of(schedule, first) == (1, 1, 1)
    assert place_of(schedule, second) == (1, 2, 2)


def test_a_full_turn_of_level_one_is_one_tick_of_level_two() -> None:
    """04a:W6, 04b:T5 and 04b:T6."""
    ran: list[int] = []
    schedule = Schedule(start_ms=0)
    tasks = {delay: Note(delay, ran) for delay in (19, 20, 21)}
    for task in tasks.values():
        schedule.add(task, 0)
    assert place_of(schedule, tasks[19]) == (1, 19, 19)
    assert place_of(schedule, tasks[20]) == (2, 1, 20)
    assert place_of(schedule, tasks[21]) == (2, 1, 20)

    run(schedule, 19)
    assert ran == [19]
    assert levels(schedule)[1].current_time_ms == 0
    assert place_of(schedule, tasks[20]) == (2, 1, 20)

    run(schedule, 20)
    assert ran == [19, 20]
    assert levels(schedule)[1].current_time_ms == 20
    assert place_of(schedule, tasks[21]) == (1, 1, 21)

    run(schedule, 21)
    assert ran == [19, 20, 21]


def test_illustration_wheel_of_eight() -> None:
    """04a:W10."""
    schedule = Schedule(start_ms=0, wheel_size=8)
    tasks = {delay: Note(delay, []) for delay in (7, 8, 64)}
    for task in tasks.values():
        schedule.add(task, 0)
    assert [wheel.interval_ms for wheel in levels(schedule)][:2] == [8, 64]
    assert levels(schedule)[1].tick_ms == 8
    assert place_of(schedule, tasks[7]) == (1, 7, 7)
    assert place_of(schedule, tasks[8]) == (2, 1, 8)
    assert place_of(schedule, tasks[64]) == (3, 1, 64)


def test_a_bucket_is_queued_once_per_round() -> None:
    """04a:W11."""
    schedule = Schedule(start_ms=0)
    schedule.add(Note(25, []), 0)
    schedule.add(Note(30, []), 0)
    assert schedule.size == 2
    assert schedule.queued_buckets == 1
    bucket = levels(schedule)[0].buckets[0]
    assert bucket.set_expiration(20)
    assert not bucket.set_expiration(20)


def test_buckets_are_reused_in_the_next_round() -> None:
    """04a:W12."""
    ran: list[int] = []
    schedule = Schedule(start_ms=0)
    schedule.add(Note(5, ran), 0)
    run(schedule, 5)
    at_24, at_25 = Note(19, ran, label=24), Note(20, ran, label=25)
    schedule.add(at_24, 5)
    schedule.add(at_25, 5)
    assert place_of(schedule, at_24) == (1, 4, 24)
    assert place_of(schedule, at_25) == (2, 1, 20)
    run(schedule, 23)
    assert ran == [5]
    run(schedule, 24)
    assert ran == [5, 24]
    run(schedule, 25)
    assert ran == [5, 24, 25]


def test_a_cancelled_task_never_runs() -> None:
    """04a:W13: size back to 0, and a second cancel is harmless."""
    ran: list[int] = []
    schedule = Schedule(start_ms=0)
    task = Note(50, ran)
    schedule.add(task, 0)
    assert schedule.size == 1
    task.cancel()
    task.cancel()
    assert schedule.size == 0
    run(schedule, 1_000)
    assert ran == []


def test_an_entry_cancelled_before_it_is_added_is_neither_stored_nor_due() -> None:
    """04b:T7."""
    schedule = Schedule(start_ms=0)
    task = Note(50, [])
    entry = TimerTaskEntry(task, 50)
    task.cancel()
    assert schedule.add_entry(entry), "not due: nobody may run it"
    assert schedule.size == 0
    assert schedule.next_wakeup_ms() is None


def test_a_task_added_again_leaves_its_old_place() -> None:
    ran: list[int] = []
    schedule = Schedule(start_ms=0)
    task = Note(50, ran)
    schedule.add(task, 0)
    schedule.add(task, 10)
    assert schedule.size == 1
    run(schedule, 59)
    assert ran == []
    run(schedule, 60)
    assert ran == [50]


def test_an_idle_wheel_lags_and_loses_nothing() -> None:
    """04b:T9: clock 0, now 500, delay 0: level 3, index 1, start 400; due with the next advance."""
    ran: list[int] = []
    schedule = Schedule(start_ms=0)
    task = Note(0, ran)
    assert schedule.add(task, 500)
    assert place_of(schedule, task) == (3, 1, 400)
    run(schedule, 500)
    assert ran == [0]


def test_borders_of_a_turn() -> None:
    """A tick ahead is not due; a whole turn ahead belongs to the next level."""
    schedule = Schedule(start_ms=100)
    tick, turn = Note(1, []), Note(20, [])
    schedule.add(tick, 100)
    schedule.add(turn, 100)
    assert place_of(schedule, tick) == (1, 1, 101)
    assert place_of(schedule, turn) == (2, 6, 120)


def test_a_coarse_first_level_runs_early_by_less_than_its_tick() -> None:
    ran: list[int] = []
    schedule = Schedule(start_ms=0, tick_ms=10, wheel_size=3)
    schedule.add(Note(19, ran), 0)
    run(schedule, 9)
    assert ran == []
    run(schedule, 10)
    assert ran == [19]


def test_removing_an_entry_of_another_bucket_does_nothing() -> None:
    schedule = Schedule(start_ms=0)
    task = Note(5, [])
    schedule.add(task, 0)
    assert task.timer_entry is not None
    levels(schedule)[0].buckets[6].remove(task.timer_entry)
    assert schedule.size == 1
