"""`odradek offsets`: the ends of partitions, and the offsets at a time."""

import argparse
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    report_errors,
    run_with_admin,
)
from odradek.cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek.client import FoundOffset
    from odradek.client.admin.admin import Admin
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Shows the first offset of partitions and the one that the next message will have. OFFSETS, their
distance, is the number of messages, unless some were compacted away or ended transactions.

With --at, shows the first offset at or after a time, and the time of its message. `max-timestamp`
is the message with the latest time, which need not be the last one.
"""
_PLACES = {"latest": -1, "earliest": -2, "max-timestamp": -3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = (
        "examples:\n"
        "  odradek offsets orders\n"
        "  odradek offsets orders:0,1 --at 2026-01-31T12:00:00Z\n"
        "  odradek offsets orders --at 1h                # an hour ago"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "places", nargs="*", metavar="TOPIC[:N,N…]", help="default: all but internal topics"
    )
    parser.add_argument(
        "--at",
        type=_place,
        metavar="TIME",
        help="earliest, latest, max-timestamp, a time such as 2026-01-31T12:00:00Z, or a duration "
        "before now such as 1h",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: the end is before the first open transaction "
        "(default: read_uncommitted)",
    )
    add_json_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Shows the offsets; returns 1 if a partition could not be asked."""
    return run_with_admin("offsets", arguments, lambda admin: _show(admin, arguments))


async def _show(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    partitions = await _partitions(admin, arguments)
    asked = (
        [_PLACES["earliest"], _PLACES["latest"]] if arguments.at is None else [_moment(arguments)]
    )
    answers = [await _list(admin, arguments, partitions, timestamp) for timestamp in asked]
    rows: list[tuple[object, ...]] = []
    errors: list[ApiError] = []
    for tp in partitions:
        found = [answer[tp] for answer in answers]
        offsets = [one for one in found if not isinstance(one, ApiError)]
        if len(offsets) < len(found):
            errors += [one for one in found if isinstance(one, ApiError)][:1]
            continue
        if arguments.at is None:
            first, last = offsets[0].offset, offsets[1].offset
            rows.append((tp.topic, tp.partition, first, last, last - first))
        else:
            rows.append((tp.topic, tp.partition, *_found(offsets[0])))
    if arguments.at is None:
        headings = ("TOPIC", "PARTITION", "EARLIEST", "LATEST", "OFFSETS")
    else:
        headings = ("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "TIME")
    if arguments.json:
        names = [heading.lower() for heading in headings]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        shown = [tuple("-" if value is None else value for value in row) for row in rows]
        print_table(headings, shown, nothing="no partitions")
    return report_errors("offsets", errors)


def _found(one: "FoundOffset") -> tuple[int | None, int | None, str | None]:
    from odradek.cli.inspection.times import time_text

    if one.offset < 0:
        return None, None, None
    if one.timestamp_ms < 0:  # An end of the partition is no message.
        return one.offset, None, None
    return one.offset, one.timestamp_ms, time_text(one.timestamp_ms)


async def _list(
    admin: "Admin",
    arguments: argparse.Namespace,
    partitions: "list[TopicPartition]",
    timestamp: int,
) -> "dict[TopicPartition, FoundOffset | ApiError]":
    from odradek.protocol.enums import IsolationLevel

    if not partitions:
        return {}
    level = IsolationLevel[arguments.isolation_level.upper()]
    return await admin.list_offsets(dict.fromkeys(partitions, timestamp), isolation_level=level)


async def _partitions(admin: "Admin", arguments: argparse.Namespace) -> "list[TopicPartition]":
    from odradek.cli.group_offsets import parse_places
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

    if arguments.places:
        return await parse_places(admin, arguments.places, option="")
    return [
        TopicPartition(topic.name, one.partition)
        for topic in (await admin.describe_topics()).values()
        if not isinstance(topic, ApiError) and not topic.is_internal
        for one in topic.partitions
    ]


def _moment(arguments: argparse.Namespace) -> int:
    """The time to ask for, or the negative number of a place."""
    from odradek.cli.inspection.times import parse_duration_ms, parse_time_ms
    from odradek.clock import SystemClock

    text: str = arguments.at
    if text in _PLACES:
        return _PLACES[text]
    try:
        return max(SystemClock().now_ms() - parse_duration_ms(text), 0)
    except ValueError:
        pass
    try:
        return parse_time_ms(text)
    except ValueError as error:  # It was read once already, by `_place`.
        raise CommandError(f"--at: {error}") from None


def _place(text: str) -> str:
    """Refuses what `_moment` could not read, before anything is contacted."""
    if text in _PLACES:
        return text
    from odradek.cli.inspection.times import parse_duration_ms, parse_time_ms

    for parse in (parse_duration_ms, parse_time_ms):
        try:
            parse(text)
        except ValueError:
            continue
        return text
    raise argparse.ArgumentTypeError(
        f"expected earliest, latest, max-timestamp, a time such as 2026-01-31T12:00:00Z or a "
        f"duration such as 1h, found {text!r}"
    )
