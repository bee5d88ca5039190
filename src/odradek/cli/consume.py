"""`odradek consume`: prints the messages of a topic."""

import argparse
import logging
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    client_settings,
    is_there,
    reach,
    run_command,
)
from odradek.cli.messages import FORMATS, make_printer, parse_formatter
from odradek.cli.output import print_error
from odradek.cli.progress import Progress

if TYPE_CHECKING:
    from odradek.client.consumer.consumer import Consumer
    from odradek.model import TopicPartition
    from odradek.records.codec import ConsumerRecord

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Prints messages as they arrive, until --max-messages, --timeout or Ctrl-C. Without --from-beginning
or --offset it begins with the messages that arrive from now on. It belongs to no consumer group and
commits nothing, unless --group is given: then it begins at the group's offsets, and commits those
of the messages it printed. Messages of one partition are in order; between partitions there is no
order.
"""

_EXAMPLES = """\
examples:
  odradek consume orders --from-beginning --timeout 2
  odradek consume orders --partition 0 --offset -5     # the last five, then new ones
  odradek consume orders --partition 0 --offset 1200 --max-messages 1 --json
  odradek consume orders --group billing --from-beginning
  odradek consume __consumer_offsets --from-beginning --format offsets --timeout 2
"""

# Longest wait of one poll; after it --timeout is checked again.
_POLL_MS = 1_000
_MAX_RECORDS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("topic", metavar="TOPIC")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from-beginning",
        action="store_true",
        help="from the first message of the log",
    )
    start.add_argument(
        "--offset",
        type=_offset,
        metavar="OFFSET",
        help="from this offset; -N: the last N messages, fewer if offsets among them are gaps; "
        "earliest; latest (the default). -1 is the last message, not the end. Needs --partition",
    )
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="only this partition; may be repeated",
    )
    parser.add_argument("--group", metavar="GROUP", help="read as a member of a consumer group")
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed leaves out messages of open and aborted transactions "
        "(default: read_uncommitted)",
    )
    parser.add_argument(
        "--max-messages", type=_count, metavar="N", help="end after this many messages"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="end after SECONDS without a message",
    )
    _add_output_arguments(parser)
    add_connection_arguments(parser)
    parser.set_defaults(refuse=parser.error)


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="value",
        help="value: the bytes of the value and a line end (default); key-value: key, separator, "
        "value; json: an object per line, with all fields; offsets, group-metadata: the content of "
        "__consumer_offsets, as Kafka's formatters print it",
    )
    parser.add_argument(
        "--formatter",
        dest="format",
        type=parse_formatter,
        metavar="CLASS",
        help="offsets or group-metadata by the name of Kafka's class, in quotes; classes of "
        "kafka.coordinator.group.GroupMetadataManager print key::value",
    )
    parser.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="json",
        help="the same as --format json",
    )
    parser.add_argument(
        "--headers", action="store_true", help="print headers, too, before key and value"
    )
    parser.add_argument(
        "--key-separator",
        default="\t",
        metavar="TEXT",
        help="between headers, key and value (default: a tab)",
    )
    parser.add_argument(
        "--null-marker", default="null", metavar="TEXT", help="printed for null (default: null)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the messages."""
    if arguments.offset is not None and arguments.partition is None:
        arguments.refuse("--offset needs --partition: offsets differ between partitions")
    if arguments.group is not None and arguments.partition is not None:
        arguments.refuse("--partition cannot go with --group: the group assigns partitions")
    return run_command("consume", lambda: _consume(arguments), arguments)


async def _consume(arguments: argparse.Namespace) -> int:
    from odradek.client.consumer.consumer import Consumer

    logging.getLogger("odradek.client.consumer.fetcher").addHandler(_TroubleHandler())
    own: dict[str, object] = {
        "isolation.level": arguments.isolation_level,
        "enable.auto.commit": arguments.group is not None,
        "allow.auto.create.topics": False,
        "group.id": arguments.group,
        "max.poll.records": min(max(arguments.max_messages or _MAX_RECORDS, 1), _MAX_RECORDS),
        # Without a group the options give the positions, and `_go_on_at_start` handles one that
        # is out of range.
        "auto.offset.reset": "none"
        if arguments.group is None
        else "earliest"
        if arguments.from_beginning
        else "latest",
    }
    async with Consumer(client_settings(arguments, "consumer", own)) as consumer:
        await reach(consumer, arguments)
        told = await is_there(arguments.topic, consumer.partitions_for(arguments.topic))
        if arguments.group is not None:
            await consumer.subscribe([arguments.topic])
        else:
            partitions = _chosen_partitions(arguments.topic, len(told), arguments.partition)
            place = "earliest" if arguments.from_beginning else arguments.offset or "latest"
            positions = await _start_positions(consumer, partitions, place)
            await consumer.assign(partitions)
            for tp, offset in positions.items():
                await consumer.seek(tp, offset)
        with Progress(is_shown=sys.stderr.isatty() and _goes_to_a_file()) as progress:
            await _print_messages(consumer, arguments, progress)
    return 0


def _goes_to_a_file() -> bool:
    """Whether messages go to a file. Those in a pipe may still end on the terminal."""
    return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)


async def _print_messages(
    consumer: "Consumer", arguments: argparse.Namespace, progress: Progress
) -> None:
    from odradek.client import Deadline
    from odradek.client.consumer import OffsetsOutOfRangeError
    from odradek.clock import SystemClock

    printer = make_printer(arguments, sys.stdout.buffer)
    left = arguments.max_messages
    ends = arguments.timeout is not None
    quiet_ms = int(arguments.timeout * 1000) if ends else 0
    silence = Deadline(SystemClock(), quiet_ms)
    count = 0
    while left is None or left > 0:
        wait_ms = min(silence.left_ms(), _POLL_MS) if ends else _POLL_MS
        try:
            records = await consumer.poll(wait_ms / 1000)
        except OffsetsOutOfRangeError as error:
            await _go_on_at_start(consumer, error.offsets)
            continue
        if left is not None:
            # Seek back to the first message not printed, so that the group commits no further.
            for tp, offset in _first_offsets(records[left:]).items():
                await consumer.seek(tp, offset)
            records = records[:left]
            left -= len(records)
        printer.print(records)
        sys.stdout.buffer.flush()
        if records:
            count += len(records)
            progress.show(count)
            silence = Deadline(SystemClock(), quiet_ms)
        elif ends and not silence.left_ms():
            break


def _first_offsets(records: "Iterable[ConsumerRecord]") -> dict[tuple[str, int], int]:
    offsets: dict[tuple[str, int], int] = {}
    for record in records:
        offsets.setdefault((record.topic, record.partition), record.offset)
    return offsets


async def _go_on_at_start(consumer: "Consumer", offsets: "Mapping[TopicPartition, int]") -> None:
    """Moves positions below the log to its start; one above it is an error."""
    from odradek.errors import OffsetOutOfRangeError

    starts = await consumer.beginning_offsets(offsets)
    ends = await consumer.end_offsets(offsets)
    for tp, offset in offsets.items():
        if offset >= starts[tp]:
            raise OffsetOutOfRangeError(
                f"{tp} has offsets {starts[tp]} to {ends[tp]}, {offset} is out of range"
            )
        print_error(
            "consume",
            f"{tp}: {starts[tp] - offset} offsets are deleted already, continuing at {starts[tp]}",
        )
        await consumer.seek(tp, starts[tp])


class _TroubleHandler(logging.Handler):
    """Prints warnings of the fetcher, which tries again."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error("consume", f"{record.getMessage()}; trying again")


def _chosen_partitions(topic: str, count: int, chosen: list[int] | None) -> "list[TopicPartition]":
    from odradek.model import TopicPartition

    numbers = range(count) if chosen is None else sorted(set(chosen))
    for number in numbers:
        if not 0 <= number < count:
            raise CommandError(
                f"--partition {number}: topic {topic!r} has partitions 0 to {count - 1}"
            )
    return [TopicPartition(topic, number) for number in numbers]


async def _start_positions(
    consumer: "Consumer", partitions: "list[TopicPartition]", offset: str
) -> "dict[TopicPartition, int]":
    if offset == "earliest":
        return await consumer.beginning_offsets(partitions)
    if offset == "latest":
        return await consumer.end_offsets(partitions)
    number = int(offset)
    if not offset.startswith("-"):
        return dict.fromkeys(partitions, number)
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    return {tp: max(starts[tp], ends[tp] + number) for tp in partitions}


def _offset(text: str) -> str:
    if text in ("earliest", "latest") or re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        return text
    raise argparse.ArgumentTypeError(f"expected N, -N, earliest or latest, not {text}")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < 10**6:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds")
    return seconds
