"""Rounds over all transactional ids: transactions that time out, ids that expire."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from odradek.clock import PreciseClock
from odradek.coordinator.transaction.config import TransactionCoordinatorConfig
from odradek.coordinator.transaction.decisions import is_expired, is_timed_out
from odradek.coordinator.transaction.registry import TransactionRegistry
from odradek.coordinator.transaction.transaction import StatePartition, TransactionalId
from odradek.tasks import Tasks

__all__ = ["TransactionUpkeep"]

logger = logging.getLogger(__name__)

_SLICE_NS: Final = 1_000_000  # How long a round runs before other tasks of the loop do.
_LOOKED_AT: Final = 50  # Ids between two readings of the clock.
# Tombstones in one batch: below the limit of a batch even if all ids have the greatest length.
_REMOVED_AT_ONCE: Final = 20


class TransactionUpkeep:
    """Looks for transactions and ids whose time is over.

    Args:
        registry: The ids.
        config: The times.
        abort: Aborts a transaction.
        remove: Forgets ids of one partition.
        clock: For slices of time, and the age of ids.
        tasks: Runs the rounds.
    """

    def __init__(
        self,
        registry: TransactionRegistry,
        config: TransactionCoordinatorConfig,
        *,
        abort: Callable[[TransactionalId], None],
        remove: Callable[[StatePartition, Sequence[TransactionalId]], None],
        clock: PreciseClock,
        tasks: Tasks,
    ) -> None:
        self._registry = registry
        self._config = config
        self._abort = abort
        self._remove = remove
        self._clock = clock
        self._tasks = tasks
        self._running: set[str] = set()

    def start_aborting(self) -> None:
        """Starts a round that aborts transactions, unless one is under way."""
        self._start("aborting", self._run_aborting)

    def start_expiring(self) -> None:
        """Starts a round that removes ids, unless one is under way."""
        self._start("expiring", self._run_expiring)

    def _start(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._running:
            self._running.add(name)
            self._tasks.spawn(self._run(name, run))

    async def _run(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await run()
        finally:
            self._running.discard(name)

    async def _run_aborting(self) -> None:
        for partition in tuple(self._registry.partitions.values()):
            await self._each(partition, tuple(partition.ongoing), self._abort_among)

    def _abort_among(self, transactions: Sequence[TransactionalId]) -> None:
        now_ms = self._clock.now_ms()
        for transaction in transactions:
            if is_timed_out(transaction, now_ms):
                self._abort(transaction)

    async def _run_expiring(self) -> None:
        removed = 0

        def remove_among(transactions: Sequence[TransactionalId]) -> None:
            nonlocal removed
            now_ms = self._clock.now_ms()
            expired = [
                transaction
                for transaction in transactions
                if is_expired(transaction, now_ms, self._config.id_expiration_ms)
            ]
            for start in range(0, len(expired), _REMOVED_AT_ONCE):
                portion = expired[start : start + _REMOVED_AT_ONCE]
                self._remove(portion[0].home, portion)
                removed += len(portion)

        for partition in tuple(self._registry.partitions.values()):
            await self._each(partition, tuple(partition.transactions.values()), remove_among)
        if removed:
            logger.info("Removed %d expired transactional ids.", removed)

    async def _each(
        self,
        partition: StatePartition,
        transactions: Sequence[TransactionalId],
        action: Callable[[Sequence[TransactionalId]], None],
    ) -> None:
        """Calls `action` for portions, while the partition is served, with the loop in between."""
        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        for start in range(0, len(transactions), _LOOKED_AT):
            if not partition.is_loaded:
                return
            action(transactions[start : start + _LOOKED_AT])
            if self._clock.monotonic_ns() >= slice_end_ns:
                await self._tasks.sleep(0)
                slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
