"""Throttles of replication: which replicas they hold back, and when (05 section 4)."""

import pytest

from odradek.replication.throttles import ReplicationThrottle
from odradek.testing import ManualClock
from tests.support.replicas import tp

HERE = 1


class Limited:
    """A throttle whose topic names replicas as a test says."""

    def __init__(self, *named: str, limit: int = 1_000) -> None:
        self.clock = ManualClock()
        self.named = named
        self.throttle = ReplicationThrottle(HERE, lambda _topic: self.named, self.clock)
        self.throttle.bytes_per_second = limit

    def holds_back(self, partition: int = 0, *, is_in_sync: bool = False) -> bool:
        return self.throttle.holds_back(tp("t", partition), is_in_sync=is_in_sync)


@pytest.mark.parametrize(
    ("named", "partition", "is_named"),
    [
        ((), 0, False),
        (("*",), 0, True),
        (("*",), 7, True),
        (("0:1",), 0, True),
        (("0:1",), 1, False),
        (("0:2",), 0, False),
        (("3:2", "0:2", "3:1"), 3, True),
        (("3:2", "0:2", "3:1"), 0, False),
        (("1:10", "11:1"), 1, False),
    ],
)
def test_the_replicas_that_are_named(
    named: tuple[str, ...], partition: int, is_named: bool
) -> None:
    limited = Limited(*named)
    assert limited.throttle.is_named(tp("t", partition)) is is_named
    limited.throttle.count(tp("t", partition), 1 << 20)
    assert limited.holds_back(partition) is is_named
    assert (limited.throttle.per_second() > 0) is is_named


def test_the_limit_itself_is_allowed() -> None:
    """13:Q1: strictly above; 11 samples of a second make 10,000 bytes a rate of 1000/s."""
    limited = Limited("*")
    limited.throttle.count(tp("t"), 10_000)
    assert not limited.holds_back()
    limited.throttle.count(tp("t"), 1)
    assert limited.holds_back()
    limited.clock.advance(11_000)
    assert limited.holds_back() is False


def test_replicas_in_sync_count_and_are_never_held_back() -> None:
    """05 section 4: to slow them down would shrink the ISR."""
    limited = Limited("*", limit=0)
    limited.throttle.count(tp("t"), 1)
    assert limited.holds_back(is_in_sync=False)
    assert not limited.holds_back(is_in_sync=True)


def test_settings_that_change_count_at_once() -> None:
    limited = Limited("0:1")
    limited.throttle.count(tp("t"), 20_000)
    assert limited.holds_back()
    limited.throttle.bytes_per_second = 3_000
    assert not limited.holds_back()
    limited.throttle.bytes_per_second = 1_000
    limited.named = ("1:1",)
    assert not limited.holds_back()
    assert limited.holds_back(1)


def test_without_a_limit_nothing_is_held_back() -> None:
    limited = Limited("*", limit=2**63 - 1)
    limited.throttle.count(tp("t"), 1 << 62)
    assert not limited.throttle.is_limited
    assert not limited.holds_back()
    assert limited.throttle.per_second() > 0
