"""A timing wheel: timeouts for hundreds of thousands of tasks, most of them cancelled. Pure.

A priority queue of tasks pays O(log n) to insert and again to cancel. A timing wheel pays O(1): it
is a ring of buckets, each holding the tasks that fall due within one *tick*. A plain wheel of 20
buckets of 1 ms reaches only 20 ms ahead, so wheels are stacked like the hands of a watch: one tick
of a wheel is one whole turn of the wheel below it. Levels are added when first needed::

    level   tick       turn (interval)
      1       1 ms         20 ms
      2      20 ms        400 ms
      3     400 ms      8 000 ms
      4   8 000 ms    160 000 ms

Time moves by *buckets*, not by ticks. Every bucket that holds tasks stands in one queue, ordered
by the start of its range. When the first of them is due, the clocks of all levels move to its
start and its tasks are added again. Their remaining delay now fits a finer wheel, or is over: `add`
refuses a task that is due, and a refused task is an expired one. One code path moves tasks down
and out, and a wheel with nothing in it costs nothing.

Worked example: three tasks are added at time 0, due at 19, 20 and 237.

1. 19 < 20, the turn of level 1: bucket 19 of level 1, start 19. 20 does not fit, so it goes to
   level 2, bucket 20 // 20 = 1, range [20, 40), start 20. 237 goes to level 2 as well, bucket
   237 // 20 = 11, range [220, 240), start 220. The queue reads 19, 20, 220.
2. At 19 the level-1 clock becomes 19 and the bucket is emptied: 19 < 19 + 1, so that task is due.
   Level 2 has a tick of 20, hence its clock stays at 0.
3. At 20 both clocks become 20 and the bucket [20, 40) is emptied: the task is due at once.
4. Nothing happens until 220. Then the clocks become 220 and task 237 is added again:
   237 < 220 + 20, so it fits level 1 now, bucket 237 mod 20 = 17, start 237.
5. At 237 it is due. It was moved once and looked at twice, whatever else the wheel holds.

Cost: insert O(levels), cancel O(1), expiry O(levels) per task over its whole life. The weakness:
the clock lags between buckets. A task added at 500 to a wheel that still says 0 starts a level too
high, in a bucket that is due already; the next advance moves it down, and it never runs late.

Invariants:

* A task is in at most one bucket; `Schedule.size` is the sum of the buckets' lengths.
* A bucket is queued at most once per round, and its start does not change while it is queued.
* The clock moves *before* a bucket is emptied; else its tasks would land in it again, for ever.
* A task never runs late for having sat on a coarse level. It may run early by less than the tick
  of level 1.

Times are whole milliseconds of a monotonic clock, given by the caller. Nothing here waits, reads a
clock or runs a task; `odradek.purgatory.timer` does.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable

from odradek.marks import mypyc_attr

__all__ = ["BucketQueue", "Schedule", "TimerTask", "TimerTaskEntry", "TimerTaskList", "TimingWheel"]

# Start of a bucket that waits for nothing.
UNSET = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTask(ABC):
    """Something to run once its delay has passed, unless cancelled before."""

    __slots__ = ("delay_ms", "timer_entry")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms  # Relative to the moment the task is added; may be negative.
        self.timer_entry: TimerTaskEntry | None = None  # The place in a wheel; at most one.

    @abstractmethod
    def run(self) -> None:
        """Does the work of the task; called once it is due."""

    def cancel(self) -> None:
        """Removes the task from its wheel, if it is in one; no effect once it was handed out."""
        entry = self.timer_entry
        if entry is not None:
            self.timer_entry = None
            entry.remove()


class TimerTaskEntry:
    """A task and the absolute time at which it is due."""

    __slots__ = ("bucket", "expiration_ms", "task")

    def __init__(self, task: TimerTask, expiration_ms: int) -> None:
        task.cancel()  # A task that is added again leaves its old place.
        task.timer_entry = self
        self.task = task
        self.expiration_ms = expiration_ms
        self.bucket: TimerTaskList | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.task.timer_entry is not self

    def remove(self) -> None:
        if self.bucket is not None:
            self.bucket.remove(self)


class TimerTaskList:
    """A bucket: the entries due within one tick, in order of arrival."""

    __slots__ = ("_entries", "_queue", "expiration_ms")

    def __init__(self, queue: "BucketQueue") -> None:
        self._queue = queue
        # A dict used as an ordered set: O(1) insert and delete, first in first out.
        self._entries: dict[TimerTaskEntry, None] = {}
        # Start of the range, at which the bucket is due. Buckets are reused turn after turn.
        self.expiration_ms = UNSET

    def __len__(self) -> int:
        return len(self._entries)

    def set_expiration(self, expiration_ms: int) -> bool:
        """Sets the start. Returns whether it changed: then the bucket has to be queued again."""
        changed = self.expiration_ms != expiration_ms
        self.expiration_ms = expiration_ms
        return changed

    def add(self, entry: TimerTaskEntry) -> None:
        entry.remove()
        entry.bucket = self
        self._entries[entry] = None
        self._queue.task_count += 1

    def remove(self, entry: TimerTaskEntry) -> None:
        """Removes the entry; does nothing if it is in another bucket."""
        if entry.bucket is self:
            entry.bucket = None
            del self._entries[entry]
            self._queue.task_count -= 1

    def flush(self) -> Iterable[TimerTaskEntry]:
        """Empties the bucket and makes it ready for another turn."""
        entries, self._entries = self._entries, {}
        self._queue.task_count -= len(entries)
        self.expiration_ms = UNSET
        for entry in entries:
            entry.bucket = None
        return entries


class BucketQueue:
    """The state that all levels share: non-empty buckets ordered by start, and the count of tasks.

    Bounded by the number of buckets: each is queued at most once.
    """

    __slots__ = ("_heap", "_sequence", "task_count")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._sequence = 0  # Breaks ties in order of arrival; buckets themselves do not compare.
        self.task_count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def offer(self, bucket: TimerTaskList) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (bucket.expiration_ms, self._sequence, bucket))

    def poll(self, now_ms: int) -> TimerTaskList | None:
        """The earliest bucket if it is due."""
        if self._heap and self._heap[0][0] <= now_ms:
            return heapq.heappop(self._heap)[2]
        return None

    def first_expiration_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None


class TimingWheel:
    """One level. Levels above it are created on demand and reached through `overflow_wheel`."""

    __slots__ = (
        "_queue",
        "buckets",
        "current_time_ms",
        "interval_ms",
        "overflow_wheel",
        "tick_ms",
        "wheel_size",
    )

    def __init__(self, *, tick_ms: int, wheel_size: int, start_ms: int, queue: BucketQueue) -> None:
        assert tick_ms >= 1, "a bucket is at least one millisecond wide"
        assert wheel_size >= 2, "a turn must be longer than a tick"
        self._queue = queue
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self.buckets = [TimerTaskList(queue) for _ in range(wheel_size)]
        self.current_time_ms = start_ms - start_ms % tick_ms  # Invariant: a multiple of the tick.
        self.overflow_wheel: TimingWheel | None = None

    def add(self, entry: TimerTaskEntry) -> bool:
        """Adds the entry to this level or one above. Returns False if it is cancelled or due."""
        expiration_ms = entry.expiration_ms
        if entry.is_cancelled or expiration_ms < self.current_time_ms + self.tick_ms:
            return False
        wheel = self
        # An entry that overflows here is not due above: one tick there is a whole turn here.
        while expiration_ms >= wheel.current_time_ms + wheel.interval_ms:
            wheel = wheel.overflow_wheel or wheel.add_overflow_wheel()
        tick = expiration_ms // wheel.tick_ms
        bucket = wheel.buckets[tick % wheel.wheel_size]
        bucket.add(entry)
        if bucket.set_expiration(tick * wheel.tick_ms):
            self._queue.offer(bucket)
        return True

    def add_overflow_wheel(self) -> "TimingWheel":
        self.overflow_wheel = TimingWheel(
            tick_ms=self.interval_ms,
            wheel_size=self.wheel_size,
            start_ms=self.current_time_ms,
            queue=self._queue,
        )
        return self.overflow_wheel

    def advance_clock(self, time_ms: int) -> None:
        """Moves the clocks of this level and those above; does not touch tasks."""
        if time_ms >= self.current_time_ms + self.tick_ms:
            self.current_time_ms = time_ms - time_ms % self.tick_ms
            if self.overflow_wheel is not None:
                self.overflow_wheel.advance_clock(self.current_time_ms)


class Schedule:
    """All levels as one: tasks are added with the current time, and returned when they are due.

    Example:
        >>> schedule = Schedule(start_ms=0)
        >>> schedule.add(task_with_delay_237, now_ms=0)
        True
        >>> schedule.advance_to(236)    # moves the task from level 2 to level 1 on the way
        []
        >>> schedule.advance_to(240)
        [task_with_delay_237]
    """

    __slots__ = ("_queue", "wheel")

    def __init__(self, *, start_ms: int, tick_ms: int = 1, wheel_size: int = 20) -> None:
        self._queue = BucketQueue()
        self.wheel = TimingWheel(
            tick_ms=tick_ms, wheel_size=wheel_size, start_ms=start_ms, queue=self._queue
        )

    @property
    def size(self) -> int:
        """Tasks waiting; cancelled and expired ones are not among them."""
        return self._queue.task_count

    @property
    def queued_buckets(self) -> int:
        return len(self._queue)

    def next_wakeup_ms(self) -> int | None:
        """When `advance_to` next has work; no task is due before. None if there are no tasks."""
        return self._queue.first_expiration_ms()

    def add(self, task: TimerTask, now_ms: int) -> bool:
        """Schedules the task `task.delay_ms` from now. Returns False if it is due: run it."""
        return self.add_entry(TimerTaskEntry(task, now_ms + task.delay_ms))

    def add_entry(self, entry: TimerTaskEntry) -> bool:
        """Adds a new or a moved entry. Returns False if the entry is due.

        A cancelled entry is neither stored nor due.
        """
        return self.wheel.add(entry) or entry.is_cancelled

    def advance_to(self, now_ms: int) -> list[TimerTask]:
        """Moves time forward and returns the tasks that are due, in the order they fell due."""
        due: list[TimerTask] = []
        while (bucket := self._queue.poll(now_ms)) is not None:
            self.wheel.advance_clock(bucket.expiration_ms)
            due.extend(entry.task for entry in bucket.flush() if not self.add_entry(entry))
        return due
