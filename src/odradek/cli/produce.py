"""`odradek produce`: sends each line of standard input as a message."""

import argparse
import sys
from collections import deque
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    NEW_TOPIC_MS,
    CommandError,
    add_connection_arguments,
    add_json_argument,
    client_settings,
    is_there,
    parse_pairs,
    reach,
    run_command,
)
from odradek.cli.output import print_json
from odradek.cli.progress import Progress

if TYPE_CHECKING:
    from odradek.client.producer import Delivery, Producer

__all__ = ["add_arguments", "run"]

# Lines arrive many at a time: large batches need fewer requests.
_BATCH_BYTES = 128 * 1024
_LINGER_MS = 5
# Messages that may be unacknowledged while more lines are read.
_MAX_UNKNOWN = 100_000

_DESCRIPTION = """\
Sends every line of standard input as a message and returns when all are acknowledged. Bytes are
sent unchanged, without the line end. A missing topic is created if the brokers allow it
(auto.create.topics.enable).
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
        "--key-separator", metavar="TEXT", help="the part of a line before it is the key"
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
        help="default: chosen by the key; without a key, all in turn",
    )
    parser.add_argument(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="replicas that must store a message before it counts as sent: none, the leader, or "
        "all in sync (default: all, which also stores no message twice)",
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
    return run_command("produce", lambda: _produce(arguments), arguments)


async def _produce(arguments: argparse.Namespace) -> int:
    from odradek.cli.lines import read_lines
    from odradek.client.producer import Producer, RoundRobinPartitioner

    parser = _LineParser(arguments)
    # Progress is shown when input comes from a file or pipe; a typing user sees the lines typed.
    progress = Progress(is_shown=sys.stderr.isatty() and not sys.stdin.isatty())
    summary = _Summary(arguments, progress)
    # No `on_error` output: the summary awaits every delivery and raises its error.
    producer = Producer(
        client_settings(arguments, "producer", _producer_settings(arguments)),
        partitioner=RoundRobinPartitioner(keeps_keys=True),
        on_error=lambda _failed: None,
    )
    with progress:
        async with producer:
            await reach(producer, arguments)
            await is_there(arguments.topic, _look_up(producer, arguments.topic))
            async for lines in read_lines(sys.stdin.fileno()):
                for line in lines:
                    if not parser.parse(line):
                        break
                    summary.add(
                        await producer.send(
                            arguments.topic,
                            parser.value,
                            parser.key,
                            parser.headers,
                            arguments.partition,
                        )
                    )
                await summary.catch_up(_MAX_UNKNOWN)
                # A line that could not be read ends the command, but those before it are sent.
                if parser.failure is not None:
                    break
            await producer.flush()
            await summary.catch_up(0)
        if parser.failure is not None:
            raise CommandError(parser.failure)
        summary.finish()
    return 0


async def _look_up(producer: "Producer", topic: str) -> None:
    """Looks the topic up before the first line is read; brokers may create it then.

    `send` would wait for a missing topic until its timeout; a mistyped name should fail at once.
    """
    from odradek.client.errors import CallTimeoutError

    try:
        await producer.partitions_for(topic, NEW_TOPIC_MS / 1000)
    except CallTimeoutError:
        await producer.partitions_for(topic)  # The topic exists, or is being created.


class _LineParser:
    """Parses lines into `key` and `value`; a line without a key ends the command."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        headers = parse_pairs("--header", arguments.header).items()
        self.headers = tuple((key, value.encode()) for key, value in headers)
        separator = arguments.key_separator
        if separator == "":
            raise CommandError("--key-separator must not be empty")
        self._separator = _unescape(separator).encode() if separator is not None else None
        marker = arguments.null_marker
        self._null = marker.encode() if marker is not None else None
        self._line_number = 0
        self.key: bytes | None = None
        self.value: bytes | None = None
        self.failure: str | None = None

    def parse(self, line: bytes) -> bool:
        """Parses a line; returns False if it has no key."""
        self._line_number += 1
        key: bytes | None = None
        value: bytes | None = line
        if self._separator is not None:
            key, separator, value = line.partition(self._separator)
            if not separator:
                self.failure = (
                    f"line {self._line_number} has no key: "
                    f"it does not contain {self._separator.decode()!r}"
                )
                return False
        self.value = None if value == self._null else value
        self.key = None if key == self._null else key
        return True


class _Summary:
    """Counts delivered messages and passes the count to the progress display."""

    def __init__(self, arguments: argparse.Namespace, progress: Progress) -> None:
        self._arguments = arguments
        self._progress = progress
        self._counts: dict[int, int] = {}
        self._last_offsets: dict[int, int] = {}
        self._unknown: deque[Delivery] = deque()  # Sent, and not counted yet.

    def add(self, delivery: "Delivery") -> None:
        self._unknown.append(delivery)

    async def catch_up(self, most_unknown: int) -> None:
        """Counts acknowledged messages; waits until at most `most_unknown` are outstanding.

        Raises:
            OdradekError: A message could not be delivered.
        """
        while self._unknown and (len(self._unknown) > most_unknown or self._unknown[0].done()):
            arrived = await self._unknown.popleft()
            partition = arrived.partition
            self._counts[partition] = self._counts.get(partition, 0) + 1
            if arrived.offset >= 0:
                self._last_offsets[partition] = arrived.offset
        self._progress.show(sum(self._counts.values()))

    def finish(self) -> None:
        self._progress.finish(sum(self._counts.values()), " sent")
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


def _producer_settings(arguments: argparse.Namespace) -> dict[str, object]:
    timeout_ms = max(int(arguments.request_timeout * 1000), 1)
    return {
        "acks": arguments.acks,
        "batch.size": _BATCH_BYTES,
        "compression.type": arguments.compression,
        "linger.ms": _LINGER_MS,
        "max.block.ms": timeout_ms,
        "delivery.timeout.ms": timeout_ms + _LINGER_MS,
    }


def _unescape(text: str) -> str:
    r"""Replaces `\t` by a tab, which is hard to type in shells."""
    return text.replace("\\t", "\t")
