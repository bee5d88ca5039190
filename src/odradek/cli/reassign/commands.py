"""`odradek reassign`: moves replicas of partitions to other brokers and data directories."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    report_errors,
    run_with_admin,
)
from odradek.cli.output import print_json, print_table
from odradek.cli.reassign.progress import (
    COMPLETE,
    MOVING,
    current_replicas,
    homes_of,
    progress,
    wait_for_moves,
)
from odradek.cli.reassign.throttles import limit_directory_moves, limit_moves, remove_throttles
from odradek.model import ReplicaId, TopicPartition

if TYPE_CHECKING:
    from odradek.cli.usage.parser import Actions
    from odradek.client import TopicView
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.cluster import ClusterDescription
    from odradek.client.admin.reassignment_plans import ReassignmentPlan

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Moves replicas of partitions to other brokers, while clients read and write. A plan is a JSON file
in the form of Kafka's kafka-reassign-partitions; where it names data directories ("log_dirs"),
replicas move to these. `execute` begins the moves, which go on in the cluster; `verify` shows how
far they are. A second `execute` of a partition overrides the first. `--throttle` leaves room for
clients while replicas are copied; `verify` removes it when no replica of the cluster moves.
"""

_EXAMPLES = """\
examples:
  odradek reassign plan orders --brokers 1,2,3 --out plan.json
  odradek reassign execute plan.json --rollback before.json --wait
  odradek reassign execute plan.json --throttle 50000000
  odradek reassign verify plan.json
  odradek reassign cancel plan.json
"""

_POLL_S = 0.2
# How long replicas that a broker does not have yet are waited for, before they move to a directory.
_NEW_REPLICAS_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    plan = actions.add_parser(
        "plan",
        help="propose replicas for all partitions of topics",
        examples=("odradek reassign plan orders --brokers 1,2,3 --out plan.json",),
    )
    plan.add_argument("names", nargs="+", metavar="TOPIC")
    plan.add_argument(
        "--brokers", required=True, type=_broker_ids, metavar="ID,…", help="brokers to use"
    )
    plan.add_argument(
        "--replication-factor", type=_positive, metavar="N", help="default: as many as now"
    )
    plan.add_argument(
        "--disable-rack-aware", action="store_true", help="do not spread replicas over racks"
    )
    plan.add_argument("--out", metavar="FILE", help="write the plan there")
    plan.add_argument("--rollback", metavar="FILE", help="write the replicas as they are now there")

    execute = actions.add_parser(
        "execute",
        help="begin the moves of a plan",
        examples=("odradek reassign execute plan.json --rollback before.json --wait",),
    )
    execute.add_argument("plan", metavar="FILE")
    execute.add_argument("--rollback", metavar="FILE", help="write the replicas before there")
    execute.add_argument(
        "--keep-replication-factor",
        action="store_true",
        help="refuse partitions whose number of replicas would change",
    )
    execute.add_argument("--wait", action="store_true", help="wait until all moves have ended")
    execute.add_argument(
        "--throttle",
        type=_positive,
        metavar="BYTES",
        help="most bytes a second that a broker sends, or fetches, for moves between brokers",
    )
    execute.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=_positive,
        metavar="BYTES",
        help="most bytes a second that a broker copies between its directories",
    )

    list_ = actions.add_parser(
        "list",
        help="show all moves of the cluster",
        examples=("odradek reassign list",),
    )

    verify, cancel = _add_following(actions)
    for action in (verify, cancel):
        action.add_argument(
            "--preserve-throttles", action="store_true", help="leave throttles as they are"
        )

    for action in (plan, execute, verify, cancel, list_):
        add_json_argument(action)
        add_connection_arguments(action)


def _add_following(
    actions: "Actions",
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    verify = actions.add_parser(
        "verify",
        help="show which moves of a plan have ended",
        examples=("odradek reassign verify plan.json",),
    )
    verify.add_argument("plan", metavar="FILE")

    cancel = actions.add_parser(
        "cancel",
        help="end moves, and return to the replicas before",
        examples=(
            "odradek reassign cancel plan.json",
            "odradek reassign cancel --all",
        ),
    )
    cancel.add_argument("plan", nargs="?", metavar="FILE", help="only partitions of this plan")
    cancel.add_argument("--all", action="store_true", help="all moves of the cluster")
    return verify, cancel


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if a partition failed, or has not moved."""
    action = {
        "plan": _plan,
        "execute": _execute,
        "verify": _verify,
        "cancel": _cancel,
        "list": _list,
    }[arguments.action]
    return run_with_admin(
        f"reassign {arguments.action}", arguments, lambda admin: action(admin, arguments)
    )


# Plan


async def _plan(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin.reassignment_plans import encode_reassignments
    from odradek.errors import ApiError

    cluster = await admin.describe_cluster()
    found = await admin.describe_topics(list(dict.fromkeys(arguments.names)))
    errors = [topic for topic in found.values() if isinstance(topic, ApiError)]
    if errors:
        return report_errors("reassign plan", errors)
    topics = [topic for topic in found.values() if not isinstance(topic, ApiError)]
    proposed = propose(
        topics,
        cluster,
        arguments.brokers,
        replication_factor=arguments.replication_factor,
        is_rack_aware=not arguments.disable_rack_aware,
    )
    current = {
        TopicPartition(topic.name, one.partition): tuple(one.replicas)
        for topic in topics
        for one in topic.partitions
    }
    _write_plan(arguments.out, proposed)
    _write_plan(arguments.rollback, current)
    if arguments.json:
        print_json(encode_reassignments(proposed))
    else:
        print_table(
            ("TOPIC", "PARTITION", "REPLICAS", "PROPOSED"),
            [
                (tp.topic, tp.partition, _ids(current[tp]), _ids(target))
                for tp, target in sorted(proposed.items())
            ],
        )
    return 0


def propose(
    topics: "Sequence[TopicView]",
    cluster: "ClusterDescription",
    broker_ids: Sequence[int],
    *,
    replication_factor: int | None,
    is_rack_aware: bool,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas for all partitions of topics on the given brokers, as new topics would get them.

    Raises:
        CommandError: A broker is not there, or only some of them have a rack.
        ApiError: There are fewer brokers than replicas.
    """
    import random

    from odradek.metadata.placement import BrokerRack, assign_replicas

    nodes = {node.id: node for node in cluster.nodes}
    missing = sorted(set(broker_ids) - nodes.keys())
    if missing:
        raise CommandError(
            f"--brokers: {_ids(missing)} not there; the cluster has {_ids(sorted(nodes))}"
        )
    racks = {broker_id: nodes[broker_id].rack for broker_id in broker_ids}
    if is_rack_aware and len({rack is None for rack in racks.values()}) > 1:
        without = [broker_id for broker_id, rack in racks.items() if rack is None]
        raise CommandError(
            f"brokers {_ids(without)} have no rack and others do; set broker.rack on all brokers,"
            " or plan with --disable-rack-aware"
        )
    brokers = [BrokerRack(b, racks[b] if is_rack_aware else None) for b in broker_ids]
    proposed = {}
    for topic in topics:
        assignment = assign_replicas(
            brokers,
            partition_count=len(topic.partitions),
            replication_factor=replication_factor or topic.replication_factor,
            random=random.Random(),  # noqa: S311 - to spread load
        )
        for number, one in enumerate(topic.partitions):
            proposed[TopicPartition(topic.name, one.partition)] = assignment[number].replicas
    return proposed


# Execute, verify, cancel


async def _execute(admin: "Admin", arguments: argparse.Namespace) -> int:
    import asyncio

    plan = _read_plan(arguments.plan)
    if arguments.rollback is not None:
        before = await homes_of(admin, plan.directories)
        _write_plan(
            arguments.rollback,
            await current_replicas(admin, plan.replicas),
            {replica: paths[0] for replica, paths in before.items() if paths[0] is not None},
        )
    if arguments.throttle is not None:
        current = await current_replicas(admin, plan.replicas)
        await limit_moves(admin, plan.replicas, current, arguments.throttle)
    if arguments.replica_alter_log_dirs_throttle is not None:
        brokers = {replica.broker for replica in plan.directories}
        await limit_directory_moves(admin, brokers, arguments.replica_alter_log_dirs_throttle)
    # Before the moves between brokers: new replicas are then created where they belong.
    absent = await _move_directories(admin, plan.directories)
    results = await admin.alter_partition_reassignments(
        plan.replicas, allow_replication_factor_change=not arguments.keep_replication_factor
    )
    errors = [error for error in results.values() if error is not None]
    begun = _part_of(plan, [tp for tp, error in results.items() if error is None])
    deadline = asyncio.get_running_loop().time() + _NEW_REPLICAS_S
    while absent := {
        replica: absent[replica] for replica in begun.directories if replica in absent
    }:
        absent = await _move_directories(admin, absent)
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(_POLL_S)
    states, homes = await (wait_for_moves if arguments.wait else progress)(admin, begun)
    _print_states(arguments, begun, states, homes)
    is_limited = arguments.throttle or arguments.replica_alter_log_dirs_throttle
    if arguments.wait and is_limited and not errors:
        await _end_throttles(admin, arguments, plan.replicas, states)
    if (code := report_errors("reassign execute", errors)) or not arguments.wait:
        return code
    return 0 if set(states.values()) <= {COMPLETE} else 1


async def _move_directories(
    admin: "Admin", targets: Mapping[ReplicaId, str]
) -> dict[ReplicaId, str]:
    """Begins moves to directories; returns those of replicas that are not there yet.

    Raises:
        CommandError: A broker refuses a move.
    """
    from odradek.errors import ErrorCode

    if not targets:
        return {}
    results = await admin.alter_replica_log_dirs(targets)
    absent = {
        replica: targets[replica]
        for replica, error in results.items()
        if error is not None and error.code is ErrorCode.REPLICA_NOT_AVAILABLE
    }
    refused = [str(e) for r, e in results.items() if e is not None and r not in absent]
    if refused:
        raise CommandError("; ".join(refused))
    return absent


def _part_of(plan: "ReassignmentPlan", partitions: Sequence[TopicPartition]) -> "ReassignmentPlan":
    wanted = set(partitions)
    return type(plan)(
        {tp: plan.replicas[tp] for tp in partitions},
        {replica: path for replica, path in plan.directories.items() if replica.tp in wanted},
    )


async def _verify(admin: "Admin", arguments: argparse.Namespace) -> int:
    plan = _read_plan(arguments.plan)
    states, homes = await progress(admin, plan)
    _print_states(arguments, plan, states, homes)
    if not arguments.preserve_throttles:
        await _end_throttles(admin, arguments, plan.replicas, states)
    return 0 if set(states.values()) == {COMPLETE} else 1


async def _end_throttles(
    admin: "Admin",
    arguments: argparse.Namespace,
    partitions: Iterable[TopicPartition],
    states: Mapping[TopicPartition, str],
) -> None:
    """Removes throttles, unless a partition moves still, and tells so."""
    if MOVING in states.values():
        return
    removed = await remove_throttles(admin, (tp.topic for tp in partitions))
    if removed and not arguments.json:
        print(f"throttles removed from {', '.join(removed)}")


async def _cancel(admin: "Admin", arguments: argparse.Namespace) -> int:
    if (arguments.plan is None) is not arguments.all:
        raise CommandError("expected either a FILE or --all")
    plan = None if arguments.all else _read_plan(arguments.plan)
    moving = await admin.list_partition_reassignments(None if plan is None else plan.replicas)
    results = await admin.alter_partition_reassignments(dict.fromkeys(moving))
    cancelled = [tp for tp, error in results.items() if error is None]
    if plan is not None:
        homes = await homes_of(admin, plan.directories)
        between = {
            replica: current
            for replica, (current, future) in homes.items()
            if current is not None and future is not None
        }
        await _move_directories(admin, between)
        cancelled += [replica.tp for replica in between if replica.tp not in cancelled]
    is_refused = any(error is not None for error in results.values())
    if not (is_refused or arguments.preserve_throttles):
        await _end_throttles(admin, arguments, plan.replicas if plan else moving, {})
    if arguments.json:
        print_json(
            {"cancelled": [{"topic": tp.topic, "partition": tp.partition} for tp in cancelled]}
        )
    else:
        for tp in cancelled:
            print(f"cancelled {tp}")
        if not cancelled and not moving:
            print("no replica of these partitions is being moved")
    return report_errors("reassign cancel", [e for e in results.values() if e is not None])


async def _list(admin: "Admin", arguments: argparse.Namespace) -> int:
    moving = await admin.list_partition_reassignments()
    if arguments.json:
        print_json(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "replicas": move.replicas,
                    "adding": move.adding,
                    "removing": move.removing,
                }
                for tp, move in moving.items()
            ]
        )
    else:
        print_table(
            ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"),
            [
                (
                    tp.topic,
                    tp.partition,
                    _ids(move.replicas),
                    _ids(move.adding),
                    _ids(move.removing),
                )
                for tp, move in moving.items()
            ],
        )
    return 0


def _print_states(
    arguments: argparse.Namespace,
    plan: "ReassignmentPlan",
    states: Mapping[TopicPartition, str],
    homes: Mapping[ReplicaId, str],
) -> None:
    targets = plan.replicas
    of: dict[TopicPartition, list[dict[str, object]]] = {}
    for replica, state in homes.items():
        row: dict[str, object] = {
            "broker": replica.broker,
            "path": plan.directories[replica],
            "state": state,
        }
        of.setdefault(replica.tp, []).append(row)
    if arguments.json:
        print_json(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "target": list(targets[tp]),
                    "state": state,
                    **({"log_dirs": of[tp]} if tp in of else {}),
                }
                for tp, state in sorted(states.items())
            ]
        )
    else:
        print_table(
            ("TOPIC", "PARTITION", "TARGET", "STATE"),
            [
                (tp.topic, tp.partition, _ids(targets[tp]), state)
                for tp, state in sorted(states.items())
            ],
        )
        if homes:
            print()
            print_table(
                ("TOPIC", "PARTITION", "BROKER", "DIRECTORY", "STATE"),
                [
                    (tp.topic, tp.partition, broker, plan.directories[replica], state)
                    for replica, state in sorted(homes.items())
                    for tp, broker in [replica]
                ],
            )


# Files and options


def _read_plan(path: str) -> "ReassignmentPlan":
    from pathlib import Path

    from odradek.client.admin.reassignment_plans import ReassignmentFileError, parse_reassignments

    try:
        return parse_reassignments(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
    except ReassignmentFileError as error:
        raise CommandError(f"{path}: {error}") from error


def _write_plan(
    path: str | None,
    replicas: Mapping[TopicPartition, Sequence[int]],
    directories: Mapping[ReplicaId, str] | None = None,
) -> None:
    if path is None:
        return
    import json
    from pathlib import Path

    from odradek.client.admin.reassignment_plans import encode_reassignments

    try:
        document = json.dumps(encode_reassignments(replicas, directories))
        Path(path).write_text(document + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error}") from error


def _ids(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))


def _broker_ids(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text}: expected broker ids like 1,2,3")
    return list(dict.fromkeys(map(int, parts)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
