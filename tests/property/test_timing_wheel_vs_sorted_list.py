"""The wheel does what a sorted list of (time, task) does, whatever is added, cancelled and when."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.purgatory.timing_wheel import Schedule, TimerTask


class Task(TimerTask):
    def __init__(self, delay_ms: int, number: int) -> None:
        super().__init__(delay_ms)
        self.number = number

    def run(self) -> None:
        raise AssertionError("a schedule hands tasks out, it does not run them")


delays = st.one_of(st.integers(-5, 45), st.integers(0, 2_000), st.integers(0, 200_000))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), delays),
        st.tuples(st.just("cancel"), st.integers(0, 100)),
        st.tuples(st.just("again"), st.integers(0, 100)),
        st.tuples(st.just("pass"), st.one_of(st.integers(0, 30), st.integers(0, 50_000))),
        # Time that passes while nobody advances the wheel.
        st.tuples(st.just("lag"), st.integers(0, 3_000)),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=150)
@given(steps=steps, wheel_size=st.integers(2, 20), start_ms=st.integers(0, 10**12))
def test_wheel_vs_sorted_list(steps: list[tuple[str, int]], wheel_size: int, start_ms: int) -> None:
    now_ms = start_ms
    schedule = Schedule(start_ms=start_ms, wheel_size=wheel_size)
    tasks: list[Task] = []
    waiting: dict[Task, int] = {}

    def add(task: Task) -> None:
        if schedule.add(task, now_ms):
            waiting[task] = now_ms + task.delay_ms
        else:
            assert task.delay_ms <= 0, "refused before its time"
            waiting.pop(task, None)

    def advance() -> None:
        due = schedule.advance_to(now_ms)
        expected = sorted(at for at in waiting.values() if at <= now_ms)
        assert [waiting.pop(task) for task in due if isinstance(task, Task)] == expected

    for step, argument in steps:
        match step:
            case "add":
                tasks.append(Task(argument, len(tasks)))
                add(tasks[-1])
            case "again" if tasks:
                add(tasks[argument % len(tasks)])
            case "cancel" if tasks:
                task = tasks[argument % len(tasks)]
                task.cancel()
                waiting.pop(task, None)
            case "lag":
                now_ms += argument
            case "pass":
                now_ms += argument
                advance()
        assert schedule.size == len(waiting)
        wakeup_ms = schedule.next_wakeup_ms()
        if waiting:
            assert wakeup_ms is not None
            assert wakeup_ms <= min(waiting.values()), "would wake too late"
    now_ms += 10**6
    advance()
    assert not waiting
    assert schedule.size == 0
    assert schedule.next_wakeup_ms() is None
