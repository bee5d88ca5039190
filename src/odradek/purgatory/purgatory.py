"""The purgatory: requests that are neither satisfied nor timed out, found by key.

An operation is watched under every key whose change could satisfy it (for a fetch of three
partitions, those three) and is in the timer once. A component that changes the state behind a key
calls `check_and_complete(key)`.

Rules:

1. An operation for which `try_complete_else_watch` returned False is completed, or watched under
   every one of its keys and in the timer.
2. Completion under one key leaves the operation in the lists of its other keys. They drop it when
   their own key is checked, or in a purge. A purge walks everything, so it runs only once more than
   `purge_interval` operations are estimated to be such leftovers; the estimate is made on every
   wake-up of the timer and on every `purge_interval`-th `try_complete_else_watch`.
3. An operation that raises does not affect others: it is logged and stays until its timeout, and
   the walk continues. The caller is another request, which must not fail for it.

There are no locks and no shards, because nothing here awaits. A completion callback should not
re-check keys in place but collect them and have them checked after its own answer is queued; if it
does re-enter, the walks below survive it, for they go over a copy and trim the list afterwards.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from odradek.metrics import MetricGroup, MetricRegistry
from odradek.purgatory.operation import DelayedOperation
from odradek.purgatory.timer import Timer

__all__ = ["DelayedOperationPurgatory"]

logger = logging.getLogger(__name__)

Operation = TypeVar("Operation", bound=DelayedOperation)


class DelayedOperationPurgatory(Generic[Operation]):
    """Parked operations of one kind.

    Args:
        name: Kind of operation, as in the metric tag ``delayedOperation``.
        timer: Expires the operations; owned by the purgatory from now on.
        purge_interval: How many completed operations may linger in the watch lists.
        reaper_enabled: Whether the timer's wake-ups drive this purgatory; if not, the owner calls
            `advance_clock`.
        timer_enabled: Whether operations expire at all.
        metrics: Where to register the gauges ``PurgatorySize`` and ``NumDelayedOperations``.
    """

    def __init__(
        self,
        name: str,
        timer: Timer,
        *,
        broker_id: int = 0,
        purge_interval: int = 1000,
        reaper_enabled: bool = True,
        timer_enabled: bool = True,
        metrics: MetricRegistry | None = None,
    ) -> None:
        self.name = name
        self.reaper_name = f"ExpirationReaper-{broker_id}-{name}"
        self._timer = timer
        self._timer_enabled = timer_enabled
        self._purge_interval = purge_interval
        # Invariant: no list is empty outside of a walk.
        self._watchers: dict[Hashable, list[Operation]] = {}
        # Whether an operation waits for a key. The map's own method, since every append calls it.
        self.is_watched: Callable[[Hashable], bool] = self._watchers.__contains__
        # Operations watched since the last purge, plus those that were in the timer then.
        self._estimated_total_operations = 0
        self._calls_since_purge_check = 0
        self._gauges: MetricGroup | None = None
        if metrics is not None:
            self._gauges = metrics.group(
                "kafka.server", "DelayedOperationPurgatory", delayedOperation=name
            )
            self._gauges.gauge("PurgatorySize", lambda: self.watched)
            self._gauges.gauge("NumDelayedOperations", lambda: self.num_delayed)
        if reaper_enabled:
            timer.drive_with(self._reap)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for any key."""
        return not self._watchers

    @property
    def watched(self) -> int:
        """Lengths of all watch lists: an operation counts once per key, completed leftovers too."""
        return sum(map(len, self._watchers.values()))

    @property
    def num_delayed(self) -> int:
        """Operations in the timer."""
        return self._timer.size

    @property
    def estimated_total_operations(self) -> int:
        return self._estimated_total_operations

    def try_complete_else_watch(self, operation: Operation, keys: Sequence[Hashable]) -> bool:
        """Completes the operation now or parks it. Returns whether this call completed it.

        The condition is tested twice, however many keys there are: before the operation is watched,
        and after, because it may have come true in between. From then on every change of a key
        finds the operation in its list.
        """
        assert keys, "an operation without keys would never be checked again"
        self._calls_since_purge_check += 1
        if self._calls_since_purge_check >= self._purge_interval:
            self._maybe_purge()
        # No key leads to the operation yet, so this needs no guard against re-entry.
        if operation.try_complete():
            return True
        is_counted = False
        for key in keys:
            if operation.is_completed:
                return False
            self._watchers.setdefault(key, []).append(operation)
            if not is_counted:
                is_counted = True
                self._estimated_total_operations += 1
        if operation.maybe_try_complete():
            return True
        if self._timer_enabled and not operation.is_completed:
            self._timer.add(operation)
        return False

    def watch(self, operation: Operation, keys: Sequence[Hashable]) -> None:
        """Parks an operation whose condition the caller has just seen not to hold.

        For operations whose check changes nothing: on one event loop the condition cannot have
        become true since.
        """
        assert keys, "an operation without keys would never be checked again"
        self._calls_since_purge_check += 1
        if self._calls_since_purge_check >= self._purge_interval:
            self._maybe_purge()
        watchers = self._watchers
        for key in keys:
            operations = watchers.get(key)
            if operations is None:
                watchers[key] = [operation]
            else:
                operations.append(operation)
        self._estimated_total_operations += 1
        if self._timer_enabled:
            self._timer.add(operation)

    def trim(self, key: Hashable) -> None:
        """Removes the completed operations of a key, for an operation that had very many keys."""
        operations = self._watchers.get(key)
        if operations is not None:
            self._drop_completed(key, operations)

    def check_and_complete(self, key: Hashable) -> int:
        """Checks every operation watched under the key. Returns how many this call completed."""
        operations = self._watchers.get(key)
        if operations is None:
            return 0
        completed = 0
        for operation in tuple(operations):
            if operation.is_completed:
                continue
            try:
                completed += operation.maybe_try_complete()
            except Exception:  # the border between two requests, logged
                logger.exception("%s: check of %r for key %s failed", self.name, operation, key)
        self._drop_completed(key, operations)
        logger.debug("Request key %s unblocked %d %s operations", key, completed, self.name)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Removes the key and cancels its operations' timeouts. They are **not** completed."""
        operations = self._watchers.pop(key, [])
        for operation in operations:
            operation.cancel()
        return operations

    def advance_clock(self, timeout_ms: int) -> bool:
        """Expires due operations, then purges if it is worth it. Returns whether any was due."""
        advanced = self._timer.advance_clock(timeout_ms)
        self._maybe_purge()
        return advanced

    def shutdown(self) -> None:
        """Stops the timer and withdraws the gauges; parked operations stay uncompleted."""
        self._timer.shutdown()
        if self._gauges is not None:
            self._gauges.remove()

    def _reap(self) -> None:
        self.advance_clock(0)

    def _maybe_purge(self) -> None:
        self._calls_since_purge_check = 0
        num_delayed = self._timer.size
        if self._estimated_total_operations - num_delayed <= self._purge_interval:
            return
        # Set before the walk: operations watched during it are counted as new ones.
        self._estimated_total_operations = num_delayed
        purged = sum(
            self._drop_completed(key, operations)
            for key, operations in tuple(self._watchers.items())
        )
        logger.debug("Purged %d completed operations from %s", purged, self.name)

    def _drop_completed(self, key: Hashable, operations: list[Operation]) -> int:
        """Trims the list in place and removes its key once empty. Returns how many it dropped."""
        before = len(operations)
        operations[:] = [operation for operation in operations if not operation.is_completed]
        # A callback may have removed the key, and another one begun a new list for it.
        if not operations and self._watchers.get(key) is operations:
            del self._watchers[key]
        return before - len(operations)
