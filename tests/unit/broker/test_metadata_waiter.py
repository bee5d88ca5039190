"""Requests that wait for a publish."""

from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.purgatory import DelayedOperationPurgatory, ManualTimer
from odradek.testing import ManualClock


class Waiting:
    """A waiter whose metadata is a set of names."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = ManualTimer("topic")
        self.waiter = MetadataWaiter(DelayedOperationPurgatory("topic", self.timer), self.clock)
        self.shown: set[str] = set()
        self.answers: list[frozenset[str]] = []

    def park(self, *names: str, timeout_ms: int = 100, waited_ms: int = 0) -> None:
        self.waiter.park(
            names,
            self.shown.__contains__,
            self.answers.append,
            timeout_ms=timeout_ms,
            started_ms=self.clock.monotonic_ms() - waited_ms,
        )

    def publish(self, *names: str) -> None:
        self.shown |= set(names)
        self.waiter.notify()


def test_answered_with_the_publish_that_shows_the_last() -> None:
    waiting = Waiting()
    waiting.park("a", "b")
    waiting.publish("a")
    assert waiting.answers == []
    waiting.publish("b")
    assert waiting.answers == [frozenset()]
    waiting.publish("c")
    waiting.timer.advance_clock(1000)
    assert waiting.answers == [frozenset()]


def test_what_shows_already_is_answered_at_once() -> None:
    waiting = Waiting()
    waiting.shown = {"a"}
    waiting.park("a")
    assert waiting.answers == [frozenset()]


def test_what_was_not_seen_in_time_is_told() -> None:
    waiting = Waiting()
    waiting.park("a", "b")
    waiting.publish("a")
    waiting.timer.advance_clock(99)
    assert waiting.answers == []
    waiting.timer.advance_clock(1)
    assert waiting.answers == [frozenset({"b"})]


def test_what_was_seen_once_counts_even_if_it_is_gone_again() -> None:
    waiting = Waiting()
    waiting.park("a", "b")
    waiting.publish("a")
    waiting.shown.clear()
    waiting.publish("b")
    assert waiting.answers == [frozenset()]


def test_time_before_the_wait_counts() -> None:
    waiting = Waiting()
    waiting.park("a", waited_ms=60)
    waiting.timer.advance_clock(40)
    assert waiting.answers == [frozenset({"a"})]


def test_time_that_is_over_before_the_wait_still_looks_once() -> None:
    waiting = Waiting()
    waiting.shown = {"a"}
    waiting.park("a", waited_ms=500)
    waiting.park("b", waited_ms=500)
    waiting.timer.advance_clock(0)
    assert waiting.answers == [frozenset(), frozenset({"b"})]


def test_without_any_time_nothing_counts_as_seen() -> None:
    waiting = Waiting()
    waiting.shown = {"a"}
    waiting.park("a", timeout_ms=0)
    assert waiting.answers == [frozenset({"a"})]


def test_several_wait_for_themselves() -> None:
    waiting = Waiting()
    waiting.park("a")
    waiting.park("b")
    waiting.publish("b")
    assert len(waiting.answers) == 1
    waiting.publish("a")
    assert len(waiting.answers) == 2
