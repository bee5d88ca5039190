"""`odradek elect-leaders`: moves leadership to preferred replicas, or to any that is alive."""

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
from odradek.cli.output import print_json

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.model import TopicPartition

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Makes the first replica of each partition its leader, if that replica is in sync.

With --unclean, partitions that have no leader, because no replica in sync is alive, get one that is
not in sync: they can be read and written again, and acknowledged messages may be lost for good.
"""

_EXAMPLES = """\
examples:
  odradek elect-leaders orders
  odradek elect-leaders --all
  odradek elect-leaders orders --partition 3 --unclean
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="TOPIC")
    parser.add_argument(
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="only this partition of the topic; may be repeated (default: all partitions)",
    )
    parser.add_argument("--all", action="store_true", help="all partitions of the cluster")
    parser.add_argument(
        "--unclean", action="store_true", help="accept leaders that may have lost messages"
    )
    add_json_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Holds the elections; returns 1 if a partition got no leader."""
    return run_with_admin("elect-leaders", arguments, lambda admin: _elect(admin, arguments))


async def _elect(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import ElectionType
    from odradek.errors import ErrorCode

    if bool(arguments.names) is arguments.all:
        raise CommandError("expected either topics or --all")
    if arguments.partition is not None and len(arguments.names) != 1:
        raise CommandError("--partition needs exactly one topic")
    kind = ElectionType.UNCLEAN if arguments.unclean else ElectionType.PREFERRED
    results = await admin.elect_leaders(kind, await _partitions(admin, arguments))
    elected = [tp for tp, error in results.items() if error is None]
    needless = ErrorCode.ELECTION_NOT_NEEDED
    others = [tp for tp, error in results.items() if error and error.code is needless]
    failed = [error for error in results.values() if error and error.code is not needless]
    if arguments.json:
        print_json(
            {
                name: [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
                for name, partitions in (("elected", elected), ("not_needed", others))
            }
        )
    else:
        for tp in elected:
            print(f"elected the leader of {tp}")
        if not elected and not failed:
            print("no partition needed another leader")
    return report_errors("elect-leaders", failed)


async def _partitions(
    admin: "Admin", arguments: argparse.Namespace
) -> "list[TopicPartition] | None":
    from odradek.model import TopicPartition

    if arguments.all:
        return None
    return [
        TopicPartition(name, number)
        for name in dict.fromkeys(arguments.names)
        for number in (
            arguments.partition
            or [one.partition for one in (await find_topic(admin, name)).partitions]
        )
    ]
