"""Bounds of reading, as options give them: an end of the log, offsets, or a time. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.model import TopicPartition
from odradek.protocol.enums import EARLIEST, LATEST
from odradek.spark.datasource.offsets import parse_plain

__all__ = ["AT_EARLIEST", "AT_LATEST", "Bound", "BoundKind", "parse_offsets", "parse_timestamps"]


class BoundKind(Enum):
    """The kinds of bounds."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"  # One for all partitions.
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """See the module's docstring."""

    kind: BoundKind
    # Offsets (-2 the earliest, -1 the latest) or milliseconds, by partition.
    numbers: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int = 0
    # The option that gave it, for messages.
    option: str = ""

    def queries(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The queries to brokers: a time, or the number that means an end of the log.

        Raises:
            ValueError: The bound names partitions, and not exactly these.
        """
        wanted = list(partitions)
        self._check_named(wanted)
        match self.kind:
            case BoundKind.EARLIEST:
                return dict.fromkeys(wanted, EARLIEST)
            case BoundKind.LATEST:
                return dict.fromkeys(wanted, LATEST)
            case BoundKind.TIMESTAMP:
                return dict.fromkeys(wanted, self.timestamp_ms)
            case BoundKind.TIMESTAMPS:
                return {tp: self.numbers[tp] for tp in wanted}
            case BoundKind.OFFSETS:
                return {tp: self.numbers[tp] for tp in wanted if self.numbers[tp] < 0}

    def fixed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that are known without asking brokers."""
        if self.kind is not BoundKind.OFFSETS:
            return {}
        return {tp: self.numbers[tp] for tp in partitions if self.numbers[tp] >= 0}

    def _check_named(self, wanted: list[TopicPartition]) -> None:
        if self.kind not in (BoundKind.OFFSETS, BoundKind.TIMESTAMPS):
            return
        missing = sorted(set(wanted) - set(self.numbers))
        surplus = sorted(set(self.numbers) - set(wanted))
        if missing or surplus:
            said = [
                f"{word} {', '.join(map(str, named[:20]))}"
                for word, named in (("without", missing), ("unexpected", surplus))
                if named
            ]
            raise ValueError(
                f"{self.option} must name every partition that is read, and no other: "
                + "; ".join(said)
            )


AT_EARLIEST: Final = Bound(kind=BoundKind.EARLIEST)
AT_LATEST: Final = Bound(kind=BoundKind.LATEST)


def parse_offsets(text: str, option: str) -> Bound:
    """Reads `earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}`.

    Raises:
        ValueError: It is none of them.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(kind=BoundKind(word), option=option)
    numbers = parse_plain(_parse_json(text), lowest=EARLIEST)
    return Bound(kind=BoundKind.OFFSETS, numbers=numbers, option=option)


def parse_timestamps(text: str, option: str) -> Bound:
    """Reads `{"topic": {"0": 1700000000000}}`, in milliseconds.

    Raises:
        ValueError: It has another form.
    """
    numbers = parse_plain(_parse_json(text), lowest=0)
    return Bound(kind=BoundKind.TIMESTAMPS, numbers=numbers, option=option)


def _parse_json(text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except ValueError:
        raise ValueError(
            f'expected earliest, latest or JSON such as {{"topic": {{"0": 23}}}}, found {text!r}'
        ) from None
    return parsed
