"""Computes the offsets that `odradek groups reset-offsets` sets."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.cli.connecting import CommandError, find_topic

if TYPE_CHECKING:
    from odradek.client import FoundOffset
    from odradek.client.admin.admin import Admin
    from odradek.model import TopicPartition

__all__ = ["Move", "TargetOptions", "move_offsets", "parse_places"]


class Move(NamedTuple):
    """The change of one partition's offset."""

    tp: "TopicPartition"
    before: int | None  # None: nothing was committed.
    after: int


class TargetOptions:
    """The options that choose the new offsets."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declares the options; one must be given."""
        place = parser.add_mutually_exclusive_group(required=True)
        place.add_argument("--to-earliest", action="store_true", help="to the first message")
        place.add_argument("--to-latest", action="store_true", help="to the end")
        place.add_argument("--to-offset", type=_offset, metavar="N", help="to an offset")
        place.add_argument("--shift-by", type=int, metavar="N", help="by N offsets; negative: back")
        place.add_argument(
            "--to-datetime",
            type=_time_ms,
            metavar="TIME",
            help="to the first message at or after a time, 2026-01-31T12:00:00Z",
        )
        place.add_argument(
            "--by-duration",
            type=_duration_ms,
            metavar="DURATION",
            help="to the first message of the last 1h, 1d12h, PT1H, …",
        )


async def parse_places(
    admin: "Admin", topics: Sequence[str], *, option: str = "--topic "
) -> "list[TopicPartition]":
    """Reads `TOPIC` and `TOPIC:0,1`, the values of an option or, if that is empty, arguments.

    Raises:
        CommandError: A topic or a partition does not exist.
    """
    from odradek.model import TopicPartition

    partitions = []
    for text in topics:
        name, colon, listed = text.partition(":")
        topic = await find_topic(admin, name)
        numbers: Sequence[int] = range(len(topic.partitions))
        if colon:
            try:
                numbers = [int(number) for number in listed.split(",")]
            except ValueError:
                raise CommandError(f"{option}{text}: expected TOPIC or TOPIC:0,1") from None
        for number in numbers:
            if not 0 <= number < len(topic.partitions):
                raise CommandError(
                    f"{option}{text}: topic {name!r} has partitions 0 to "
                    f"{len(topic.partitions) - 1}"
                )
            partitions.append(TopicPartition(name, number))
    return partitions


async def move_offsets(admin: "Admin", arguments: argparse.Namespace) -> list[Move]:
    """Computes the moves that the options ask for; changes nothing.

    Raises:
        CommandError: The group has no offsets, or none for a partition to shift.
        ApiError: Offsets cannot be looked up.
    """
    from odradek.client import EARLIEST, LATEST
    from odradek.clock import SystemClock
    from odradek.errors import ApiError

    committed = (await admin.list_group_offsets([arguments.group]))[arguments.group]
    if isinstance(committed, ApiError):
        raise committed
    if arguments.topic:
        partitions = await parse_places(admin, arguments.topic)
    else:
        partitions = sorted(committed)
    if not partitions:
        raise CommandError(f"group {arguments.group!r} has no offsets; name topics with --topic")
    starts = await _offsets(admin, partitions, EARLIEST)
    ends = await _offsets(admin, partitions, LATEST)
    times = None
    if arguments.to_datetime is not None or arguments.by_duration is not None:
        at_ms = arguments.to_datetime
        if at_ms is None:
            at_ms = max(SystemClock().now_ms() - arguments.by_duration, 0)
        times = await _offsets(admin, partitions, at_ms)
    moves = []
    for tp in partitions:
        before = committed[tp].offset if tp in committed else None
        if arguments.to_earliest:
            after = starts[tp].offset
        elif arguments.to_latest:
            after = ends[tp].offset
        elif arguments.to_offset is not None:
            after = arguments.to_offset
        elif times is not None:
            after = times[tp].offset if times[tp].offset >= 0 else ends[tp].offset
        else:
            if before is None:
                raise CommandError(f"--shift-by: nothing is committed for {tp}")
            after = before + arguments.shift_by
        after = min(max(after, starts[tp].offset), ends[tp].offset)
        moves.append(Move(tp, before, after))
    return moves


async def _offsets(
    admin: "Admin", partitions: "Sequence[TopicPartition]", timestamp: int
) -> "dict[TopicPartition, FoundOffset]":
    from odradek.errors import ApiError

    offsets = {}
    for tp, one in (await admin.list_offsets(dict.fromkeys(partitions, timestamp))).items():
        if isinstance(one, ApiError):
            raise one
        offsets[tp] = one
    return offsets


def _offset(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not an offset: expected 0 or more")
    return int(text)


def _time_ms(text: str) -> int:
    from odradek.cli.inspection.times import parse_time_ms

    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _duration_ms(text: str) -> int:
    from odradek.cli.inspection.times import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
