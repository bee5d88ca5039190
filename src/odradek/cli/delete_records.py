"""`odradek delete-records`: deletes the oldest messages of partitions."""

import argparse
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    find_topic,
    report_errors,
    run_with_admin,
)
from odradek.cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Deletes the messages before an offset for good. Their space is freed once a whole segment has been
deleted. Prints the first offset that is left in each partition.
"""

_EXAMPLES = """\
examples:
  odradek delete-records orders --before 1000 --partition 0
  odradek delete-records orders --before latest        # all messages
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--before",
        required=True,
        type=_offset,
        metavar="OFFSET",
        help="first offset to keep; `latest`: delete all messages",
    )
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="only this partition; may be repeated (default: all partitions)",
    )
    add_json_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Deletes the messages; returns 1 if a partition failed."""
    return run_with_admin("delete-records", arguments, lambda admin: _delete(admin, arguments))


async def _delete(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

    topic = await find_topic(admin, arguments.topic)
    count = len(topic.partitions)
    numbers = range(count) if arguments.partition is None else sorted(set(arguments.partition))
    for number in numbers:
        if not 0 <= number < count:
            raise CommandError(
                f"--partition {number}: topic {topic.name!r} has partitions 0 to {count - 1}"
            )
    before = {TopicPartition(topic.name, number): arguments.before for number in numbers}
    results = await admin.delete_records(before)
    left = {tp: result for tp, result in results.items() if not isinstance(result, ApiError)}
    if arguments.json:
        print_json(
            [
                {"topic": tp.topic, "partition": tp.partition, "first_offset": offset}
                for tp, offset in left.items()
            ]
        )
    else:
        print_table(
            ("TOPIC", "PARTITION", "FIRST OFFSET"),
            [(tp.topic, tp.partition, offset) for tp, offset in left.items()],
        )
    errors = [result for result in results.values() if isinstance(result, ApiError)]
    return report_errors("delete-records", errors)


def _offset(text: str) -> int:
    if text == "latest":
        return -1
    if text.isascii() and text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is neither an offset nor `latest`")
