"""`odradek produce`: a message per line of standard input."""

import argparse
import sys
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    find_topic,
    parse_pairs,
    run_with_client,
)
from odradek.cli.output import print_json

if TYPE_CHECKING:
    from odradek.client import Client, Produced, ProducerOptions, ProducerRecord

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Sends every line of standard input as a message and returns when all are acknowledged. Bytes are
sent as they are, without the line end. The topic is created if the brokers create topics by
themselves (auto.create.topics.enable).
"""

_EXAMPLES = """\
examples:
  echo hello | odradek produce greetings
  odradek produce people --key-separator : < people.txt     # alice:{"age": 41}
  odradek produce people --key-separator : --null-marker '' # "alice:" deletes alice when compacted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="what comes before it in a line is the key"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a header of every message; may be repeated",
    )
    parser.add_argument(
        "--null-marker", metavar="TEXT", help="a key or value that is this text is sent as null"
    )
    parser.add_argument(
        "--partition",
        type=int,
        metavar="N",
        help="default: chosen by the key, without one in turn",
    )
    parser.add_argument(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="who must have a message before it counts as sent: nobody, the leader, all in-sync "
        "replicas (default: all, which also keeps repetitions out)",
    )
    parser.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="default: none",
    )
    add_json_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Sends the lines; returns 1 if one could not be sent."""
    return run_with_client("produce", arguments, lambda client: _produce(client, arguments))


async def _produce(client: "Client", arguments: argparse.Namespace) -> int:
    from odradek.cli.lines import read_lines
    from odradek.client import Producer

    make = _LineParser(arguments)
    await find_topic(client, arguments.topic, create=True)
    producer = Producer(client, arguments.topic, _producer_options(arguments))
    summary = _Summary(arguments)
    async for lines in read_lines(sys.stdin.fileno()):
        records = [make.record(line) for line in lines]
        # A line that could not be read ends the command, but those before it are sent.
        for produced in await producer.send([one for one in records if one is not None]):
            summary.add(produced)
        if make.failure is not None:
            raise CommandError(make.failure)
    await producer.flush()
    summary.finish()
    return 0


class _LineParser:
    """Makes messages of lines until one has no key."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        headers = parse_pairs("--header", arguments.header).items()
        self._headers = tuple((key, value.encode()) for key, value in headers)
        separator = arguments.key_separator
        if separator == "":
            raise CommandError("--key-separator must not be empty")
        self._separator = _unescape(separator).encode() if separator is not None else None
        marker = arguments.null_marker
        self._null = marker.encode() if marker is not None else None
        self._partition = arguments.partition
        self._line_number = 0
        self.failure: str | None = None

    def record(self, line: bytes) -> "ProducerRecord | None":
        """The message of a line; None from the first one on that has no key."""
        from odradek.client import ProducerRecord

        self._line_number += 1
        key: bytes | None = None
        value: bytes | None = line
        if self._separator is not None:
            key, separator, value = line.partition(self._separator)
            if not separator and self.failure is None:
                self.failure = (
                    f"line {self._line_number} has no key: "
                    f"it does not contain {self._separator.decode()!r}"
                )
        if self.failure is not None:
            return None
        return ProducerRecord(
            value=None if value == self._null else value,
            key=None if key == self._null else key,
            headers=self._headers,
            partition=self._partition,
        )


class _Summary:
    """Counts what was sent; shows it while it grows if somebody is watching."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._counts: dict[int, int] = {}
        self._last_offsets: dict[int, int] = {}
        # Progress is for whoever pipes a file into it; who types sees what was typed.
        self._shows_progress = sys.stderr.isatty() and not sys.stdin.isatty()

    def add(self, produced: "Produced") -> None:
        partition = produced.partition
        self._counts[partition] = self._counts.get(partition, 0) + produced.record_count
        if produced.base_offset >= 0:
            self._last_offsets[partition] = produced.base_offset + produced.record_count - 1
        if self._shows_progress:
            print(f"\r{sum(self._counts.values()):,} messages", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        if self._shows_progress:
            print(f"\r{sum(self._counts.values()):,} messages sent", file=sys.stderr)
        if self._arguments.json:
            print_json(
                {
                    "topic": self._arguments.topic,
                    "messages": sum(self._counts.values()),
                    "partitions": [
                        {
                            "partition": partition,
                            "messages": self._counts[partition],
                            "last_offset": self._last_offsets.get(partition),
                        }
                        for partition in sorted(self._counts)
                    ],
                }
            )


def _producer_options(arguments: argparse.Namespace) -> "ProducerOptions":
    from odradek.client import ACKS_ALL, ProducerOptions
    from odradek.records.compression import Codec

    timeout_ms = max(int(arguments.request_timeout * 1000), 1)
    return ProducerOptions(
        acks=ACKS_ALL if arguments.acks == "all" else int(arguments.acks),
        codec=Codec[arguments.compression.upper()],
        delivery_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
    )


def _unescape(text: str) -> str:
    """Lets a tab be written as `\\t`, since shells make the real one hard to type."""
    return text.replace("\\t", "\t")
