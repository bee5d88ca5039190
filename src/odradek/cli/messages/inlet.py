"""What `consume` reads: which partitions, from where, up to where; as a group or without one.

Without a group, positions are looked up once, before the first message. In a group the coordinator
gives the partitions: the time of silence (`--timeout`) counts from the assignment on, for a group
may take seconds to form; one that is not joined in time is an error.

An end is an offset for each partition: that of the log when reading began, or of the first message
at or after a time. A partition that has reached it is paused; when all have, `is_done`.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.cli.connecting import CommandError, is_there
from odradek.cli.output import print_error

if TYPE_CHECKING:
    from odradek.client.consumer.consumer import Consumer
    from odradek.model import TopicPartition
    from odradek.records.codec import ConsumerRecord

__all__ = ["Inlet"]

_INTERNAL_PREFIX: Final = "__"


class Inlet:
    """See the module's docstring.

    Args:
        arguments: Of `consume`.
        now_ms: From which times such as `1h` count.
    """

    def __init__(self, consumer: "Consumer", arguments: argparse.Namespace, *, now_ms: int) -> None:
        self._consumer = consumer
        self._arguments = arguments
        self._now_ms = now_ms
        self._has_end = arguments.exit_at_end or arguments.to is not None
        self._ends: dict[TopicPartition, int] = {}
        self._finished: set[TopicPartition] = set()
        self.is_assigned = False

    async def open(self) -> None:
        """Subscribes or assigns.

        Raises:
            CommandError: A topic or partition does not exist.
            ApiError: The cluster refuses to tell.
        """
        arguments, consumer = self._arguments, self._consumer
        if arguments.group is not None:
            for topic in arguments.topics:
                await is_there(topic, consumer.partitions_for(topic))
            wanted = (
                arguments.topics if arguments.pattern is None else re.compile(arguments.pattern)
            )
            await consumer.subscribe(wanted, listener=self)
            return
        partitions = await self._partitions()
        positions = await self._positions(partitions)
        await consumer.assign(partitions)
        for tp, offset in positions.items():
            await consumer.seek(tp, offset)
        self.is_assigned = True

    # The group, as a `RebalanceListener`

    def on_partitions_assigned(self, partitions: "Sequence[TopicPartition]") -> None:  # noqa: ARG002
        """Notes that the group is joined, even if it has no partition for this member."""
        self.is_assigned = True

    def on_partitions_revoked(self, partitions: "Sequence[TopicPartition]") -> None:
        """Forgets the ends: another member may read on before the partitions come back."""
        self.is_assigned = False  # Until the next assignment: no partition is not the end of all.
        for tp in partitions:
            self._ends.pop(tp, None)
            self._finished.discard(tp)

    def on_partitions_lost(self, partitions: "Sequence[TopicPartition]") -> None:
        """The same."""
        self.on_partitions_revoked(partitions)

    # The start

    async def _partitions(self) -> "list[TopicPartition]":
        from odradek.model import TopicPartition

        partitions: list[TopicPartition] = []
        for topic in await self._topics():
            told = await is_there(topic, self._consumer.partitions_for(topic))
            count = len(told)
            chosen = self._arguments.partition
            numbers = range(count) if chosen is None else sorted(set(chosen))
            for number in numbers:
                if not 0 <= number < count:
                    raise CommandError(
                        f"--partition {number}: topic {topic!r} has partitions 0 to {count - 1}"
                    )
            partitions += [TopicPartition(topic, number) for number in numbers]
        return partitions

    async def _topics(self) -> Sequence[str]:
        text = self._arguments.pattern
        if text is None:
            return list(dict.fromkeys(self._arguments.topics))
        pattern = re.compile(text)
        names = [
            name
            for name in await self._consumer.topics()
            if pattern.fullmatch(name)
            and (not name.startswith(_INTERNAL_PREFIX) or text.startswith(_INTERNAL_PREFIX))
        ]
        if not names:
            raise CommandError(
                f"--pattern {text}: no topic matches it as a whole; `odradek topics list` shows all"
            )
        return names

    async def _positions(
        self, partitions: "list[TopicPartition]"
    ) -> "Mapping[TopicPartition, int]":
        arguments, consumer = self._arguments, self._consumer
        if arguments.since is not None:
            return await self._offsets_at(partitions, arguments.since(self._now_ms))
        place = "earliest" if arguments.from_beginning else arguments.offset or "latest"
        if place == "earliest":
            return await consumer.beginning_offsets(partitions)
        if place == "latest":
            return await consumer.end_offsets(partitions)
        number = int(place)
        if not place.startswith("-") and arguments.partition is not None:
            return dict.fromkeys(partitions, number)
        starts = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        if place.startswith("-"):
            return {tp: max(starts[tp], ends[tp] + number) for tp in partitions}
        # Partitions have different lengths: those that do not have the offset begin at an end.
        return {tp: min(max(starts[tp], number), ends[tp]) for tp in partitions}

    async def _offsets_at(
        self, partitions: "Iterable[TopicPartition]", time_ms: int
    ) -> "dict[TopicPartition, int]":
        """The first message at or after a time; the end if there is none."""
        tps = list(partitions)
        found = await self._consumer.offsets_for_times(dict.fromkeys(tps, time_ms))
        ends = await self._consumer.end_offsets([tp for tp in tps if found[tp] is None])
        return {tp: ends[tp] if one is None else one.offset for tp, one in found.items()}

    # The end

    async def cut(self, records: "list[ConsumerRecord]") -> "list[ConsumerRecord]":
        """The messages before the end; pauses partitions that have reached it."""
        if not self._has_end or not self.is_assigned:
            return records
        await self._look_up_ends()
        consumer, ends = self._consumer, self._ends
        reached = {
            tp: position
            for tp in sorted(consumer.assignment() - self._finished)
            if (position := await consumer.position(tp)) >= ends[tp]
        }
        for tp, position in reached.items():
            if position > ends[tp]:
                records = [
                    one
                    for one in records
                    if one.offset < ends[tp] or (one.topic, one.partition) != tp
                ]
                # So that a group commits no further than what is printed.
                await consumer.seek(tp, ends[tp])
        await consumer.pause(reached)
        self._finished.update(reached)
        return records

    async def _look_up_ends(self) -> None:
        unknown = sorted(self._consumer.assignment() - self._ends.keys())
        if not unknown:
            return
        ends = await self._consumer.end_offsets(unknown)
        if self._arguments.to is not None:
            times = await self._offsets_at(unknown, self._arguments.to(self._now_ms))
            ends = {tp: min(end, times[tp]) for tp, end in ends.items()}
        self._ends.update(ends)

    @property
    def is_done(self) -> bool:
        """Whether every partition has reached its end."""
        return self._has_end and self.is_assigned and self._finished >= self._consumer.assignment()

    async def go_on_at_start(self, offsets: "Mapping[TopicPartition, int]") -> None:
        """Moves positions below the log to its start; one above it is an error."""
        from odradek.errors import OffsetOutOfRangeError

        starts = await self._consumer.beginning_offsets(offsets)
        ends = await self._consumer.end_offsets(offsets)
        for tp, offset in offsets.items():
            if offset >= starts[tp]:
                raise OffsetOutOfRangeError(
                    f"{tp} has offsets {starts[tp]} to {ends[tp]}, {offset} is out of range"
                )
            print_error(
                "consume",
                f"{tp}: {starts[tp] - offset} offsets are deleted already, "
                f"continuing at {starts[tp]}",
            )
            await self._consumer.seek(tp, starts[tp])


def first_offsets(records: "Iterable[ConsumerRecord]") -> dict[tuple[str, int], int]:
    """The first offset of each partition."""
    offsets: dict[tuple[str, int], int] = {}
    for record in records:
        offsets.setdefault((record.topic, record.partition), record.offset)
    return offsets
