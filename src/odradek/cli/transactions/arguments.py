"""The options of `odradek transactions`."""

import argparse
from typing import TYPE_CHECKING

from odradek.cli.connecting import add_connection_arguments, add_json_argument

if TYPE_CHECKING:
    from odradek.cli.usage.parser import Actions

__all__ = ["add_arguments"]

_HANGING_DESCRIPTION = """\
Finds transactions that no coordinator will end: open in a partition for longer than transactions
may take, and unknown to their coordinator. Consumers of committed messages wait for them. Without
TOPIC and --broker, all partitions of the cluster are searched.
"""

_HANGING_EXAMPLES = """\
examples:
  odradek transactions find-hanging
  odradek transactions find-hanging orders:0 --max-transaction-timeout 60
"""

_ABORT_DESCRIPTION = """\
Ends a transaction in one partition: its leader writes an abort marker. For a transaction that
`find-hanging` shows. The coordinator is not told: a transaction that it knows of may then be
aborted here and committed in other partitions.
"""

_ABORT_EXAMPLES = """\
examples:
  odradek transactions abort orders --partition 0 --start-offset 4711
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    list_ = _add_list(actions)

    describe = actions.add_parser(
        "describe",
        help="show producer, state and partitions",
        examples=("odradek transactions describe payments-1",),
    )
    describe.add_argument("ids", nargs="+", metavar="ID", help="a transactional id")

    producers = actions.add_parser(
        "producers",
        help="show the producers of partitions",
        examples=("odradek transactions producers orders:0 --open",),
    )
    producers.add_argument("places", nargs="+", metavar="TOPIC[:N,N…]")
    producers.add_argument(
        "--broker", type=int, metavar="ID", help="as this broker's replica knows them (the leader)"
    )
    producers.add_argument(
        "--open", action="store_true", help="only those that have a transaction open there"
    )

    hanging = actions.add_parser(
        "find-hanging",
        help="find transactions that no coordinator will end",
        description=_HANGING_DESCRIPTION,
        epilog=_HANGING_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_hanging(hanging)
    abort = actions.add_parser(
        "abort",
        help="end a transaction that hangs",
        description=_ABORT_DESCRIPTION,
        epilog=_ABORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_abort(abort)
    for action in (list_, describe, producers, hanging, abort):
        add_json_argument(action)
        add_connection_arguments(action)


def _add_list(actions: "Actions") -> argparse.ArgumentParser:
    list_ = actions.add_parser(
        "list",
        help="list transactional ids",
        examples=("odradek transactions list --state Ongoing",),
    )
    list_.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only in this state, such as Ongoing or PrepareCommit; may be repeated",
    )
    list_.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=int,
        metavar="ID",
        help="only of this producer; may be repeated",
    )
    list_.add_argument(
        "--min-duration",
        type=_not_negative,
        metavar="MS",
        help="only transactions that have been open for longer",
    )
    list_.add_argument(
        "--pattern", metavar="REGEX", help="only ids that match this regular expression"
    )
    return list_


def _add_hanging(hanging: argparse.ArgumentParser) -> None:
    hanging.add_argument("places", nargs="*", metavar="TOPIC[:N,N…]")
    hanging.add_argument(
        "--broker", type=int, metavar="ID", help="only partitions with a replica on this broker"
    )
    hanging.add_argument(
        "--max-transaction-timeout",
        type=_not_negative,
        default=15,
        metavar="MINUTES",
        help="the largest transaction.max.timeout.ms of the brokers (default: 15)",
    )


def _add_abort(abort: argparse.ArgumentParser) -> None:
    abort.add_argument("topic", metavar="TOPIC")
    abort.add_argument("--partition", type=_not_negative, required=True, metavar="N")
    which = abort.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--start-offset",
        type=_not_negative,
        metavar="N",
        help="the first offset of the transaction",
    )
    which.add_argument(
        "--producer-id",
        type=_not_negative,
        metavar="ID",
        help="for brokers before 3.0, with the two epochs",
    )
    abort.add_argument("--producer-epoch", type=_not_negative, metavar="N")
    abort.add_argument("--coordinator-epoch", type=int, metavar="N", help="-1 if it is not known")


def _not_negative(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number
