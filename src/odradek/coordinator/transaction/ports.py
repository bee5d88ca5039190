"""What the coordinator of transactions needs of its broker."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from odradek.coordinator.loading import PartitionLog
from odradek.coordinator.writing import InternalTopic
from odradek.errors import ErrorCode
from odradek.model import TopicPartition, TransactionMarker

__all__ = [
    "NO_LEADER_NOW",
    "ImmediateMarkerWriter",
    "Leaders",
    "MarkerResults",
    "MarkerSender",
    "TransactionsTopic",
]

# The outcome of one marker in each of its partitions.
MarkerResults: TypeAlias = Mapping[TopicPartition, ErrorCode]

NO_LEADER_NOW: Final = -1


class TransactionsTopic(PartitionLog, InternalTopic, Protocol):
    """The partitions of `__transaction_state` that this broker hosts."""


class Leaders(Protocol):
    """Where markers go."""

    def __call__(self, tp: TopicPartition, /) -> int | None:
        """The leader of a partition; `NO_LEADER_NOW`, or None if the partition is not known."""
        ...


class MarkerSender(Protocol):
    """Has a broker write markers to partitions that it leads; this broker is one of them."""

    async def __call__(
        self, broker_id: int, markers: Sequence[TransactionMarker], /
    ) -> Sequence[MarkerResults]:
        """Returns the outcome of each marker.

        Raises:
            OdradekError: There was no answer; the markers may have been written.
        """
        ...


class ImmediateMarkerWriter(Protocol):
    """Writes a marker at once, if there is nothing to wait for."""

    def __call__(self, marker: TransactionMarker, /) -> MarkerResults | None:
        """Returns the outcome in each partition.

        Returns None, and writes nothing, unless this broker leads all of the partitions and none
        has another replica.
        """
        ...
