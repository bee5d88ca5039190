"""A delayed operation ends exactly once, and no wake-up is lost."""

import pytest

from odradek.purgatory import ManualTimer
from tests.unit.purgatory.purgatory_fakes import Switch


def test_only_one_force_complete_wins() -> None:
    """04b:P9: on one loop the second call comes from within the first one's `on_complete`."""
    inner: list[bool] = []

    class Reentrant(Switch):
        def on_complete(self) -> None:
            super().on_complete()
            inner.append(self.force_complete())

    operation = Reentrant()
    assert operation.force_complete() is True
    assert inner == [False]
    assert operation.force_complete() is False
    assert operation.events == ["complete"]
    assert operation.is_completed


def test_a_check_asked_for_during_a_check_is_made() -> None:
    """04b:P8: the outer check has seen "not yet" when the condition comes true."""

    class LateSwitch(Switch):
        def try_complete(self) -> bool:
            was_on = self.is_on
            self.checks += 1
            if self.checks == 1:
                # What a callback deeper in the stack does.
                self.is_on = True
                assert self.maybe_try_complete() is False
            return was_on and self.force_complete()

    operation = LateSwitch()
    assert operation.maybe_try_complete() is True
    assert operation.checks == 2
    assert operation.events == ["complete"]


def test_one_check_is_enough_when_nobody_asked_again() -> None:
    operation = Switch()
    assert operation.maybe_try_complete() is False
    assert operation.checks == 1


def test_a_completed_operation_is_not_checked() -> None:
    operation = Switch(is_on=True)
    operation.force_complete()
    assert operation.maybe_try_complete() is False
    assert operation.checks == 0


def test_losing_the_race_inside_a_check_is_not_a_completion() -> None:
    class Overtaken(Switch):
        def try_complete(self) -> bool:
            self.force_complete()
            return self.force_complete()

    assert Overtaken().maybe_try_complete() is False


def test_a_check_that_raises_can_be_repeated() -> None:
    class Flaky(Switch):
        def try_complete(self) -> bool:
            if self.checks == 0:
                self.checks += 1
                raise RuntimeError("first check fails")
            return super().try_complete()

    operation = Flaky(is_on=True)
    with pytest.raises(RuntimeError, match="first check fails"):
        operation.maybe_try_complete()
    assert operation.maybe_try_complete() is True


def test_completion_leaves_the_timer() -> None:
    timer = ManualTimer("Test")
    operation = Switch(delay_ms=10)
    timer.add(operation)
    operation.force_complete()
    assert timer.size == 0
    timer.advance_clock(100)
    assert operation.events == ["complete"]


def test_expiry_completes_and_then_tells_so() -> None:
    operation = Switch()
    operation.run()
    operation.run()
    assert operation.events == ["complete", "expire"]


def test_expiry_after_completion_does_nothing() -> None:
    operation = Switch()
    operation.force_complete()
    operation.run()
    assert operation.events == ["complete"]
