"""`odradek controller`: makes a running cluster elect a new controller."""

import argparse
from typing import Any

from odradek.cli.output import print_error, print_json

__all__ = ["add_arguments", "run"]

_HELP = """\
Makes the controller resign, so that a new one is elected. The new one reads all metadata from the
store and sends it to every broker: partitions whose leader shows as -1 although a replica in sync
is alive have a leader again, without a restart.

The cost: for about a second no topic can be created or deleted and no leader is elected, and the
metadata of every partition is read and sent again. Clients keep reading and writing. Use it when
metadata is wrong, not routinely.

The command reaches the broker by a socket in its data directory, so it runs on the same machine, as
the user that runs the broker.
"""

_EXAMPLES = """\
examples:
  odradek controller re-elect --data /var/lib/odradek
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    re_elect = actions.add_parser(
        "re-elect",
        help="make the controller resign; the next one sends all metadata to the brokers again",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    re_elect.add_argument(
        "--data",
        metavar="DIR",
        default="odradek-data",
        help="the data directory of the broker, the first of its log.dirs (default: odradek-data)",
    )
    re_elect.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for the outcome (default: 60)",
    )
    re_elect.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Asks the broker; returns 1 if there is none, or no controller was elected."""
    from odradek.broker.control_socket import ask

    directory: str = arguments.data
    try:
        answer = ask(directory, "re-elect-controller", timeout_s=arguments.timeout)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        why = (
            f"no broker takes commands in {directory}: expected the data directory of a running"
            " broker; name the first of its log.dirs, or start it with `odradek serve`"
        )
    except TimeoutError:
        why = f"no answer within {arguments.timeout:g} s; the broker's log may show the reason"
    except PermissionError:
        why = f"not allowed to command the broker in {directory}: run this as the broker's user"
    except (OSError, ValueError) as error:
        why = f"the broker in {directory} gave no valid answer: {error}"
    else:
        if "error" not in answer:
            _print(answer, as_json=arguments.json)
            return 0
        why = str(answer["error"])
    print_error("controller re-elect", why)
    return 1


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print(
        f"controller elected: broker {answer['controller']}, epoch {answer['new_epoch']}"
        f" (before: {answer['old_epoch']})"
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text}")
    return seconds
