"""Python's collector of cyclic garbage, paced so that no request waits for a full collection.

A full collection traverses every object made since the start: 160 ms with 5,000 partitions, two
seconds with 600,000 transactional ids, on whichever request allocates the object that is one too
many. So a process that runs brokers does without automatic full collections:

====================  ==========================================================================
Objects               Collected
====================  ==========================================================================
young                 automatically, 5,000 at a time: some 2 ms
young and middle-aged automatically, 15,000 at a time: some 5 ms
older ones            every second those that have aged are *frozen*: no later collection traverses
                      them; references still free them, cycles do not
all of them           `Pace` decides: when the loop has been idle for ten seconds and the heap has
                      grown by a tenth; when it has more than doubled, even if the loop is busy
====================  ==========================================================================

The heap is measured by its allocated blocks, which costs a tenth of a millisecond. After a full
collection as many blocks may be allocated as it left, and `_BUSY_BLOCKS` more: so the garbage in
cycles is bounded by that, and a heap that only grows has a full collection at each doubling.

The collector belongs to the process. A command that owns its process paces it; a broker embedded in
another program does not, and leaves that program's settings alone (ADR 15).
"""

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from odradek.metrics import Buckets, MetricName, MetricRegistry

__all__ = ["Heap", "Pace", "PacedCollector"]

# When objects of the first and of the second age are collected, see `gc.set_threshold`. A parked
# request has a few dozen objects, which are freed without the collector when it is answered: with
# Python's 700, a hundred waiting consumers make the collector look at them in vain for each record.
_THRESHOLDS: Final = (5_000, 1)
_NEVER: Final = 1 << 30

_LOOK_S: Final = 1.0
# The loop is idle that is busy for less than a hundredth of each of so many looks.
_IDLE_LOOKS: Final = 10
_IDLE_SHARE: Final = 100
# Growth of the heap, in blocks of some 80 bytes, before a full collection: beside a tenth of the
# heap on an idle loop, beside the whole heap on a busy one.
_IDLE_BLOCKS: Final = 100_000
_BUSY_BLOCKS: Final = 2_000_000
# A pause above this is told to the log of long turns.
_LONG_NS: Final = 1_000_000

_PAUSES: Final = MetricName("odradek", "gc", "pause_seconds")
_COLLECTED: Final = MetricName("odradek", "gc", "collected_objects")
_FULL: Final = MetricName("odradek", "gc", "full_collections")


class Heap(Protocol):
    """Python's heap and its collector; `SystemHeap` is the one of this process."""

    def block_count(self) -> int:
        """Allocated blocks."""
        ...

    def has_aged(self) -> bool:
        """Whether objects have survived a collection of the second age since the last freeze."""
        ...

    def freeze(self) -> None:
        """Excepts all present objects from later collections."""
        ...

    def collect_all(self) -> None:
        """Collects garbage among all objects, frozen ones included."""
        ...


class SystemHeap:
    """The heap of this process."""

    def __init__(self) -> None:
        self._frozen_at = 0

    def block_count(self) -> int:
        """Allocated blocks."""
        return sys.getallocatedblocks()

    def has_aged(self) -> bool:
        """Whether objects have survived a collection of the second age since the last freeze."""
        return _middle_collections() != self._frozen_at

    def freeze(self) -> None:
        """Excepts all present objects from later collections."""
        gc.freeze()
        self._frozen_at = _middle_collections()

    def collect_all(self) -> None:
        """Collects garbage among all objects, frozen ones included."""
        gc.unfreeze()
        gc.collect()
        self.freeze()


def _middle_collections() -> int:
    count: int = gc.get_stats()[1]["collections"]
    return count


class Pace:
    """Decides when the objects of a heap are frozen, and when all of them are collected.

    Args:
        heap: The heap.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._idle_looks = 0
        self._blocks_left = 0  # By the last full collection.

    def begin(self) -> None:
        """Freezes what the start has made: nearly all of it stays."""
        self._heap.freeze()
        self._blocks_left = self._heap.block_count()

    def look(self, busy_ns: int, elapsed_ns: int) -> None:
        """Looks at the heap, once a second.

        Args:
            busy_ns: How long the loop was busy since the last look.
            elapsed_ns: The time since then.
        """
        is_idle = busy_ns * _IDLE_SHARE < elapsed_ns
        self._idle_looks = self._idle_looks + 1 if is_idle else 0
        grown = self._heap.block_count() - self._blocks_left
        if grown > self._blocks_left + _BUSY_BLOCKS or (
            self._idle_looks >= _IDLE_LOOKS and grown > self._blocks_left // 10 + _IDLE_BLOCKS
        ):
            self._heap.collect_all()
            self._blocks_left = self._heap.block_count()
            self._idle_looks = 0
        elif self._heap.has_aged():
            self._heap.freeze()


class PacedCollector:
    """The collector of a process that runs brokers on one loop.

    Args:
        busy_ns: How long the loop was busy since its start.
        note: Told the name and duration of a long pause, for the log of long turns.
    """

    def __init__(self, busy_ns: Callable[[], int], note: Callable[[str, int], None]) -> None:
        self._busy_ns = busy_ns
        self._note = note
        self._pace = Pace(SystemHeap())
        self._pauses = Buckets()
        self._collected = 0
        self._full = 0
        self._started_ns = 0

    def register(self, metrics: MetricRegistry) -> None:
        """Registers the metrics of the collector."""
        metrics.show_buckets(_PAUSES, self._pauses, "Pauses of Python's garbage collector.")
        metrics.gauge(_COLLECTED, lambda: self._collected, "Objects collected in cycles.")
        metrics.gauge(_FULL, lambda: self._full, "Collections among all objects.")

    @property
    def collected_count(self) -> int:
        """Objects that were collected since the start."""
        return self._collected

    @contextlib.contextmanager
    def paced(self) -> Iterator[None]:
        """Paces the collector of this process; afterwards it is as it was before."""
        before, was_enabled = gc.get_threshold(), gc.isenabled()
        gc.callbacks.append(self._measure)
        gc.set_threshold(*_THRESHOLDS, _NEVER)
        self._pace.begin()
        gc.enable()
        try:
            yield
        finally:
            gc.callbacks.remove(self._measure)
            gc.unfreeze()
            gc.set_threshold(*before)
            if not was_enabled:
                gc.disable()

    async def run(self) -> None:
        """Looks at the heap until it is cancelled."""
        busy_ns, now_ns = self._busy_ns(), time.monotonic_ns()
        while True:
            await asyncio.sleep(_LOOK_S)
            last_busy_ns, last_ns = busy_ns, now_ns
            busy_ns, now_ns = self._busy_ns(), time.monotonic_ns()
            self._pace.look(busy_ns - last_busy_ns, now_ns - last_ns)

    def _measure(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._started_ns = time.monotonic_ns()
            return
        elapsed_ns = time.monotonic_ns() - self._started_ns
        self._pauses.update(elapsed_ns)
        self._collected += info["collected"]
        self._full += info["generation"] == 2
        if elapsed_ns > _LONG_NS:
            self._note("the garbage collector", elapsed_ns)
