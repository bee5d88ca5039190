"""The instruments: histogram, timer, buckets, gauge; the meter is `odradek.metrics.meter`.

Measuring is on the path of every request, reading happens once in many seconds. So measuring only
adds an integer or appends to a list; everything else is done when the metrics are read.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from random import Random

from odradek.clock import Clock
from odradek.metrics.meter import Meter

__all__ = ["QUANTILES", "Buckets", "Gauge", "Histogram", "Snapshot", "Timer"]

# Kafka's percentiles: 50, 75, 95, 98, 99, 99.9.
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

# Values a histogram keeps. With 1028 of them a quantile is within 5% (of rank) at 99.9% confidence.
RESERVOIR_SIZE = 1028
# How fast old values lose weight, per second: the last five minutes dominate.
DECAY_PER_S = 0.015
# Values collected before they are merged into the reservoir. The histograms of a request fill up
# together, so a merge of all of them has to be short: requests wait for it.
BATCH_SIZE = 256

# Bounds of buckets of durations: 2^16 ns (66 us), doubled 16 times, to 4.3 s.
FIRST_BOUND_BITS = 16
BOUND_COUNT = 17


class Snapshot:
    """A sorted sample of a histogram's values, and the exact figures beside it."""

    __slots__ = ("_values", "count", "max", "min", "total")

    def __init__(
        self, values: Sequence[float], *, count: int, total: float, low: float, high: float
    ) -> None:
        self._values = sorted(values)
        self.count = count
        self.total = total
        self.min = low
        self.max = high

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def sample_size(self) -> int:
        return len(self._values)

    def quantile(self, quantile: float) -> float:
        """The value below which this share of the sample lies, interpolated; 0 if it is empty."""
        values = self._values
        if not values:
            return 0.0
        position = quantile * (len(values) + 1)
        if position < 1:
            return values[0]
        if position >= len(values):
            return values[-1]
        index = int(position)
        lower, upper = values[index - 1], values[index]
        return lower + (position - index) * (upper - lower)


class Buckets:
    """Durations counted by size, exactly and since the start: what Prometheus calls a histogram.

    The bounds double. A value of n nanoseconds belongs to the bucket whose number is the bit length
    of n >> 16, so that counting needs no search: the values of bucket i are below 2^(16 + i) ns.
    """

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        # One per bit length of an int64. `cumulative` reports those past the bounds as one.
        self.counts = [0] * 64
        self.total_ns = 0

    # A hot loop may do these two additions itself.
    def update(self, value_ns: int) -> None:
        self.counts[(value_ns >> FIRST_BOUND_BITS).bit_length()] += 1
        self.total_ns += value_ns

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Bounds in seconds, and how many values lie below each of them."""
        rows: list[tuple[float, int]] = []
        below = 0
        for index in range(BOUND_COUNT):
            below += self.counts[index]
            rows.append(((1 << FIRST_BOUND_BITS + index) / 1e9, below))
        return rows


class Histogram:
    """Distribution of values, weighted towards the last minutes, in bounded memory.

    The reservoir is a random sample in which a value's chance to stay decays with its age. Each
    value has a priority, and those with the highest stay::

        priority = DECAY_PER_S * time_s + e,    e drawn from the exponential distribution

    A value of now beats an older one by the time between them: no weight is ever recomputed.
    Values wait in a batch and are merged together. When the reservoir is full and its lowest
    priority lies x above that of "now" without luck, a new value gets in with probability
    q = exp(-x). How many fail before one succeeds is geometric, so they are skipped in one step,
    and the surplus over x of the one that got in is again exponential. At high rates q is tiny: a
    full batch costs a few draws.

    Example: at 10 000 values a second the reservoir stands for about 10 000 / 0.015 = 670 000
    values, so q is about 1028 / 670 000, and of every second or third batch of 256 one gets in.

    Args:
        divisor: The values that are given are larger than those that are shown by this factor, as
            nanoseconds are to milliseconds: only what is shown is divided, not each value.
    """

    __slots__ = (
        "_batch",
        "_clock",
        "_count",
        "_divisor",
        "_max",
        "_min",
        "_random",
        "_reservoir",
        "_start_ms",
        "_total",
        "_zeros",
    )

    def __init__(self, clock: Clock, random: Random, divisor: float = 1) -> None:
        self._clock = clock
        self._random = random
        self._divisor = divisor
        self._start_ms = clock.monotonic_ms()
        # Values that wait to be merged: those of the list, and so many zeros.
        self._batch: list[float] = []
        self._zeros = 0
        # Heap of (priority, value), lowest priority first.
        self._reservoir: list[tuple[float, float]] = []
        # Exact figures of everything merged so far.
        self._count = 0
        self._total = 0.0
        self._min = math.inf
        self._max = -math.inf

    def update(self, value: float) -> None:
        batch = self._batch
        batch.append(value)
        if len(batch) >= BATCH_SIZE:
            self._merge()

    def update_all(self, values: Sequence[float]) -> None:
        """Takes in many values, at a fraction of the cost of one by one."""
        self._batch += values
        if len(self._batch) >= BATCH_SIZE:
            self._merge()

    def add_zeros(self, count: int) -> None:
        """Takes in so many zeros, at the cost of one."""
        self._zeros += count
        if self._zeros >= BATCH_SIZE:
            self._merge()

    @property
    def count(self) -> int:
        return self._count + len(self._batch) + self._zeros

    def snapshot(self) -> Snapshot:
        self._merge()
        is_empty = self._count == 0
        return Snapshot(
            [value for _, value in self._reservoir],
            count=self._count,
            total=self._total,
            low=0.0 if is_empty else self._min,
            high=0.0 if is_empty else self._max,
        )

    def _merge(self) -> None:
        batch, self._batch = self._batch, []
        zeros, self._zeros = self._zeros, 0
        size = len(batch)
        if not size and not zeros:
            return
        divisor = self._divisor
        self._count += size + zeros
        if size:
            self._total += sum(batch) / divisor
            self._min = min(self._min, min(batch) / divisor)
            self._max = max(self._max, max(batch) / divisor)
        if zeros:
            self._min = min(self._min, 0.0)
            self._max = max(self._max, 0.0)

        reservoir = self._reservoir
        # -log(1 - random()) is drawn from the exponential distribution, as by `expovariate`, whose
        # calls took most of the time.
        random, log = self._random.random, math.log
        base = DECAY_PER_S * (self._clock.monotonic_ms() - self._start_ms) / 1000
        room = max(RESERVOIR_SIZE - len(reservoir), 0)
        if room:
            first = batch[:room]
            reservoir += [(base - log(1.0 - random()), value / divisor) for value in first]
            reservoir += [
                (base - log(1.0 - random()), 0.0) for _ in range(min(room - len(first), zeros))
            ]
            heapq.heapify(reservoir)
        # The zeros count as if they stood behind the list.
        index = room
        while index < size + zeros:
            excess = max(reservoir[0][0] - base, 0.0)
            if excess > 0:
                # Exponential over a geometric's rate, rounded down, is geometric.
                index += int(log(1.0 - random()) / math.log1p(-math.exp(-excess)))
                if index >= size + zeros:
                    break
            value = batch[index] / divisor if index < size else 0.0
            heapq.heapreplace(reservoir, (base + excess - log(1.0 - random()), value))
            index += 1


class Timer:
    """How often something happens and how long it takes, in milliseconds.

    The caller measures: the times that matter here are shorter than a `Clock`'s millisecond.
    """

    __slots__ = ("durations", "events")

    def __init__(self, clock: Clock, random: Random) -> None:
        self.events = Meter(clock)
        self.durations = Histogram(clock, random)

    def update(self, duration_ms: float) -> None:
        self.events.count += 1
        self.durations.update(duration_ms)


class Gauge:
    """A value that is computed when the metrics are read."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read
