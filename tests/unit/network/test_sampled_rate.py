"""Rates over samples, with the quota vectors (bound 1000/s, 11 samples of a second)."""

import pytest

from odradek.network.rate import SampledRate


@pytest.mark.parametrize(
    ("records", "now_ms", "rate_per_s", "throttle_ms"),
    [
        pytest.param([(10_000, 0)], 0, 1000, 0, id="13:Q1"),
        pytest.param([(15_000, 0)], 0, 1500, 5_000, id="13:Q2"),
        pytest.param([(1_000, 0), (20_000, 500)], 500, 2000, 10_500, id="13:Q3"),
    ],
)
def test_rate_and_throttle(
    records: list[tuple[int, int]], now_ms: int, rate_per_s: float, throttle_ms: int
) -> None:
    rate = SampledRate()
    for value, at_ms in records:
        rate.record(value, at_ms)

    assert rate.per_second(now_ms) == rate_per_s
    assert rate.throttle_ms(1000, now_ms) == throttle_ms


def test_after_the_throttle_time_the_rate_is_at_the_bound() -> None:
    rate = SampledRate()
    rate.record(15_000, 0)

    assert rate.throttle_ms(1000, 5_000 + 10_000 - 1) == 0


def test_old_samples_go() -> None:
    rate = SampledRate()
    rate.record(50_000, 0)
    rate.record(1_000, 11_001)

    assert rate.per_second(11_001) == 100


def test_what_was_recorded_can_be_taken_back() -> None:
    rate = SampledRate()
    rate.record(20_000, 0)
    rate.record(-20_000, 10)

    assert rate.per_second(10) == 0


def test_nothing_recorded_is_no_rate() -> None:
    assert SampledRate().per_second(5) == 0
    assert SampledRate().throttle_ms(1, 5) == 0
