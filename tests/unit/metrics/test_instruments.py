"""Meters, histograms and timers: exact counts, plausible rates, bounded samples."""

import math
from random import Random

import pytest

from odradek.metrics import Histogram, Meter, Timer
from odradek.metrics.instruments import BATCH_SIZE, RESERVOIR_SIZE
from tests.unit.metrics.hand_clock import FakeClock


def test_a_meter_counts() -> None:
    meter = Meter(FakeClock())
    meter.mark()
    meter.mark(41)
    assert meter.count == 42


def test_rates_are_zero_before_the_first_tick() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.mark(10)
    assert meter.rates().mean == 0.0
    clock.time_ms += 4_999
    rates = meter.rates()
    assert (rates.one_minute, rates.five_minutes, rates.fifteen_minutes) == (0.0, 0.0, 0.0)
    assert rates.mean == pytest.approx(10 / 4.999)


def test_the_first_tick_sets_all_rates() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.mark(50)
    clock.time_ms += 5_000
    rates = meter.rates()
    assert (rates.one_minute, rates.five_minutes, rates.fifteen_minutes) == (10.0, 10.0, 10.0)


def test_rates_decay_by_their_windows() -> None:
    clock = FakeClock()
    meter = Meter(clock)
    meter.mark(300)
    clock.time_ms += 5_000
    meter.rates()
    clock.time_ms += 60_000
    rates = meter.rates()
    assert rates.one_minute == pytest.approx(60 * math.exp(-1))
    assert rates.five_minutes == pytest.approx(60 * math.exp(-1 / 5))
    assert rates.fifteen_minutes == pytest.approx(60 * math.exp(-1 / 15))
    assert rates.mean == pytest.approx(300 / 65)


def test_reading_seldom_gives_what_reading_often_gives_at_a_steady_rate() -> None:
    clock = FakeClock()
    seldom, often = Meter(clock), Meter(clock)
    for second in range(600):
        rate = 100 if second < 300 else 20
        seldom.mark(rate)
        often.mark(rate)
        clock.time_ms += 1_000
        if second % 5 == 4:
            often.rates()
        if second in (299, 599):
            seldom.rates()
    assert seldom.rates().one_minute == pytest.approx(often.rates().one_minute)
    assert seldom.rates().fifteen_minutes == pytest.approx(often.rates().fifteen_minutes)


def test_an_empty_histogram() -> None:
    snapshot = Histogram(FakeClock(), Random(1)).snapshot()
    assert (snapshot.count, snapshot.total, snapshot.min, snapshot.max) == (0, 0.0, 0.0, 0.0)
    assert snapshot.mean == 0.0
    assert snapshot.quantile(0.99) == 0.0


def test_quantiles_of_a_small_sample_are_exact() -> None:
    histogram = Histogram(FakeClock(), Random(1))
    for value in range(1, 101):
        histogram.update(value)
    assert histogram.count == 100
    snapshot = histogram.snapshot()
    assert snapshot.mean == 50.5
    assert (snapshot.min, snapshot.max) == (1, 100)
    assert snapshot.quantile(0.5) == pytest.approx(50.5)
    assert snapshot.quantile(0.75) == pytest.approx(75.75)
    assert snapshot.quantile(0.99) == pytest.approx(99.99)
    assert snapshot.quantile(0.999) == 100
    assert snapshot.quantile(0.0) == 1


def test_figures_beside_the_sample_stay_exact() -> None:
    histogram = Histogram(FakeClock(), Random(1))
    for value in range(10_000):
        histogram.update(value)
    snapshot = histogram.snapshot()
    assert snapshot.sample_size == RESERVOIR_SIZE
    assert snapshot.count == histogram.count == 10_000
    assert snapshot.total == sum(range(10_000))
    assert (snapshot.min, snapshot.max) == (0, 9_999)
    assert len(histogram._batch) < BATCH_SIZE


def test_the_sample_is_representative() -> None:
    """Values of one moment are sampled evenly: ranks within 5 %, whatever their order."""
    histogram = Histogram(FakeClock(), Random(7))
    for value in range(50_000):
        histogram.update(value)
    snapshot = histogram.snapshot()
    for quantile in (0.5, 0.75, 0.95, 0.98, 0.99, 0.999):
        assert snapshot.quantile(quantile) == pytest.approx(quantile * 50_000, abs=2_500)


def test_old_values_fade() -> None:
    clock = FakeClock()
    histogram = Histogram(clock, Random(7))
    for _ in range(20_000):
        histogram.update(1)
    clock.time_ms += 10 * 60 * 1_000
    for _ in range(20_000):
        histogram.update(100)
    # Ten minutes weigh exp(9): of 1028 values hardly one is old.
    assert histogram.snapshot().quantile(0.05) == 100


def test_half_the_weight_for_values_of_46_seconds_ago() -> None:
    """ln 2 / 0.015 = 46.2 s: a third of the sample comes from the older half."""
    clock = FakeClock()
    histogram = Histogram(clock, Random(3))
    for _ in range(20_480):
        histogram.update(0)
    clock.time_ms += 46_210
    for _ in range(20_480):
        histogram.update(1)
    values = histogram.snapshot()._values
    assert sum(values) / len(values) == pytest.approx(2 / 3, abs=0.06)


def test_zeros_count_as_if_they_were_given_one_by_one() -> None:
    """A few before the reservoir is full and many behind: every figure is that of plain values."""
    together, one_by_one = (Histogram(FakeClock(), Random(5)) for _ in range(2))
    for _ in range(30):
        for histogram in (together, one_by_one):
            histogram.update_all(range(1, 101))
        together.add_zeros(200)
        one_by_one.update_all([0] * 200)
    assert together.count == one_by_one.count == 9_000
    found, expected = together.snapshot(), one_by_one.snapshot()
    assert (found.count, found.total) == (expected.count, expected.total) == (9_000, 151_500.0)
    assert (found.min, found.max) == (expected.min, expected.max) == (0, 100)
    assert found.sample_size == RESERVOIR_SIZE
    for snapshot in (found, expected):  # Two thirds are zeros.
        assert snapshot.quantile(0.6) == 0
        assert snapshot.quantile(0.75) == pytest.approx(25, abs=12)


def test_zeros_alone() -> None:
    histogram = Histogram(FakeClock(), Random(5))
    histogram.add_zeros(3)
    assert histogram.count == 3
    snapshot = histogram.snapshot()
    assert (snapshot.count, snapshot.total, snapshot.min, snapshot.max) == (3, 0.0, 0.0, 0.0)
    assert snapshot.sample_size == 3
    assert histogram.count == 3


def test_a_histogram_shows_what_it_is_given_divided() -> None:
    histogram = Histogram(FakeClock(), Random(1), divisor=1_000_000)
    for value in range(1, 2_001):
        histogram.update(value * 1_000_000)
    snapshot = histogram.snapshot()
    assert (snapshot.min, snapshot.max, snapshot.total) == (1, 2_000, 2_001_000)
    assert snapshot.quantile(0.5) == pytest.approx(1_000, abs=150)


def test_a_timer_counts_and_measures() -> None:
    clock = FakeClock()
    timer = Timer(clock, Random(1))
    for duration_ms in (0.25, 0.5, 0.75):
        timer.update(duration_ms)
    clock.time_ms += 5_000
    assert timer.events.count == 3
    assert timer.events.rates().one_minute == pytest.approx(0.6)
    assert timer.durations.snapshot().quantile(0.5) == 0.5
