"""The ways to take records out of a consumer besides `poll`: one by one, and as columns."""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self, TypeVar

from odradek.client.consumer.fetched import FetchedData
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.membership_driver import MembershipDriver
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.lifecycle import AsyncClient
from odradek.errors import ApiError
from odradek.records.codec import ConsumerRecord
from odradek.records.columns import ColumnBuilder, Columns

__all__ = ["PartitionColumns", "Reading"]

T = TypeVar("T")

# How long one step of an iteration waits before it looks whether the consumer has duties.
_STEP_S: Final = 1.0


class PartitionColumns(NamedTuple):
    """Records of one partition, in order of their offsets."""

    topic: str
    partition: int
    columns: Columns


class Reading(AsyncClient):
    """See the module's docstring; what a consumer has, `poll` included, is the subclass's."""

    _fetcher: Fetcher
    _metrics: ConsumerMetrics
    _group: MembershipDriver | None
    request_fetches: Callable[[], None]

    @abstractmethod
    async def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """See `Consumer.poll`."""

    @abstractmethod
    async def _poll(self, timeout: float | None, take: Callable[[], T], nothing: T) -> T:
        """Waits until `take` returns something, and does the duties of every poll."""

    @abstractmethod
    def _now_ms(self) -> int:
        """The time of the clock that only counts on."""

    # One by one

    def __aiter__(self) -> Self:
        """Iterates over records, without end; each step is a `poll` of one record.

        The position is always behind the last record of the iteration, so that a commit, automatic
        or not, leaves none out, however the loop ends. May be mixed with `poll`.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for it. Raises as `poll`."""
        while not (records := await self.poll(_STEP_S, max_records=1)):
            pass
        return records[0]

    # As columns

    async def poll_arrow(
        self, timeout: float | None = 1.0, *, max_bytes: int = 8 << 20, headers: bool = False
    ) -> list[Any]:
        """Records as `pyarrow.RecordBatch`es, one partition each, in order of their offsets.

        `max.poll.records`, deserializers and interceptors do not apply; everything else is as
        with `poll`, and both may be mixed.

        Args:
            max_bytes: Stop at so many encoded bytes; a first batch is returned whole.
            headers: Whether to add a column of headers.

        Raises:
            ImportError: Pyarrow is not installed.
        """
        return await self._poll(
            timeout, lambda: self.take_arrow_nowait(max_bytes=max_bytes, headers=headers), []
        )

    async def poll_columns(
        self, timeout: float | None = 1.0, *, max_bytes: int = 8 << 20
    ) -> list[PartitionColumns]:
        """Records as the columns of `odradek.records.columns`; as `poll_arrow`, without pyarrow."""
        return await self._poll(timeout, lambda: self.take_columns_nowait(max_bytes=max_bytes), [])

    def take_arrow_nowait(self, *, max_bytes: int, headers: bool) -> list[Any]:
        """Buffered record batches.

        For the blocking face, from its own thread, while no other call is under way.
        """
        # Imported here, because pyarrow need not be installed.
        from odradek.client.arrow import batch_of_columns

        return [
            batch_of_columns(one.topic, one.partition, one.columns, headers=headers)
            for one in self.take_columns_nowait(max_bytes=max_bytes)
        ]

    def take_columns_nowait(self, *, max_bytes: int) -> list[PartitionColumns]:
        """Buffered records as columns; as `take_arrow_nowait`."""
        try:
            taken = _take_columns(self._fetcher, max_bytes)
        finally:
            self.request_fetches()
        self._metrics.on_poll(self._now_ms(), sum(one.columns.count for one in taken))
        if self._group is not None:
            self._group.note_poll()
        return taken


def _take_columns(fetcher: Fetcher, max_bytes: int) -> list[PartitionColumns]:
    """Columns of one partition each, until they have so many encoded bytes.

    Raises:
        ApiError: Bad bytes, if nothing comes before them; the partition is fetched again.
    """
    taken: list[PartitionColumns] = []
    left = max_bytes
    while left > 0 and (data := fetcher.begin_columns()) is not None:
        tp = data.state.tp
        builder = ColumnBuilder()
        try:
            left -= _fill(builder, data, left)
        except ApiError:
            if not builder.count:
                if taken:
                    break
                fetcher.drop(data)
                raise
        if builder.count:
            taken.append(PartitionColumns(tp.topic, tp.partition, builder.finish()))
        if data.is_drained:
            fetcher.finish_columns()
    return taken


def _fill(builder: ColumnBuilder, data: FetchedData, max_bytes: int) -> int:
    """Takes the rest of a batch that `poll` has begun, or whole batches; returns their bytes."""
    if not data.rest_count:
        return data.take_columns(builder, max_bytes)
    builder.add_records(data.take(data.rest_count))
    return builder.byte_count
