"""`odradek consume`: prints the messages of a topic."""

import argparse
import base64
import json
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    find_topic,
    run_with_client,
)
from odradek.cli.output import print_error

if TYPE_CHECKING:
    from odradek.client import Client, TopicView
    from odradek.errors import ApiError
    from odradek.model import TopicPartition
    from odradek.records.record import Record

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Prints messages as they arrive, until --max-messages, --timeout or Ctrl-C. Without --from-beginning
or --offset it begins with the messages that arrive from now on. It belongs to no consumer group and
commits nothing. Within a partition messages come in order; between partitions there is none.
"""

_EXAMPLES = """\
examples:
  odradek consume orders --from-beginning --timeout 2
  odradek consume orders --partition 0 --offset -5     # the last five, then new ones
  odradek consume orders --partition 0 --offset 1200 --max-messages 1 --json
"""

# The longest wait before the time without messages is looked at again.
_POLL_MS = 1_000


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
        help="from the first message that is there",
    )
    start.add_argument(
        "--offset",
        type=_offset,
        metavar="OFFSET",
        help="from an offset on; -N: the last N messages, fewer if offsets among them are gaps; "
        "earliest; latest (the default). -1 is the last message, not the end. Needs --partition",
    )
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="only this partition; may be repeated",
    )
    parser.add_argument(
        "--max-messages", type=_count, metavar="N", help="end after this many messages"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="end when no message came for so long",
    )
    parser.add_argument(
        "--format",
        choices=("value", "key-value", "json"),
        default="value",
        help="value: the bytes of the value and a line end (default); key-value: key, separator, "
        "value; json: an object per line, with everything",
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
    add_connection_arguments(parser)
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Prints the messages."""
    if arguments.offset is not None and arguments.partition is None:
        arguments.refuse("--offset needs --partition: offsets differ between partitions")
    return run_with_client("consume", arguments, lambda client: _consume(client, arguments))


async def _consume(client: "Client", arguments: argparse.Namespace) -> int:
    from odradek.client import Fetcher

    topic = await find_topic(client, arguments.topic)
    partitions = _chosen_partitions(topic, arguments.partition)
    place = "earliest" if arguments.from_beginning else arguments.offset or "latest"
    positions = await _start_positions(client, partitions, place)
    printer = _Printer(arguments, sys.stdout.buffer)
    left = arguments.max_messages
    quiet_ms = None if arguments.timeout is None else int(arguments.timeout * 1000)
    async with Fetcher(client, positions, on_retry=_note_retry) as fetcher:
        silence = client.deadline(quiet_ms)
        while left is None or left > 0:
            wait_ms = _POLL_MS if quiet_ms is None else min(silence.left_ms(), _POLL_MS)
            for fetched in await fetcher.poll(wait_ms):
                if fetched.skipped_count:
                    print_error(
                        "consume",
                        f"{fetched.tp}: {fetched.skipped_count} offsets are deleted already, "
                        f"going on at {fetcher.position(fetched.tp)}",
                    )
                records = fetched.records if left is None else fetched.records[:left]
                printer.print(fetched.tp, records)
                if left is not None:
                    left -= len(records)
                if records:
                    silence = client.deadline(quiet_ms)
            sys.stdout.buffer.flush()
            if quiet_ms is not None and not silence.left_ms():
                break
    return 0


def _chosen_partitions(topic: "TopicView", chosen: list[int] | None) -> "list[TopicPartition]":
    from odradek.model import TopicPartition

    count = len(topic.partitions)
    numbers = range(count) if chosen is None else sorted(set(chosen))
    for number in numbers:
        if not 0 <= number < count:
            raise CommandError(
                f"--partition {number}: topic {topic.name!r} has partitions 0 to {count - 1}"
            )
    return [TopicPartition(topic.name, number) for number in numbers]


async def _start_positions(
    client: "Client", partitions: "list[TopicPartition]", offset: str
) -> "dict[TopicPartition, int]":
    from odradek.client import EARLIEST, LATEST

    if offset == "earliest":
        return await _ends(client, partitions, EARLIEST)
    if offset == "latest":
        return await _ends(client, partitions, LATEST)
    number = int(offset)
    if not offset.startswith("-"):
        return dict.fromkeys(partitions, number)
    starts = await _ends(client, partitions, EARLIEST)
    ends = await _ends(client, partitions, LATEST)
    return {tp: max(starts[tp], ends[tp] + number) for tp in partitions}


async def _ends(
    client: "Client", partitions: "list[TopicPartition]", place: int
) -> "dict[TopicPartition, int]":
    from odradek.client import list_offsets
    from odradek.errors import ApiError

    offsets = {}
    for tp, found in (await list_offsets(client, dict.fromkeys(partitions, place))).items():
        if isinstance(found, ApiError):
            raise found
        offsets[tp] = found.offset
    return offsets


class _Printer:
    """Writes messages in the chosen format."""

    def __init__(self, arguments: argparse.Namespace, out: BinaryIO) -> None:
        self._out = out
        self._null = arguments.null_marker.encode()
        self._separator = arguments.key_separator.replace("\\t", "\t").encode()
        self._shows_key = arguments.format == "key-value"
        self._shows_headers = arguments.headers
        self._is_json = arguments.format == "json"

    def print(self, tp: "TopicPartition", records: "Iterable[Record]") -> None:
        if self._is_json:
            lines = [json.dumps(_json(tp, one), ensure_ascii=False).encode() for one in records]
        elif not (self._shows_key or self._shows_headers):
            lines = [self._null if one.value is None else one.value for one in records]
        else:
            lines = [self._separator.join(self._columns(one)) for one in records]
        self._out.writelines(line + b"\n" for line in lines)

    def _columns(self, record: "Record") -> Iterable[bytes]:
        if self._shows_headers:
            yield b",".join(
                name.encode("utf-8", "surrogateescape") + b"=" + self._bytes(content)
                for name, content in record.headers
            )
        if self._shows_key:
            yield self._bytes(record.key)
        yield self._bytes(record.value)

    def _bytes(self, content: bytes | None) -> bytes:
        return self._null if content is None else content


def _json(tp: "TopicPartition", record: "Record") -> dict[str, object]:
    """All of a message. Bytes that are no UTF-8 come as base64, under a name that says so."""
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [
            {"key": name.encode("utf-8", "replace").decode(), **_text("value", content)}
            for name, content in record.headers
        ],
    }


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _note_retry(error: "ApiError") -> None:
    print_error("consume", f"{error}; trying again")


def _offset(text: str) -> str:
    if text in ("earliest", "latest") or re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        return text
    raise argparse.ArgumentTypeError(f"{text} is none of N, -N, earliest, latest")


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
