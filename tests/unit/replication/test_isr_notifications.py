"""When the controller is told of ISR changes (05 section 10, Propagate)."""

import pytest

from odradek.replication.isr_notifications import IsrNotifications
from tests.support.replicas import tp


@pytest.mark.parametrize(
    ("last_change_ms", "last_propagation_ms", "is_due"),
    [
        pytest.param(95_000, 90_000, False, id="05:R28-burst-goes-on"),
        pytest.param(94_999, 90_000, True, id="05:R28-burst-over"),
        pytest.param(99_000, 40_000, False, id="05:R29-told-lately"),
        pytest.param(99_000, 39_999, True, id="05:R29-long-untold"),
    ],
)
def test_when(last_change_ms: int, last_propagation_ms: int, is_due: bool) -> None:
    notifications = IsrNotifications(now_ms=last_propagation_ms)
    notifications.record(tp(), last_change_ms)
    assert notifications.due(100_000) == ((tp(),) if is_due else ())


def test_nothing_to_tell() -> None:
    assert IsrNotifications(now_ms=0).due(10**9) == ()


def test_what_was_told_is_forgotten_and_what_came_meanwhile_is_not() -> None:
    notifications = IsrNotifications(now_ms=0)
    notifications.record(tp("a"), 1)
    notifications.record(tp("b"), 2)
    notifications.record(tp("a"), 3)
    told = notifications.due(10_000)
    assert told == (tp("a"), tp("b"))
    notifications.record(tp("c"), 10_001)
    notifications.mark_propagated(told, 10_002)
    assert len(notifications) == 1
    assert notifications.last_propagation_ms == 10_002
    assert notifications.due(20_000) == (tp("c"),)
