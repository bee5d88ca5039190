"""`odradek controller`: shows the controller of a cluster, or makes it elect a new one."""

import argparse
from typing import TYPE_CHECKING, Any

from odradek.cli.connecting import add_connection_arguments, add_json_argument, run_with_admin
from odradek.cli.output import print_error, print_json, print_table

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

_SHOW_HELP = """\
Shows which broker is the controller, all brokers, and how many partitions await its work: those
without a leader, those whose replicas are not all in sync, and those whose replicas are moving.
"""

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

    show = actions.add_parser(
        "show",
        help="show the controller, the brokers and what awaits work",
        description=_SHOW_HELP,
        examples=("odradek controller show",),
    )
    add_json_argument(show)
    add_connection_arguments(show)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if it failed."""
    if arguments.action == "show":
        return run_with_admin("controller show", arguments, lambda admin: _show(admin, arguments))
    return _re_elect(arguments)


async def _show(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    cluster = await admin.describe_cluster()
    topics = [t for t in (await admin.describe_topics()).values() if not isinstance(t, ApiError)]
    partitions = [one for topic in topics for one in topic.partitions]
    moving = await admin.list_partition_reassignments()
    controller_id = None if cluster.controller is None else cluster.controller.id
    counts = {
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": sum(one.leader < 0 for one in partitions),
        "under_replicated": sum(len(one.isr) < len(one.replicas) for one in partitions),
        "moving": len(moving),
    }
    if arguments.json:
        print_json(
            {
                "cluster_id": cluster.cluster_id,
                "controller": controller_id,
                "brokers": [
                    {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
                    for node in cluster.nodes
                ],
                **counts,
            }
        )
        return 0
    if controller_id is None:
        print(f"cluster {cluster.cluster_id} has no controller now")
    else:
        print(f"cluster {cluster.cluster_id}, controller: broker {controller_id}")
    print(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items()))
    print_table(
        ("BROKER", "ADDRESS", "RACK", "ROLE"),
        [
            (
                node.id,
                f"{node.host}:{node.port}",
                node.rack or "",
                "controller" if node.id == controller_id else "",
            )
            for node in cluster.nodes
        ],
    )
    return 0


def _re_elect(arguments: argparse.Namespace) -> int:
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
