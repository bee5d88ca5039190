"""When a failed query starts again."""

from odradek.spark.pipeline.engine.running.restarts import FORGET_MS, Restarts
from odradek.spark.pipeline.graph.model import Restart


def test_waits_double_up_to_a_limit_and_then_it_is_given_up() -> None:
    """12:SP-64, 12:SP-48: the defaults of `restart`."""
    restarts = Restarts(Restart(10, 1_000, 60_000))
    waits = [restarts.next_wait_ms(n) for n in range(11)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, *[60_000] * 4, None]


def test_ten_minutes_without_a_failure_and_the_count_begins_anew() -> None:
    """12:SP-48."""
    restarts = Restarts(Restart(2, 100, 1_000))
    assert restarts.next_wait_ms(0) == 100
    assert restarts.next_wait_ms(FORGET_MS - 1) == 200
    assert restarts.next_wait_ms(2 * FORGET_MS - 1) == 100
    assert restarts.count == 1
    assert restarts.next_wait_ms(2 * FORGET_MS) == 200
    assert restarts.next_wait_ms(2 * FORGET_MS + 1) is None


def test_no_restart_at_all() -> None:
    """12:SP-48."""
    assert Restarts(Restart(0, 100, 1_000)).next_wait_ms(0) is None


def test_many_failures_overflow_nothing() -> None:
    restarts = Restarts(Restart(10_000, 1, 60_000))
    assert [restarts.next_wait_ms(0) for _ in range(5_000)][-1] == 60_000
