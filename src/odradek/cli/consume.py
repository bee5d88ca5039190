"""`odradek consume`: prints the messages of topics."""

import argparse
import logging
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    client_settings,
    reach,
    run_command,
)
from odradek.cli.messages.content import Content, Decoder
from odradek.cli.messages.filters import FilterError, parse_filter
from odradek.cli.messages.group_records import parse_formatter
from odradek.cli.messages.printers import Printer, make_printer, parse_format
from odradek.cli.messages.times import parse_time
from odradek.cli.output import print_error
from odradek.cli.progress import Progress
from odradek.cli.usage.parser import CommandParser

if TYPE_CHECKING:
    from odradek.cli.messages.inlet import Inlet
    from odradek.client.consumer.consumer import Consumer
    from odradek.records.codec import ConsumerRecord

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Prints messages as they arrive, until --max-messages, --timeout, --exit-at-end or Ctrl-C. Unless an
option names another start, it begins with the messages that arrive from now on. It belongs to no
consumer group and commits nothing, unless --group is given: then it begins at the group's offsets,
and commits those of the messages it printed. Messages of one partition are in order; between
partitions there is no order.
"""

_EXAMPLES = """\
examples:
  odradek consume orders --from-beginning --exit-at-end
  odradek consume orders --from 1h --to now              # the last hour
  odradek consume orders --from 2026-11-17T09:00 --max-messages 10 --json
  odradek consume orders --offset -5                     # the last five of each partition, then new
  odradek consume orders --partition 0 --offset 1200 --max-messages 1
  odradek consume orders --group billing --from-beginning
  odradek consume --pattern 'orders-.*' --format '{topic} {key}: {value.customer.name}'
  odradek consume orders --filter 'value.amount > 100 and header.source == "web"'
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
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument(
        "--pattern", type=_pattern, metavar="REGEX", help="all topics whose whole name matches"
    )
    _add_range_arguments(parser)
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
        "--filter",
        type=_filter,
        metavar="EXPRESSION",
        help="only messages for which it holds, as 'key == \"a\" and value.amount > 10'; "
        "fields: key, value, header.NAME, topic, partition, offset, timestamp; operators: == != < "
        "<= > >= ~ contains starts ends and or not",
    )
    _add_output_arguments(parser)
    _add_avro_arguments(parser)
    add_connection_arguments(parser)
    parser.set_defaults(refuse=parser.error)
    if isinstance(parser, CommandParser):
        parser.take_anywhere("topics")


def _add_range_arguments(parser: argparse.ArgumentParser) -> None:
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from-beginning",
        action="store_true",
        help="from the first message of the log",
    )
    start.add_argument(
        "--from",
        dest="since",
        type=parse_time,
        metavar="TIME",
        help="from the first message at or after it: 1h (ago), 2026-11-17T09:00, or milliseconds "
        "since 1970",
    )
    start.add_argument(
        "--offset",
        type=_offset,
        metavar="OFFSET",
        help="from this offset; -N: the last N messages of each partition, fewer if offsets among "
        "them are gaps; earliest; latest (the default). -1 is the last message, not the end",
    )
    parser.add_argument(
        "--to",
        type=parse_time,
        metavar="TIME",
        help="end before the first message at or after it, or at the end of the log as it is now",
    )
    parser.add_argument(
        "--exit-at-end", action="store_true", help="end when all messages there are now are printed"
    )
    parser.add_argument(
        "--max-messages", type=_count, metavar="N", help="end after this many messages"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="end after SECONDS without a message; with --group they count from the assignment on",
    )


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        type=parse_format,
        default="value",
        metavar="FORMAT",
        help="value: the bytes of the value and a line end (default); key-value: key, separator, "
        "value; json: an object per line, with all fields; offsets, group-metadata: the content of "
        "__consumer_offsets, as Kafka's formatters print it; or a template such as "
        "'{partition} {offset} {timestamp:iso} {key} {value:json} {header.trace:hex}'",
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
    parser.add_argument(
        "--delimiter", default="\\n", metavar="TEXT", help="printed after a message (default: \\n)"
    )


def _add_avro_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Avro")
    group.add_argument(
        "--registry",
        metavar="URL",
        help="decode Avro with the schemas of this registry, http://HOST:PORT or "
        "http://USER:PASSWORD@HOST:PORT; values become JSON",
    )
    group.add_argument(
        "--avro",
        choices=("value", "key", "both"),
        default="value",
        help="with --registry: what is Avro (default: value)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the messages."""
    if bool(arguments.topics) == (arguments.pattern is not None):
        arguments.refuse("expected either a TOPIC or --pattern")
    if arguments.group is not None:
        for option, given in (
            ("--partition", arguments.partition),
            ("--offset", arguments.offset),
            ("--from", arguments.since),
        ):
            if given is not None:
                arguments.refuse(
                    f"{option} cannot go with --group: the group has partitions and offsets"
                )
    return run_command("consume", lambda: _consume(arguments), arguments)


async def _consume(arguments: argparse.Namespace) -> int:
    from odradek.cli.messages.inlet import Inlet
    from odradek.client.consumer.consumer import Consumer
    from odradek.clock import SystemClock

    logging.getLogger("odradek.client.consumer.fetcher").addHandler(_TroubleHandler())
    own: dict[str, object] = {
        "isolation.level": arguments.isolation_level,
        "enable.auto.commit": arguments.group is not None,
        "allow.auto.create.topics": False,
        "group.id": arguments.group,
        "max.poll.records": min(max(arguments.max_messages or _MAX_RECORDS, 1), _MAX_RECORDS)
        if arguments.filter is None
        else _MAX_RECORDS,
        # Without a group the options give the positions, and `go_on_at_start` handles one that
        # is out of range.
        "auto.offset.reset": "none"
        if arguments.group is None
        else "earliest"
        if arguments.from_beginning
        else "latest",
    }
    async with Consumer(client_settings(arguments, "consumer", own)) as consumer:
        await reach(consumer, arguments)
        inlet = Inlet(consumer, arguments, now_ms=SystemClock().now_ms())
        await inlet.open()
        with Progress(is_shown=sys.stderr.isatty() and _goes_to_a_file()) as progress:
            await _Reading(consumer, inlet, arguments, progress).run()
    return 0


def _goes_to_a_file() -> bool:
    """Whether messages go to a file. Those in a pipe may still end on the terminal."""
    return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)


class _Reading:
    """Polls and prints until the options say that it is enough."""

    def __init__(
        self,
        consumer: "Consumer",
        inlet: "Inlet",
        arguments: argparse.Namespace,
        progress: Progress,
    ) -> None:
        self._consumer = consumer
        self._inlet = inlet
        self._arguments = arguments
        self._progress = progress
        self._decoders = _decoders(arguments)
        self._printer: Printer = make_printer(
            arguments,
            sys.stdout.buffer,
            decode_key=self._decoders[0],
            decode_value=self._decoders[1],
            is_terminal=sys.stdout.isatty(),
        )
        self._holds: Callable[[Content], bool] | None = arguments.filter
        self._left: int | None = arguments.max_messages
        self._count = 0
        self._failure: CommandError | None = None

    async def run(self) -> None:
        """Reads to the end.

        Raises:
            CommandError: The group was not joined in time.
        """
        from odradek.client import Deadline
        from odradek.client.consumer import OffsetsOutOfRangeError
        from odradek.clock import SystemClock

        timeout = self._arguments.timeout
        quiet_ms = None if timeout is None else int(timeout * 1000)
        silence = Deadline(SystemClock(), quiet_ms or 0)
        join_until = Deadline(SystemClock(), int(self._arguments.request_timeout * 1000))
        was_assigned = self._inlet.is_assigned
        while (self._left is None or self._left > 0) and not self._inlet.is_done:
            wait_ms = _POLL_MS
            if quiet_ms is not None and was_assigned:
                wait_ms = min(silence.left_ms(), _POLL_MS)
            elif not was_assigned:
                wait_ms = min(join_until.left_ms(), _POLL_MS)
            try:
                records = await self._consumer.poll(wait_ms / 1000)
            except OffsetsOutOfRangeError as error:
                await self._inlet.go_on_at_start(error.offsets)
                continue
            if not was_assigned:
                if self._inlet.is_assigned:
                    was_assigned, silence = True, Deadline(SystemClock(), quiet_ms or 0)
                elif not join_until.left_ms():
                    raise self._not_joined(join_until.timeout_ms)
            handled = await self._inlet.cut(records)
            if handled:
                await self._print(handled)
                silence = Deadline(SystemClock(), quiet_ms or 0)
            elif quiet_ms is not None and was_assigned and not silence.left_ms():
                break

    def _not_joined(self, timeout_ms: int) -> CommandError:
        reason = self._consumer.join_failure()
        why = str(reason) if reason is not None else "the group waits for its other members"
        return CommandError(
            f"group {self._arguments.group!r} was not joined within {timeout_ms} ms "
            f"(--request-timeout): {why}; `odradek groups describe {self._arguments.group} "
            "--members` shows it"
        )

    async def _print(self, records: "list[ConsumerRecord]") -> None:
        chosen = records
        if self._holds is not None:
            chosen = self._holding(records)
        if self._left is not None and len(chosen) >= self._left:
            chosen = chosen[: self._left]
            await self._give_back(records, chosen[-1])
            self._left = 0
        elif self._left is not None:
            self._left -= len(chosen)
        self._write(chosen)
        sys.stdout.buffer.flush()
        self._count += len(chosen)
        self._progress.show(self._count)
        if self._failure is not None:
            raise self._failure

    def _write(self, chosen: "list[ConsumerRecord]") -> None:
        if self._decoders == (None, None):
            self._printer.print(chosen)
            return
        from odradek.client.avro import AvroError

        for one in chosen:  # One by one: those before a bad one are printed.
            try:
                self._printer.print([one])
            except AvroError as error:
                raise self._undecodable(one, error) from error

    def _holding(self, records: "list[ConsumerRecord]") -> "list[ConsumerRecord]":
        assert self._holds is not None, "the caller has looked"
        if self._decoders == (None, None):
            return [one for one in records if self._holds(Content(one))]
        from odradek.client.avro import AvroError

        chosen = []
        for one in records:
            try:
                if self._holds(Content(one, *self._decoders)):
                    chosen.append(one)
            except AvroError as error:
                self._failure = self._undecodable(one, error)
                break  # Those before it are printed first.
        return chosen

    def _undecodable(self, one: "ConsumerRecord", error: Exception) -> CommandError:
        return CommandError(
            f"{one.topic}-{one.partition} at offset {one.offset}: {error}; --avro says whether "
            "key, value or both are Avro"
        )

    async def _give_back(self, records: "list[ConsumerRecord]", last: "ConsumerRecord") -> None:
        """Seeks back to the messages behind the last one, so that a group commits no further."""
        from odradek.cli.messages.inlet import first_offsets

        place = next(place for place, one in enumerate(records) if one is last)
        for tp, offset in first_offsets(records[place + 1 :]).items():
            await self._consumer.seek(tp, offset)


def _decoders(arguments: argparse.Namespace) -> tuple[Decoder | None, Decoder | None]:
    if arguments.registry is None:
        return None, None
    from odradek.cli.messages.avro import AvroDecoder

    decode = AvroDecoder(arguments.registry).decode
    what = arguments.avro
    return (
        decode if what in ("key", "both") else None,
        decode if what in ("value", "both") else None,
    )


class _TroubleHandler(logging.Handler):
    """Prints warnings of the fetcher, which tries again."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error("consume", f"{record.getMessage()}; trying again")


def _offset(text: str) -> str:
    if text in ("earliest", "latest") or re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        return text
    raise argparse.ArgumentTypeError(f"expected N, -N, earliest or latest, not {text}")


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def _filter(text: str) -> Callable[[Content], bool]:
    try:
        return parse_filter(text)
    except FilterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
