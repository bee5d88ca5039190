"""Changes that block in part: their steps, one change at a time or many at once."""

from collections.abc import Callable

import pytest

from odradek.storage.log.services import InlineTasks, Steps, run_beside, run_here
from odradek.testing import ManualClock
from tests.support.held_tasks import HeldTasks


def counting(log: list[str], name: str, steps: int = 2) -> Steps[None]:
    for number in range(steps):
        log.append(f"{name} {number}")
        yield lambda: None
    log.append(f"{name} ends")


def fail_with(error: Exception) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


def test_steps_taken_here_give_their_result() -> None:
    def steps() -> Steps[int]:
        done: list[int] = []
        yield lambda: done.append(1)
        try:
            yield fail_with(OSError(5, "input/output error"))
        except OSError:
            yield lambda: done.append(2)
        return sum(done)

    assert run_here(steps()) == 3


def test_so_many_at_once_and_the_next_when_one_has_ended() -> None:
    tasks, log = HeldTasks(), list[str]()
    ended: list[Exception | None] = []
    run_beside(tasks, (counting(log, name) for name in "abc"), ended.append, at_once=2)
    assert log == ["a 0", "b 0"]
    tasks.run_next()
    tasks.run_next()
    assert log[2:] == ["a 1", "b 1"]
    tasks.run_next()
    assert log[4:] == ["a ends", "c 0"]
    assert not ended
    tasks.run_all()
    assert ended == [None]


def test_an_error_that_nobody_handles_ends_its_change_alone() -> None:
    def failing() -> Steps[None]:
        yield fail_with(OSError(5, "input/output error"))

    log: list[str] = []
    ended: list[Exception | None] = []
    tasks = HeldTasks()
    run_beside(tasks, [failing(), counting(log, "a")], ended.append, at_once=1)
    tasks.run_all()
    assert log[-1] == "a ends"
    [error] = ended
    assert isinstance(error, OSError)


@pytest.mark.parametrize("steps", [0, 1])
def test_many_changes_do_not_deepen_the_stack(steps: int) -> None:
    log: list[str] = []
    ended: list[Exception | None] = []
    changes = (counting(log, str(number), steps) for number in range(5_000))
    run_beside(InlineTasks(ManualClock()), changes, ended.append, at_once=3)
    assert ended == [None]
    assert len(log) == 5_000 * (steps + 1)


def test_changes_that_do_not_block_let_others_have_their_turn() -> None:
    """A delta of many partitions may need nothing of the disk; the loop runs all the same."""
    log: list[str] = []
    tasks = HeldTasks()
    run_beside(tasks, (counting(log, str(n), 0) for n in range(1_000)), lambda _: None, at_once=3)
    assert 0 < len(log) < 200
    assert tasks.run_all() >= 5
    assert len(log) == 1_000
