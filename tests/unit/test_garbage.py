"""02 section 12: full collections of garbage are rare, and on an idle loop if possible."""

import gc
from collections.abc import Callable, Iterator
from random import Random

import pytest

from odradek.garbage import Pace, PacedCollector, SystemHeap
from odradek.metrics import MetricRegistry, render_prometheus
from odradek.testing import ManualClock

SECOND_NS = 1_000_000_000
BUSY, IDLE = SECOND_NS // 2, SECOND_NS // 1_000


class CountingHeap:
    """A heap whose blocks a test sets; garbage are the blocks that a full collection frees."""

    def __init__(self) -> None:
        self.blocks = 500_000
        self.garbage = 0
        self.is_aged = False
        self.freezes = 0
        self.collections = 0

    def block_count(self) -> int:
        return self.blocks

    def has_aged(self) -> bool:
        return self.is_aged

    def freeze(self) -> None:
        self.freezes += 1
        self.is_aged = False

    def collect_all(self) -> None:
        self.collections += 1
        self.blocks -= self.garbage
        self.garbage = 0
        self.freeze()


@pytest.fixture
def heap() -> CountingHeap:
    return CountingHeap()


@pytest.fixture
def pace(heap: CountingHeap) -> Pace:
    made = Pace(heap)
    made.begin()
    heap.freezes = 0
    return made


def test_aged_objects_are_frozen_and_not_traversed(heap: CountingHeap, pace: Pace) -> None:
    pace.look(BUSY, SECOND_NS)
    assert heap.freezes == 0
    heap.is_aged = True
    pace.look(BUSY, SECOND_NS)
    pace.look(BUSY, SECOND_NS)
    assert (heap.freezes, heap.collections) == (1, 0)


def test_a_busy_loop_has_a_full_collection_when_the_heap_has_doubled(
    heap: CountingHeap, pace: Pace
) -> None:
    heap.blocks += 500_000 + 2_000_000
    pace.look(BUSY, SECOND_NS)
    assert heap.collections == 0
    heap.blocks += 1
    pace.look(BUSY, SECOND_NS)
    assert heap.collections == 1
    pace.look(BUSY, SECOND_NS)
    assert heap.collections == 1


def test_a_heap_that_only_grows_has_few_full_collections(heap: CountingHeap, pace: Pace) -> None:
    for _ in range(20_000):
        heap.blocks += 10_000
        pace.look(BUSY, SECOND_NS)
    assert heap.blocks > 200_000_000
    assert heap.collections <= 6


def test_garbage_is_bounded_on_a_loop_that_is_never_idle(heap: CountingHeap, pace: Pace) -> None:
    most = 0
    for _ in range(100_000):
        heap.blocks += 5_000
        heap.garbage += 5_000
        most = max(most, heap.garbage)
        pace.look(BUSY, SECOND_NS)
    assert most <= 500_000 + 2_000_000 + 5_000
    assert heap.collections == 199


def test_an_idle_loop_collects_what_little_has_grown(heap: CountingHeap, pace: Pace) -> None:
    heap.blocks += 500_000 // 10 + 100_001
    for _ in range(9):
        pace.look(IDLE, SECOND_NS)
    pace.look(BUSY, SECOND_NS)  # Idle no more.
    for _ in range(9):
        pace.look(IDLE, SECOND_NS)
    assert heap.collections == 0
    pace.look(IDLE, SECOND_NS)
    assert heap.collections == 1
    for _ in range(30):
        pace.look(IDLE, SECOND_NS)
    assert heap.collections == 1


class Knot:
    """An object that refers to itself."""

    alive = 0

    def __init__(self) -> None:
        self.myself = self
        Knot.alive += 1

    def __del__(self) -> None:
        Knot.alive -= 1


@pytest.fixture
def collector() -> Iterator[PacedCollector]:
    made = PacedCollector(lambda: 0, lambda _name, _ns: None)
    with made.paced():
        yield made
    gc.collect()


def test_frozen_garbage_is_collected_by_a_full_collection_only(collector: PacedCollector) -> None:
    heap = SystemHeap()
    knots = [Knot() for _ in range(1_000)]
    heap.freeze()
    knots.clear()
    gc.collect()
    assert Knot.alive == 1_000
    collected = collector.collected_count
    heap.collect_all()
    assert Knot.alive == 0
    assert collector.collected_count >= collected + 1_000


def test_what_ages_is_noticed(collector: PacedCollector) -> None:
    heap = SystemHeap()
    heap.freeze()
    assert not heap.has_aged()
    gc.collect(0)
    assert not heap.has_aged()
    gc.collect(1)
    assert heap.has_aged()
    heap.freeze()
    assert not heap.has_aged()


def test_no_allocation_leads_to_a_full_collection(collector: PacedCollector) -> None:
    full = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(500_000)]
    assert gc.get_stats()[1]["collections"] > 0
    assert gc.get_stats()[2]["collections"] == full
    del kept


@pytest.mark.parametrize("toggle", [gc.enable, gc.disable])
def test_the_settings_of_the_process_are_restored(toggle: Callable[[], None]) -> None:
    was_enabled, before = gc.isenabled(), gc.get_threshold()
    toggle()
    expected = gc.isenabled()
    callbacks = list(gc.callbacks)
    try:
        with PacedCollector(lambda: 0, lambda _name, _ns: None).paced():
            assert gc.isenabled()
            assert gc.get_threshold() != before
        assert (gc.isenabled(), gc.get_threshold()) == (expected, before)
        assert gc.callbacks == callbacks
        assert gc.get_freeze_count() == 0
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_collections_are_measured(collector: PacedCollector) -> None:
    clock = ManualClock()
    metrics = MetricRegistry(clock, Random(1))
    collector.register(metrics)
    noted: list[str] = []
    collector._note = lambda name, _ns: noted.append(name)
    many = [Knot() for _ in range(200_000)]
    many.clear()
    SystemHeap().collect_all()
    page = render_prometheus(metrics)
    assert "odradek_gc_full_collections 1" in page
    assert "odradek_gc_pause_seconds_count" in page
    assert noted == ["the garbage collector"] * len(noted) != []
