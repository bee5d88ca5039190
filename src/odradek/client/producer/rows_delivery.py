"""Deliveries of tables: one handle and one outcome for all rows."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from odradek.client.producer.delivery import Outcome, OutcomeOwner
from odradek.errors import OdradekError

__all__ = ["OffsetRange", "RowsDelivery", "RowsMetadata", "Share"]


class OffsetRange(NamedTuple):
    """Rows that lie one after the other in a partition."""

    topic: str
    partition: int
    base_offset: int  # -1 if unknown: acks=0, or the broker had them from an earlier attempt.
    record_count: int


class RowsMetadata(NamedTuple):
    """The places of the rows of a table in their logs."""

    record_count: int
    # By topic and partition, and in order within one. Records of others may lie between two ranges.
    ranges: tuple[OffsetRange, ...]


class Share(NamedTuple):
    """Some records of a batch."""

    batch: Outcome
    first: int
    record_count: int


class RowsDelivery:
    """The delivery of rows: ask `result`, await it, or ignore it.

    Made by `Producer.send_arrow`. It is done when every row has arrived or failed. The
    producer's `on_error` is called for a failure that is not asked for.
    """

    def __init__(self, owner: OutcomeOwner, shares: Sequence[Share]) -> None:
        self._shares = shares
        self.record_count = sum(share.record_count for share in shares)
        self._outcome = _RowsOutcome(owner, self.record_count)
        batches = dict.fromkeys(share.batch for share in shares)
        self._left = len(batches)
        for batch in batches:
            batch.when_done(self._on_batch)
        if not batches:
            self._outcome.finish()

    def done(self) -> bool:
        """Whether every row has arrived or failed."""
        return self._outcome.is_done

    def result(self, timeout: float | None = None) -> RowsMetadata:
        """Waits for the rows and returns their places.

        Args:
            timeout: Seconds; None waits as long as the producer tries (`delivery.timeout.ms`).

        Raises:
            OdradekError: The reason why some of them failed; others may have arrived.
            TimeoutError: Some have no outcome yet.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return RowsMetadata(self.record_count, self._ranges())

    def exception(self, timeout: float | None = None) -> OdradekError | None:
        """Waits for the rows and returns the first failure; None if there is none.

        Raises:
            TimeoutError: Some have no outcome yet.
        """
        if not self._outcome.is_done:
            self._outcome.wait(timeout)
        return self._outcome.error

    def add_done_callback(self, callback: "Callable[[RowsDelivery], object]") -> None:
        """Calls back with this delivery when it is done, on the producer's own thread.

        At once, and on this thread, if it is done already. Exceptions of the callback are logged.
        """
        self._outcome.when_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, RowsMetadata]:
        yield from self._outcome.awaited()
        return self.result()

    def __repr__(self) -> str:
        if not self.done():
            return f"<RowsDelivery of {self.record_count} rows: on their way>"
        error = self._outcome.error
        state = "arrived" if error is None else f"failed: {error}"
        return f"<RowsDelivery of {self.record_count} rows: {state}>"

    def _on_batch(self) -> None:
        # On the loop, or right away on the thread of `send_arrow`.
        with self._outcome.owner.lock:
            self._left -= 1
            if self._left:
                return
        errors = (one.error for one, _, _ in self._parts())
        self._outcome.finish(error=next(filter(None, errors), None))

    def _parts(self) -> "Generator[tuple[Outcome, int, int], None, None]":
        for share in self._shares:
            yield from share.batch.halves_of(share.first, share.record_count)

    def _ranges(self) -> tuple[OffsetRange, ...]:
        found: dict[tuple[str, int], list[OffsetRange]] = {}
        for outcome, first, count in self._parts():
            ranges = found.setdefault((outcome.topic, outcome.partition), [])
            base = outcome.base_offset + first if outcome.base_offset >= 0 else -1
            last = ranges[-1] if ranges else None
            if last is not None and base == _behind(last):
                ranges[-1] = last._replace(record_count=last.record_count + count)
            else:
                ranges.append(OffsetRange(outcome.topic, outcome.partition, base, count))
        return tuple(one for place in sorted(found) for one in found[place])


def _behind(rows: OffsetRange) -> int:
    """The offset behind them; -1 if they have none."""
    return rows.base_offset + rows.record_count if rows.base_offset >= 0 else -1


class _RowsOutcome(Outcome):
    """Whether all rows of a table were written."""

    __slots__ = ("_record_count",)

    def __init__(self, owner: OutcomeOwner, record_count: int) -> None:
        super().__init__(owner, "", -1)
        self._record_count = record_count

    @property
    def what(self) -> str:
        return f"{self._record_count} rows"
