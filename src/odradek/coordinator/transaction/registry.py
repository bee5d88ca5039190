"""The transactional ids that this broker coordinates, by the partition that stores them.

An id is here only while its partition of `__transaction_state` is active. Memory is about half a
kilobyte for an id, so that a million of them, which clients may well leave behind until they
expire, are half a gigabyte.
"""

from collections.abc import Callable, Iterator
from typing import Final

from odradek.clock import PreciseClock
from odradek.coordinator.loading import StateLoader
from odradek.coordinator.partitioning import partition_for
from odradek.coordinator.transaction.transaction import StatePartition, TransactionalId
from odradek.errors import ErrorCode
from odradek.tasks import Tasks

__all__ = ["MAX_ID_BYTES", "TransactionRegistry"]

MAX_ID_BYTES: Final = 0x7FFF  # The longest string of a record's key.
_SLICE_NS: Final = 1_000_000  # How long ids are freed before other tasks of the loop run.
_FREED_AT_ONCE: Final = 100  # Between two readings of the clock.


class TransactionRegistry:
    """All transactional ids of this broker.

    Args:
        loader: Has the partitions of `__transaction_state` that are active here.
        partition_count: The number of its partitions, also before it is created.
        clock: Measures slices.
        tasks: Frees the ids of a partition that was removed.
    """

    def __init__(
        self,
        loader: StateLoader,
        partition_count: Callable[[], int],
        *,
        clock: PreciseClock,
        tasks: Tasks,
    ) -> None:
        self._loader = loader
        self._partition_count = partition_count
        self._clock = clock
        self._tasks = tasks
        self.partitions: dict[int, StatePartition] = {}

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that stores an id."""
        return partition_for(transactional_id, self._partition_count())

    def find(self, transactional_id: str) -> StatePartition | ErrorCode:
        """The loaded partition of an id, or the error why it is not coordinated here now."""
        number = self.partition_of(transactional_id)
        error = self._loader.check_active(number)
        return self.partitions[number] if error is ErrorCode.NONE else error

    def check_all(self) -> ErrorCode:
        """NONE, or the error why not all ids of this broker are known."""
        return self._loader.check_all_active()

    def install(self, partition: StatePartition) -> None:
        """Adds a partition that was loaded."""
        assert partition.number not in self.partitions, "unloaded before it is loaded again"
        self.partitions[partition.number] = partition

    def remove(self, number: int) -> None:
        """Removes a partition; its markers are not delivered any more by this broker."""
        partition = self._forget(number)
        if partition is not None and len(partition.transactions) > _FREED_AT_ONCE:
            self._tasks.spawn(self._free(partition))

    def clear(self) -> None:
        """Removes all partitions; their ids are freed when nothing names them any more."""
        for number in tuple(self.partitions):
            self._forget(number)

    def _forget(self, number: int) -> StatePartition | None:
        partition = self.partitions.pop(number, None)
        if partition is not None:
            partition.is_loaded = False
            for delivery in partition.deliveries.values():
                delivery.is_cancelled = True
            partition.deliveries.clear()
        return partition

    async def _free(self, partition: StatePartition) -> None:
        """Frees the ids in slices.

        They and their partition name each other. The garbage collector would free all of them in
        one turn of the loop, three microseconds each.
        """
        partition.ongoing.clear()
        transactions = partition.transactions
        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        while transactions:
            for _ in range(min(_FREED_AT_ONCE, len(transactions))):
                transactions.popitem()
            if self._clock.monotonic_ns() >= slice_end_ns:
                await self._tasks.sleep(0)
                slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS

    def __iter__(self) -> Iterator[TransactionalId]:
        """Tolerates changes while it iterates: only ids added meanwhile may be missing."""
        for partition in tuple(self.partitions.values()):
            for transaction in tuple(partition.transactions.values()):
                if not partition.is_loaded:
                    break
                yield transaction
