"""Transaction markers, appended to the partitions that this broker leads.

The transaction coordinator of this broker and those of others (WriteTxnMarkers) use the same
object. A marker is one control batch per partition, appended like any other batch of a coordinator:
its result is known when it is on every replica in sync. The offsets that its transaction has
committed to groups are settled then, before the result is told (spec 10, section 9.7).

A coordinator that gets no answer sends its marker again, so a log may contain it twice: the second
one ends nothing.

Work grows with the number of markers and partitions, so it is done in portions, with other tasks of
the loop in between.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from odradek.clock import PreciseClock
from odradek.coordinator.group.partition_load import OFFSETS_TOPIC
from odradek.errors import ErrorCode
from odradek.model import TopicPartition, TransactionMarker
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from odradek.replication import ProduceResult, ReplicaManager
from odradek.tasks import Tasks

__all__ = ["LocalMarkers", "MarkerResults", "StagedOffsets"]

# The outcome of each marker, in their order.
MarkerResults: TypeAlias = list[dict[TopicPartition, ErrorCode]]

# How long a marker waits for the other replicas; its coordinator sends it again.
_TIMEOUT_MS: Final = 30_000
# Partitions of a portion: some thirty microseconds each.
_APPENDED_AT_ONCE: Final = 20
_SLICE_NS: Final = 1_000_000


class StagedOffsets(Protocol):
    """The offsets that transactions have committed to groups; `GroupCoordinator`."""

    def end_transaction(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        """Stores or drops the offsets that a producer has staged in an offsets partition."""
        ...


class LocalMarkers:
    """Appends markers to local leaders.

    Args:
        replicas: The partitions.
        staged: Settles the offsets of transactions.
        clock: The time in the markers, and of slices.
        tasks: Lets other tasks run.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        staged: StagedOffsets,
        *,
        clock: PreciseClock,
        tasks: Tasks,
    ) -> None:
        self._replicas = replicas
        self._appends = replicas.appends
        self._staged = staged
        self._clock = clock
        self._tasks = tasks

    async def write(self, markers: Sequence[TransactionMarker]) -> MarkerResults:
        """Appends the markers; returns when each is on every replica in sync, or has failed.

        The errors are those of a leader's append: 3, 6, 7, 19, 20 or 56, after which the marker may
        be sent again; 47 or 52 if a newer producer or coordinator has written to the partition; 42
        for a marker that no coordinator makes.
        """
        written: asyncio.Future[MarkerResults] = asyncio.get_running_loop().create_future()

        def respond(results: MarkerResults) -> None:
            if not written.done():
                written.set_result(results)

        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        for _ in self.steps(markers, respond):
            if self._clock.monotonic_ns() >= slice_end_ns:
                await self._tasks.sleep(0)
                slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        return await written

    def try_write(self, marker: TransactionMarker) -> dict[TopicPartition, ErrorCode] | None:
        """Appends one marker at once, to partitions without other replicas.

        Returns None, and appends nothing, if one of its partitions is not led here, or may have a
        replica to wait for.
        """
        if not _is_valid(marker):
            return None
        for tp in marker.partitions:
            partition = self._replicas.find_online(tp.topic, tp.partition)
            if partition is None or partition.has_followers or not partition.is_leader:
                return None
        appended = self._appends.append_markers_unreplicated(
            marker.partitions,
            self._batch(marker),
            transaction_version=marker.transaction_version,
        )
        return self._settle(marker, appended)

    def _settle(
        self, marker: TransactionMarker, appended: Mapping[TopicPartition, ProduceResult]
    ) -> dict[TopicPartition, ErrorCode]:
        """Settles the offsets that markers in the log have decided; returns the errors."""
        errors = {}
        for tp, (error, *_) in appended.items():
            errors[tp] = error
            if error is ErrorCode.NONE and tp.topic == OFFSETS_TOPIC:
                self._staged.end_transaction(
                    tp.partition, marker.producer_id, is_commit=marker.is_commit
                )
        return errors

    def steps(
        self, markers: Sequence[TransactionMarker], respond: Callable[[MarkerResults], None]
    ) -> Iterator[None]:
        """As `write`, in small steps; `respond` is called once, perhaps after the last step."""
        results: MarkerResults = [{} for _ in markers]
        open_count = 1  # Portions without a result; one more until the last is appended.

        def end_portion() -> None:
            nonlocal open_count
            open_count -= 1
            if not open_count:
                respond(results)

        for marker, result in zip(markers, results, strict=True):
            yield
            # A partition that is named twice is written once.
            partitions = tuple(dict.fromkeys(marker.partitions))
            if not _is_valid(marker):
                result.update(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
                continue
            batch = self._batch(marker) if partitions else b""
            for start in range(0, len(partitions), _APPENDED_AT_ONCE):
                open_count += 1
                portion = partitions[start : start + _APPENDED_AT_ONCE]
                self._append(marker, batch, portion, result, end_portion)
                yield
        end_portion()

    def _batch(self, marker: TransactionMarker) -> bytes:
        control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        return bytes(
            build_end_transaction_marker(
                EndTransactionMarker(control_type, marker.coordinator_epoch),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                timestamp_ms=self._clock.now_ms(),
            )
        )

    def _append(
        self,
        marker: TransactionMarker,
        batch: bytes,
        partitions: Sequence[TopicPartition],
        result: dict[TopicPartition, ErrorCode],
        end_portion: Callable[[], None],
    ) -> None:
        def respond(appended: Mapping[TopicPartition, ProduceResult]) -> None:
            result.update(self._settle(marker, appended))
            end_portion()

        self._appends.append_markers(
            partitions,
            batch,
            transaction_version=marker.transaction_version,
            timeout_ms=_TIMEOUT_MS,
            respond=respond,
        )


def _is_valid(marker: TransactionMarker) -> bool:
    """Whether it has ids and epochs that a log can store and compare."""
    return (
        marker.producer_id >= 0
        and marker.producer_epoch >= 0
        and marker.coordinator_epoch >= 0
        and marker.transaction_version >= 0
    )
