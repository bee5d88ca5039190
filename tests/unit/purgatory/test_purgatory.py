"""The purgatory: parked operations are found by key, expire in time and leave nothing behind."""

from collections.abc import Hashable, Iterator, Sequence
from random import Random
from typing import overload

import pytest

from odradek.metrics import MetricRegistry, render_prometheus
from odradek.purgatory import DelayedOperationPurgatory, ManualTimer, SystemTimer
from tests.unit.purgatory.purgatory_fakes import FakeClock, FakeLoop, Switch


def purgatory_of(
    purge_interval: int = 1000, *, timer_enabled: bool = True
) -> DelayedOperationPurgatory[Switch]:
    return DelayedOperationPurgatory(
        "Test", ManualTimer("Test"), purge_interval=purge_interval, timer_enabled=timer_enabled
    )


def test_satisfied_at_once() -> None:
    """04b:P1: nothing is parked."""
    purgatory = purgatory_of()
    operation = Switch(is_on=True)
    assert purgatory.try_complete_else_watch(operation, ["a"]) is True
    assert operation.events == ["complete"]
    assert (purgatory.watched, purgatory.num_delayed) == (0, 0)
    assert purgatory.estimated_total_operations == 0


def test_keys_are_required() -> None:
    """04b:P2."""
    with pytest.raises(AssertionError):
        purgatory_of().try_complete_else_watch(Switch(), [])


def test_parked_under_every_key_and_once_in_the_timer() -> None:
    """04b:P3."""
    purgatory = purgatory_of()
    operation = Switch()
    assert purgatory.try_complete_else_watch(operation, ["a", "b", "c"]) is False
    assert purgatory.watched == 3
    assert purgatory.num_delayed == 1
    assert purgatory.estimated_total_operations == 1
    assert operation.checks == 2, "twice, however many keys"


def test_parked_without_a_check_where_the_caller_has_made_it() -> None:
    """04b:P3: found by every key, and in time, as any other; what nobody waits for is told."""
    purgatory = purgatory_of()
    operation, late = Switch(), Switch()
    purgatory.watch(operation, ["a", "b"])
    purgatory.watch(late, ["a"])
    assert (operation.checks, purgatory.watched, purgatory.num_delayed) == (0, 3, 2)
    assert purgatory.estimated_total_operations == 2
    assert purgatory.is_watched("b")
    assert not purgatory.is_watched("c")
    operation.is_on = True
    assert purgatory.check_and_complete("b") == 1
    assert not purgatory.is_watched("b")
    purgatory.advance_clock(1_000_000)
    assert (operation.events, late.events) == (["complete"], ["complete", "expire"])
    with pytest.raises(AssertionError):
        purgatory.watch(Switch(), [])


def test_completed_through_one_key() -> None:
    """04b:P4: other keys keep the leftover until they are checked themselves."""
    purgatory = purgatory_of()
    operation = Switch()
    purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
    assert purgatory.check_and_complete("a") == 0
    operation.is_on = True
    assert purgatory.check_and_complete("unknown") == 0
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.watched == 2
    assert purgatory.num_delayed == 0
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.check_and_complete("b") == 0
    assert purgatory.watched == 1
    assert operation.events == ["complete"]


class Interrupted(Sequence[Hashable]):
    """Keys whose second one is read only after the operation was completed by somebody else."""

    def __init__(self, operation: Switch) -> None:
        self._operation = operation

    def __len__(self) -> int:
        return 2

    @overload
    def __getitem__(self, index: int) -> Hashable: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hashable]: ...
    def __getitem__(self, index: int | slice) -> Hashable | Sequence[Hashable]:
        return ["a", "b"][index]

    def __iter__(self) -> Iterator[Hashable]:
        yield "a"
        self._operation.force_complete()
        yield "b"


def test_completed_by_somebody_else_while_being_watched() -> None:
    """04b:P5: False, because it was not this call; the remaining keys are skipped."""
    purgatory = purgatory_of()
    operation = Switch()
    assert purgatory.try_complete_else_watch(operation, Interrupted(operation)) is False
    assert purgatory.watched == 1
    assert purgatory.num_delayed == 0
    purgatory.check_and_complete("a")
    assert purgatory.watched == 0


def test_expiry_runs_on_the_timers_queue() -> None:
    """04b:P6: `on_complete`, then `on_expiration`, once each, behind the wake-up."""
    loop = FakeLoop()
    timer = SystemTimer("Fetch", loop=loop, clock=FakeClock(loop))
    purgatory: DelayedOperationPurgatory[Switch] = DelayedOperationPurgatory("Fetch", timer)
    operation = Switch(delay_ms=500)
    purgatory.try_complete_else_watch(operation, ["a"])
    loop.run_until(499)
    assert operation.events == []
    loop.now_ms = 500
    while not operation.is_completed:
        assert operation.events == []
        loop.turn()
    assert operation.events == ["complete", "expire"]
    assert timer.executor_name == "executor-Fetch"
    assert purgatory.reaper_name == "ExpirationReaper-0-Fetch"
    loop.run_until(5_000)
    assert operation.events == ["complete", "expire"]
    assert purgatory.check_and_complete("a") == 0
    assert loop.timed == [], "an idle purgatory wakes nobody"


@pytest.mark.parametrize(
    ("parked", "is_purged"),
    [
        pytest.param(5, True, id="04b:P7 5-1 > 3: purge"),
        pytest.param(4, False, id="04b:P7 4-1 = 3: no purge"),
    ],
)
def test_purge_counts_leftovers(parked: int, is_purged: bool) -> None:
    purgatory = purgatory_of(purge_interval=3)
    operations = [Switch() for _ in range(parked)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    for operation in operations[1:]:
        operation.force_complete()
    assert purgatory.estimated_total_operations == parked
    assert purgatory.num_delayed == 1
    purgatory.advance_clock(0)
    if is_purged:
        assert purgatory.estimated_total_operations == 1
        assert purgatory.watched == 2
    else:
        assert purgatory.estimated_total_operations == parked
        assert purgatory.watched == parked * 2


def test_purge_without_any_wakeup() -> None:
    """Every purge_interval-th call asks the question, since an idle timer never wakes."""
    purgatory = purgatory_of(purge_interval=10)
    for number in range(1_000):
        operation = Switch()
        purgatory.try_complete_else_watch(operation, [f"hot-{number % 2}", f"rare-{number}"])
        operation.force_complete()
        assert purgatory.watched <= 2 * 21
    assert purgatory.estimated_total_operations <= 21


def test_a_key_without_operations_is_forgotten() -> None:
    purgatory = purgatory_of()
    for number in range(100):
        operation = Switch()
        purgatory.try_complete_else_watch(operation, [number])
        operation.is_on = True
        purgatory.check_and_complete(number)
    assert purgatory._watchers == {}


def test_a_closed_connection_ends_its_parked_operation() -> None:
    """An operation that would wait for weeks is completed from outside and purged."""
    purgatory = purgatory_of(purge_interval=0)
    operation = Switch(delay_ms=2_147_483_647)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.force_complete() is True
    assert purgatory.num_delayed == 0
    purgatory.advance_clock(0)
    assert purgatory.watched == 0
    assert operation.events == ["complete"]


def test_satisfied_between_the_first_check_and_the_watch() -> None:
    class BetweenChecks(Switch):
        def try_complete(self) -> bool:
            done = super().try_complete()
            self.is_on = True
            return done

    purgatory = purgatory_of()
    operation = BetweenChecks()
    assert purgatory.try_complete_else_watch(operation, ["a"]) is True
    assert purgatory.num_delayed == 0


def test_cancel_for_key_stops_the_clock_and_completes_nothing() -> None:
    purgatory = purgatory_of()
    operation = Switch(delay_ms=10)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.cancel_for_key("a") == [operation]
    assert purgatory.cancel_for_key("a") == []
    assert (purgatory.watched, purgatory.num_delayed) == (1, 0)
    purgatory.advance_clock(100)
    assert operation.events == []


def test_operations_without_timer_wait_for_their_condition_alone() -> None:
    purgatory = purgatory_of(timer_enabled=False)
    operation = Switch(delay_ms=0)
    purgatory.try_complete_else_watch(operation, ["a"])
    purgatory.advance_clock(10_000)
    assert operation.events == []
    operation.is_on = True
    assert purgatory.check_and_complete("a") == 1


def test_operations_of_a_key_are_checked_in_order_of_arrival() -> None:
    order: list[int] = []

    class Numbered(Switch):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_complete(self) -> None:
            order.append(self.number)

    purgatory: DelayedOperationPurgatory[Switch] = purgatory_of()
    operations = [Numbered(number) for number in range(5)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_on = operation.number != 2
    assert purgatory.check_and_complete("a") == 4
    assert order == [0, 1, 3, 4]


def test_callbacks_may_reenter_the_same_key() -> None:
    """A completion that checks its own key and parks a new operation there loses nobody."""
    purgatory = purgatory_of()
    late = Switch()
    parked = Switch()

    class Reentrant(Switch):
        def on_complete(self) -> None:
            super().on_complete()
            late.is_on = True
            assert purgatory.check_and_complete("a") == 1
            purgatory.try_complete_else_watch(parked, ["a"])

    first = Reentrant()
    purgatory.try_complete_else_watch(late, ["a"])
    purgatory.try_complete_else_watch(first, ["a"])
    first.is_on = True
    assert purgatory.check_and_complete("a") == 1
    assert late.events == ["complete"]
    assert purgatory.watched == 1
    parked.is_on = True
    assert purgatory.check_and_complete("a") == 1


def test_an_operation_that_raises_does_not_stop_the_walk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Switch):
        def try_complete(self) -> bool:
            if self.is_on:
                raise RuntimeError("broken condition")
            return False

    purgatory = purgatory_of()
    broken, healthy = Broken(delay_ms=50), Switch()
    for operation in (broken, healthy):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_on = True
    assert purgatory.check_and_complete("a") == 1
    assert "broken condition" in caplog.text
    purgatory.advance_clock(50)
    assert broken.events == ["complete", "expire"]


def test_gauges_appear_and_go_with_the_purgatory() -> None:
    loop = FakeLoop()
    registry = MetricRegistry(FakeClock(loop), Random(1))
    purgatory: DelayedOperationPurgatory[Switch] = DelayedOperationPurgatory(
        "Fetch", ManualTimer("Fetch"), metrics=registry
    )
    purgatory.try_complete_else_watch(Switch(), ["a", "b"])
    page = render_prometheus(registry)
    tag = '{delayedOperation="Fetch"}'
    assert f"kafka_server_delayedoperationpurgatory_purgatorysize{tag} 2\n" in page
    assert f"kafka_server_delayedoperationpurgatory_numdelayedoperations{tag} 1\n" in page
    purgatory.shutdown()
    assert len(registry) == 0
