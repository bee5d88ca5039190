"""Messages collected in lists, and these as the columns that `Producer.send_rows` takes."""

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain, compress, cycle, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.records.rows import BinaryInput, HeadersInput, NumberInput, Rows

__all__ = ["Headers", "MessageColumns"]

Headers = Sequence[tuple[bytes, bytes | None]]


class MessageColumns:
    """Some messages, column by column; `add` one, or fill the lists, which are equally long."""

    __slots__ = ("headers", "keys", "partitions", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.timestamps: list[int | None] = []  # None, or less than 0: now.
        self.partitions: list[int | None] = []  # None: chosen by the key, or in turn.

    def __len__(self) -> int:
        return len(self.values)

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int | None,
        partition: int | None,
    ) -> None:
        """Adds a message."""
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.timestamps.append(timestamp)
        self.partitions.append(partition)

    @classmethod
    def of(
        cls,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> "MessageColumns":
        """Messages that differ in value and key only."""
        made = cls()
        count = len(values)
        made.values = list(values)
        made.keys = [None] * count if keys is None else list(keys)
        made.headers = [headers] * count
        made.timestamps = [timestamp] * count
        made.partitions = [partition] * count
        return made

    def cut(self, count: int) -> "MessageColumns":
        """The first messages."""
        made = MessageColumns()
        for name in self.__slots__:
            setattr(made, name, getattr(self, name)[:count])
        return made

    def spread(self, partition_count: int, turn: int) -> int:
        """Gives messages without key and partition a partition each, in turn; returns the next."""
        if self.partitions.count(None) != len(self) or self.keys.count(None) != len(self):
            is_free = [
                key is None and partition is None
                for key, partition in zip(self.keys, self.partitions, strict=True)
            ]
            places = list(compress(range(len(self)), is_free))
            for step, place in enumerate(places):
                self.partitions[place] = (turn + step) % partition_count
            return (turn + len(places)) % partition_count
        numbers = chain(range(turn, partition_count), cycle(range(partition_count)))
        self.partitions[:] = islice(numbers, len(self))
        return (turn + len(self)) % partition_count

    def rows(self, now_ms: int) -> "tuple[Rows, NumberInput | None]":
        """The rows, and their partitions if any is given.

        Args:
            now_ms: The timestamp of messages that have none.
        """
        from odradek.records.rows import Rows

        count = len(self)
        timestamps = None
        if self.timestamps.count(None) != count:
            timestamps = _numbers(
                "q", [now_ms if one is None or one < 0 else one for one in self.timestamps]
            )
        rows = Rows(
            count,
            key=None if self.keys.count(None) == count else _binary(self.keys),
            value=_binary(self.values),
            headers=_headers(self.headers) if any(self.headers) else None,
            timestamps=timestamps,
            timestamp=now_ms,
        )
        partitions = None
        if self.partitions.count(None) != count:
            validity = _validity(self.partitions) if None in self.partitions else None
            partitions = _numbers("i", [one or 0 for one in self.partitions], validity)
        return rows, partitions


def _numbers(code: str, numbers: Sequence[int], validity: bytes | None = None) -> "NumberInput":
    from odradek.records.rows import NumberInput

    return NumberInput(0, validity, memoryview(array(code, numbers)).cast("B"))


def _validity(column: Sequence[object]) -> bytes:
    """A bit per entry, 0 for None; all of them in one number."""
    digits = "".join(["0" if one is None else "1" for one in reversed(column)])
    return int(digits, 2).to_bytes((len(column) + 7) // 8, "little")


def _binary(column: Sequence[bytes | None]) -> "BinaryInput":
    from odradek.records.rows import BinaryInput

    validity = None
    if None in column:
        validity = _validity(column)
        column = [one or b"" for one in column]
    offsets = array("i", accumulate(map(len, column), initial=0))  # type: ignore[arg-type]  # None is gone
    return BinaryInput(0, validity, memoryview(offsets).cast("B"), b"".join(column))  # type: ignore[arg-type]


def _headers(column: Sequence[Headers]) -> "HeadersInput":
    from odradek.records.rows import HeadersInput

    offsets = array("i", accumulate(map(len, column), initial=0))
    pairs = [pair for headers in column for pair in headers]
    return HeadersInput(
        0,
        None,
        memoryview(offsets).cast("B"),
        len(pairs),
        _binary([name for name, _ in pairs]),
        _binary([content for _, content in pairs]),
    )
