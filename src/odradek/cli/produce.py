"""`odradek produce`: sends lines, JSON or whole files as messages."""

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from odradek.cli.connecting import CommandError, add_connection_arguments, run_command
from odradek.cli.messages.columns import MessageColumns
from odradek.cli.messages.json_lines import JsonLineError, JsonLines
from odradek.cli.messages.templates import unescape
from odradek.cli.messages.times import parse_time
from odradek.cli.output import print_json
from odradek.cli.progress import Progress
from odradek.cli.usage.parser import CommandParser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.cli.messages.outlet import Outlet

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Sends every line of the files, or of standard input, as a message, and returns when all are
acknowledged. Bytes are sent unchanged, without the line end. A missing topic is created if the
brokers allow it (auto.create.topics.enable).
"""

_EXAMPLES = """\
examples:
  echo hello | odradek produce greetings
  odradek produce people --key-separator : < people.txt     # alice:{"age": 41}
  odradek produce people --key-separator : --null-marker '' # "alice:" deletes alice when compacted
  odradek produce photos --whole --key cat cat.jpg           # the file is one message
  odradek produce orders --delimiter '\\0' --header source=import --timestamp 2026-11-17 orders.bin
  odradek produce copy --json --keep-partitions < messages   # written by `odradek consume --json`
"""

_STDIN: Final = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="one after the other; - and none: standard input"
    )
    _add_input_arguments(parser)
    parser.add_argument(
        "--partition",
        type=_partition,
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
    parser.add_argument(
        "--summary", action="store_true", help="print what was sent, as JSON for programs"
    )
    add_connection_arguments(parser)
    parser.set_defaults(refuse=parser.error)
    if isinstance(parser, CommandParser):
        parser.take_anywhere("files")


def _add_input_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_true",
        help="each line is a message as `odradek consume --json` writes it: an object with value, "
        "key, headers and timestamp, or value_base64 and key_base64",
    )
    form.add_argument("--whole", action="store_true", help="each file is one message")
    form.add_argument(
        "--delimiter",
        default="\\n",
        metavar="TEXT",
        help="what ends a message (default: \\n); \\t, \\r and \\0 can be written so, too",
    )
    parser.add_argument(
        "--keep-partitions",
        action="store_true",
        help="with --json: to the partition of each line, if it names one",
    )
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--key", metavar="TEXT", help="the key of every message")
    key.add_argument(
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
        "--timestamp",
        type=parse_time,
        metavar="TIME",
        help="of every message that has none of its own, as 1h (ago), 2026-11-17T09:00, or "
        "milliseconds since 1970 (default: now)",
    )
    parser.add_argument(
        "--null-marker", metavar="TEXT", help="a key or value that is this text is sent as null"
    )


def run(arguments: argparse.Namespace) -> int:
    """Sends the messages; returns 1 if one could not be sent."""
    if arguments.key_separator == "":
        arguments.refuse("--key-separator must not be empty")
    if arguments.whole and arguments.key_separator is not None:
        arguments.refuse("--key-separator cannot go with --whole; --key names the key")
    if unescape(arguments.delimiter) == "":
        arguments.refuse("--delimiter must not be empty")
    if arguments.keep_partitions and not arguments.json:
        arguments.refuse("--keep-partitions goes with --json: only its lines name partitions")
    if arguments.json and (arguments.key is not None or arguments.key_separator is not None):
        arguments.refuse("--key and --key-separator cannot go with --json: its lines have keys")
    if arguments.json and arguments.null_marker is not None:
        arguments.refuse("--null-marker cannot go with --json, which has null")
    return run_command("produce", lambda: _produce(arguments), arguments)


async def _produce(arguments: argparse.Namespace) -> int:
    from odradek.cli.messages.outlet import Outlet

    reader = _Reader(arguments)
    # Progress is shown when input comes from a file or pipe; a typing user sees the lines typed.
    is_typed = _STDIN in reader.files and sys.stdin.isatty()
    progress = Progress(is_shown=sys.stderr.isatty() and not is_typed)
    with progress:
        async with Outlet(arguments, arguments.topic, progress) as outlet:
            count = outlet.partition_count
            if arguments.partition is not None and arguments.partition >= count:
                raise CommandError(
                    f"--partition {arguments.partition}: topic {arguments.topic!r} has partitions "
                    f"0 to {count - 1}"
                )
            await _send_all(reader, outlet)
        progress.finish(outlet.sent_count, " sent")
        if arguments.summary:
            _print_summary(arguments.topic, outlet)
    return 0


async def _send_all(reader: "_Reader", outlet: "Outlet") -> None:
    from odradek.clock import SystemClock

    clock = SystemClock()
    async for messages in reader.read():
        await outlet.send(messages, clock.now_ms())
        # A line that could not be read ends the command, but those before it are sent.
        if reader.failure is not None:
            break
    await outlet.finish()
    if reader.failure is not None:
        raise CommandError(reader.failure)


class _Reader:
    """Turns files into messages; a line that is none ends the reading."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.files = arguments.files or [_STDIN]
        self.failure: str | None = None
        self._arguments = arguments
        self._headers = tuple(map(_header, arguments.header))
        self._delimiter = _encode(unescape(arguments.delimiter))
        self._separator = None
        if arguments.key_separator is not None:
            self._separator = _encode(unescape(arguments.key_separator))
        self._key = None if arguments.key is None else _encode(arguments.key)
        marker = arguments.null_marker
        self._null = None if marker is None else _encode(marker)
        self._timestamp: int | None = None
        if arguments.timestamp is not None:
            from odradek.clock import SystemClock

            self._timestamp = arguments.timestamp(SystemClock().now_ms())
        self._json = JsonLines(keeps_partitions=arguments.keep_partitions)
        self._place = ""  # The file, if there are several things to read.
        self._line = 0  # Lines of it before the ones in hand.

    async def read(self) -> AsyncIterator[MessageColumns]:
        """The messages, as many at a time as have been read."""
        from odradek.cli.messages.lines import read_chunks, read_whole

        for name in self.files:
            self._place = "" if name == _STDIN else f"{name}: "
            self._line = 0
            with _opened(name) as fd:
                if self._arguments.whole:
                    yield self._of_values([await read_whole(fd)])
                    continue
                delimiter = b"\n" if self._arguments.json else self._delimiter
                async for chunk in read_chunks(fd, delimiter):
                    yield self._of_json(chunk) if self._arguments.json else self._of_lines(chunk)
                    if self.failure is not None:
                        return

    def _of_json(self, chunk: bytes) -> MessageColumns:
        messages = MessageColumns()
        try:
            self._json.parse(chunk, messages)
        except JsonLineError as error:
            self.failure = f"{self._place}line {self._line + error.index + 1}: {error}"
        self._line += chunk.count(b"\n")
        if self._headers:
            messages.headers = [(*one, *self._headers) for one in messages.headers]
        if self._timestamp is not None:
            messages.timestamps = [
                self._timestamp if one is None else one for one in messages.timestamps
            ]
        if self._arguments.partition is not None:
            messages.partitions = [self._arguments.partition] * len(messages)
        return messages

    def _of_lines(self, chunk: bytes) -> MessageColumns:
        lines = chunk.split(self._delimiter)
        if not lines[-1]:
            lines.pop()  # Behind the last delimiter.
        if self._separator is None:
            return self._of_values(lines)
        keys: list[bytes] = []
        values: list[bytes] = []
        for line in lines:
            key, separator, value = line.partition(self._separator)
            if not separator:
                self.failure = (
                    f"{self._place}line {self._line + len(values) + 1} has no key: "
                    f"it does not contain {self._separator.decode(errors='backslashreplace')!r}"
                )
                break
            keys.append(key)
            values.append(value)
        self._line += len(values)
        return self._of_values(values, keys)

    def _of_values(self, values: list[bytes], keys: list[bytes] | None = None) -> MessageColumns:
        if keys is None and self._key is not None:
            keys = [self._key] * len(values)
        return MessageColumns.of(
            self._with_nulls(values),
            None if keys is None else self._with_nulls(keys),
            self._headers,
            self._timestamp,
            self._arguments.partition,
        )

    def _with_nulls(self, column: list[bytes]) -> list[bytes | None]:
        null = self._null
        return list(column) if null is None else [None if one == null else one for one in column]


def _header(pair: str) -> tuple[bytes, bytes]:
    key, equals, value = pair.partition("=")
    if not (key and equals):
        raise CommandError(f"--header {pair}: expected KEY=VALUE")
    return _encode(key), _encode(value)


@contextmanager
def _opened(name: str) -> "Iterator[int]":
    """The descriptor of a file, or of standard input."""
    if name == _STDIN:
        yield sys.stdin.fileno()
        return
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror or error}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _print_summary(topic: str, outlet: "Outlet") -> None:
    print_json(
        {
            "topic": topic,
            "messages": outlet.sent_count,
            "partitions": [
                {
                    "partition": partition,
                    "messages": outlet.counts[partition],
                    "last_offset": outlet.last_offsets.get(partition),
                }
                for partition in sorted(outlet.counts)
            ],
        }
    )


def _encode(text: str) -> bytes:
    """The bytes of an argument, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _partition(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number
