"""`odradek cluster describe`: the brokers of a cluster and what each of them bears."""

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    add_connection_arguments,
    add_json_argument,
    report_errors,
    run_with_admin,
)
from odradek.cli.output import bad, counted, good, print_json, print_table, sized

if TYPE_CHECKING:
    from odradek.client.admin import ClusterDescription
    from odradek.client.admin.admin import Admin

__all__ = ["add_describe", "run_describe"]

_DESCRIPTION = """\
Shows the id of the cluster, its controller and its brokers: where they are, how many partitions
they lead and hold, and the size of their replicas. Partitions in trouble are counted.
"""


def add_describe(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    add_json_argument(parser)
    add_connection_arguments(parser)


def run_describe(arguments: argparse.Namespace) -> int:
    """Shows the cluster; returns 1 if a broker could not be asked."""
    return run_with_admin("cluster describe", arguments, lambda admin: _show(admin, arguments))


async def _show(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    cluster = await admin.describe_cluster()
    topics = [
        topic
        for topic in (await admin.describe_topics()).values()
        if not isinstance(topic, ApiError)
    ]
    partitions = [one for topic in topics for one in topic.partitions]
    leaders = Counter(one.leader for one in partitions)
    replicas = Counter(broker for one in partitions for broker in one.replicas)
    sizes: dict[int, int] = {}
    errors: list[ApiError] = []
    for broker, told in (await admin.describe_log_dirs()).items():
        if isinstance(told, ApiError):
            errors.append(told)
            continue
        errors += [one for one in told.values() if isinstance(one, ApiError)]
        sizes[broker] = sum(
            replica.size
            for one in told.values()
            if not isinstance(one, ApiError)
            for replica in one.replicas.values()
        )
    counts = {
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": sum(one.leader < 0 for one in partitions),
        "under_replicated": sum(len(one.isr) < len(one.replicas) for one in partitions),
    }
    rows: list[dict[str, object]] = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "leaders": leaders[node.id],
            "replicas": replicas[node.id],
            "size": sizes.get(node.id),
        }
        for node in cluster.nodes
    ]
    controller = None if cluster.controller is None else cluster.controller.id
    if arguments.json:
        head = {"cluster_id": cluster.cluster_id, "controller": controller}
        print_json({**head, **counts, "brokers": rows})
    else:
        _print(cluster, counts, rows)
    return report_errors("cluster describe", errors)


def _print(
    cluster: "ClusterDescription", counts: dict[str, int], rows: list[dict[str, object]]
) -> None:
    controller = None if cluster.controller is None else cluster.controller.id
    role = "no controller now" if controller is None else f"controller: broker {controller}"
    print(f"cluster {cluster.cluster_id}, {role}")
    print(
        f"{counted(counts['topics'], 'topic')}, {counted(counts['partitions'], 'partition')}: "
        f"{counts['without_leader']:,} without leader, "
        f"{counts['under_replicated']:,} under-replicated"
    )
    print_table(
        ("BROKER", "ADDRESS", "RACK", "ROLE", "LEADERS", "REPLICAS", "SIZE"),
        [
            (
                row["broker"],
                f"{row['host']}:{row['port']}",
                row["rack"],
                good("controller") if row["broker"] == controller else "",
                row["leaders"],
                row["replicas"],
                sized(size) if isinstance(size := row["size"], int) else bad("unknown"),
            )
            for row in rows
        ],
    )
