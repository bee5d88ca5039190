"""ManualClock: time passes when the test says so."""

import pytest

from odradek.clock import Clock
from odradek.testing import ManualClock


def test_stands_still_until_advanced() -> None:
    clock: Clock = ManualClock(now_ms=5_000, monotonic_ms=70)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_000, 70)
    assert (clock.now_ms(), clock.monotonic_ms()) == (5_000, 70)


def test_advance_moves_both_clocks() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=70)

    clock.advance(30)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_030, 100)


def test_a_wall_clock_correction_is_no_passing_of_time() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_ms=70)

    clock.step_wall(-1_000)

    assert (clock.now_ms(), clock.monotonic_ms()) == (4_000, 70)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="step_wall"):
        ManualClock().advance(-1)
