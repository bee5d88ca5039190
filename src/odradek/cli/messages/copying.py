"""`odradek topics copy`: copies the messages of a topic, in this cluster or into another.

Keys, values, headers, timestamps, partitions and the order in them stay; offsets do not. Messages
go from one cluster to the other as columns, without an object each.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    client_settings,
    is_there,
    reach,
    run_command,
)
from odradek.cli.output import counted
from odradek.cli.progress import Progress

if TYPE_CHECKING:
    from odradek.cli.messages.outlet import Outlet
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.consumer.reading import PartitionColumns
    from odradek.model import TopicPartition

__all__ = ["add_copy_parser", "run_copy"]

_EXAMPLES: Final = """\
examples:
  odradek topics copy orders orders-backup
  odradek topics copy orders orders --to-bootstrap-server other:9092
  odradek topics copy orders orders-12 --by-key       # to as many partitions as orders-12 has
"""
_POLL_S: Final = 1.0


def add_copy_parser(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declares the action and its options."""
    parser = actions.add_parser(
        "copy",
        help="copy the messages of a topic",
        description="Copies the messages that a topic has now: keys, values, headers, timestamps "
        "and partitions stay, offsets do not. Messages of aborted transactions are left out. A "
        "target that does not exist is created with as many partitions.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument(
        "--to-bootstrap-server",
        metavar="HOST:PORT,…",
        help="the cluster of the target (default: that of the source)",
    )
    parser.add_argument(
        "--by-key",
        action="store_true",
        help="choose partitions by the keys, in place of those of the source",
    )
    parser.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="default: none",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_connection_arguments(parser)
    parser.set_defaults(acks="all")


def run_copy(arguments: argparse.Namespace) -> int:
    """Copies."""
    return run_command("topics copy", lambda: _copy(arguments), arguments)


async def _copy(arguments: argparse.Namespace) -> int:
    from odradek.cli.connection.choice import with_ports
    from odradek.cli.output import print_json
    from odradek.client.consumer.consumer import Consumer
    from odradek.model import TopicPartition

    source, target = arguments.source, arguments.target
    own: dict[str, object] = {
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    config = client_settings(arguments, "consumer", own, beside=("producer",))
    settings: dict[str, object] = {}
    if arguments.to_bootstrap_server is not None:
        settings["bootstrap.servers"] = with_ports(arguments.to_bootstrap_server)
    if source == target and settings.items() <= config.items():
        raise CommandError(f"topic {source!r} cannot be copied onto itself")
    progress = Progress(is_shown=sys.stderr.isatty())
    with progress:
        async with Consumer(config) as consumer:
            await reach(consumer, arguments)
            told = await is_there(source, consumer.partitions_for(source))
            partitions = [TopicPartition(source, number) for number in range(len(told))]
            await _ensure(arguments, settings, len(partitions))
            ends = await consumer.end_offsets(partitions)
            await consumer.assign(partitions)
            await consumer.seek_to_beginning()
            async with _outlet(arguments, progress, settings) as outlet:
                _check_target(arguments, outlet, len(partitions))
                await _copy_up_to(consumer, ends, outlet, by_key=arguments.by_key)
                await outlet.finish()
        progress.finish(outlet.sent_count, " copied")
    if arguments.json:
        print_json({"source": source, "target": target, "messages": outlet.sent_count})
    else:
        print(f"copied {counted(outlet.sent_count, 'message')} from {source} to {target}")
    return 0


def _outlet(
    arguments: argparse.Namespace, progress: Progress, settings: dict[str, object]
) -> "Outlet":
    from odradek.cli.messages.outlet import Outlet

    return Outlet(arguments, arguments.target, progress, settings=settings, beside=("consumer",))


async def _ensure(
    arguments: argparse.Namespace, settings: dict[str, object], partition_count: int
) -> None:
    """Creates the target if it is not there."""
    from odradek.client.admin import NewTopic
    from odradek.client.admin.admin import Admin
    from odradek.errors import ApiError, ErrorCode

    config = client_settings(arguments, beside=("consumer", "producer"))
    async with Admin(config | settings) as admin:
        name = arguments.target
        told = (await admin.describe_topics([name]))[name]
        if not isinstance(told, ApiError):
            return
        if told.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise told
        made = (await admin.create_topics([NewTopic(name=name, partition_count=partition_count)]))[
            name
        ]
        if isinstance(made, ApiError) and made.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise made


def _check_target(arguments: argparse.Namespace, outlet: "Outlet", partition_count: int) -> None:
    if outlet.partition_count < partition_count and not arguments.by_key:
        raise CommandError(
            f"topic {arguments.source!r} has {partition_count} partitions, and "
            f"{arguments.target!r} has {outlet.partition_count}: `odradek topics alter "
            f"{arguments.target} --partitions {partition_count}` adds some, --by-key does without"
        )


async def _copy_up_to(
    consumer: "Consumer", ends: "dict[TopicPartition, int]", outlet: "Outlet", *, by_key: bool
) -> None:
    left = dict(ends)
    while left:
        for tp in [tp for tp, end in left.items() if await consumer.position(tp) >= end]:
            del left[tp]
            await consumer.pause([tp])
        if not left:
            return
        for taken in await consumer.poll_columns(_POLL_S):
            end = ends[(taken.topic, taken.partition)]  # type: ignore[index]  # it is a tuple
            await _send(outlet, taken, end, by_key=by_key)


async def _send(outlet: "Outlet", taken: "PartitionColumns", end: int, *, by_key: bool) -> None:
    from array import array
    from bisect import bisect_left

    from odradek.records.rows import BinaryInput, HeadersInput, NumberInput, Rows

    columns = taken.columns
    count = bisect_left(memoryview(columns.offset).cast("q"), end, 0, columns.count)
    if not count:
        return
    key, value, headers = columns.key, columns.value, columns.headers
    rows = Rows(
        count,
        key=BinaryInput(0, key.validity, key.offsets, key.data),
        value=BinaryInput(0, value.validity, value.offsets, value.data),
        headers=HeadersInput(
            0,
            None,
            headers.offsets,
            headers.count,
            BinaryInput(0, headers.key.validity, headers.key.offsets, headers.key.data),
            BinaryInput(0, headers.value.validity, headers.value.offsets, headers.value.data),
        ),
        timestamps=NumberInput(0, None, columns.timestamp),
    )
    partitions = None
    if not by_key:
        numbers = array("i", [taken.partition]) * count
        partitions = NumberInput(0, None, memoryview(numbers).cast("B"))
    await outlet.send_rows(rows, partitions)
