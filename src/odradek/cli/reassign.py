"""`odradek reassign`: moves replicas of partitions to other brokers."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    report_errors,
    run_with_admin,
)
from odradek.cli.output import print_json, print_table
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.client import TopicView
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.cluster import ClusterDescription

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Moves replicas of partitions to other brokers, while clients read and write. A plan is a JSON file
in the form of Kafka's kafka-reassign-partitions. `execute` begins the moves, which go on in the
cluster; `verify` shows how far they are. A second `execute` of a partition overrides the first.
"""

_EXAMPLES = """\
examples:
  odradek reassign plan orders --brokers 1,2,3 --out plan.json
  odradek reassign execute plan.json --rollback before.json --wait
  odradek reassign verify plan.json
  odradek reassign cancel plan.json
"""

_POLL_S = 0.2

COMPLETE, MOVING, NOT_THERE = "complete", "in progress", "not at its target"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    plan = actions.add_parser("plan", help="propose replicas for all partitions of topics")
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

    execute = actions.add_parser("execute", help="begin the moves of a plan")
    execute.add_argument("plan", metavar="FILE")
    execute.add_argument("--rollback", metavar="FILE", help="write the replicas before there")
    execute.add_argument(
        "--keep-replication-factor",
        action="store_true",
        help="refuse partitions whose number of replicas would change",
    )
    execute.add_argument("--wait", action="store_true", help="wait until all moves have ended")

    verify = actions.add_parser("verify", help="show which moves of a plan have ended")
    verify.add_argument("plan", metavar="FILE")

    cancel = actions.add_parser("cancel", help="end moves, and return to the replicas before")
    cancel.add_argument("plan", nargs="?", metavar="FILE", help="only partitions of this plan")
    cancel.add_argument("--all", action="store_true", help="all moves of the cluster")

    list_ = actions.add_parser("list", help="show all moves of the cluster")

    for action in (plan, execute, verify, cancel, list_):
        add_json_argument(action)
        add_connection_arguments(action)


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
    targets = _read_plan(arguments.plan)
    if arguments.rollback is not None:
        _write_plan(arguments.rollback, await _current(admin, targets))
    results = await admin.alter_partition_reassignments(
        targets, allow_replication_factor_change=not arguments.keep_replication_factor
    )
    errors = [error for error in results.values() if error is not None]
    begun = {tp: targets[tp] for tp, error in results.items() if error is None}
    states = await _states(admin, begun)
    if arguments.wait:
        import asyncio

        while MOVING in states.values():
            await asyncio.sleep(_POLL_S)
            states = await _states(admin, begun)
    _print_states(arguments, begun, states)
    return report_errors("reassign execute", errors)


async def _verify(admin: "Admin", arguments: argparse.Namespace) -> int:
    targets = _read_plan(arguments.plan)
    states = await _states(admin, targets)
    _print_states(arguments, targets, states)
    return 0 if set(states.values()) == {COMPLETE} else 1


async def _cancel(admin: "Admin", arguments: argparse.Namespace) -> int:
    if (arguments.plan is None) is not arguments.all:
        raise CommandError("expected either a FILE or --all")
    wanted = None if arguments.all else _read_plan(arguments.plan)
    moving = await admin.list_partition_reassignments(wanted)
    results = await admin.alter_partition_reassignments(dict.fromkeys(moving))
    cancelled = [tp for tp, error in results.items() if error is None]
    if arguments.json:
        print_json(
            {"cancelled": [{"topic": tp.topic, "partition": tp.partition} for tp in cancelled]}
        )
    else:
        for tp in cancelled:
            print(f"cancelled {tp}")
        if not moving:
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


async def _states(
    admin: "Admin", targets: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, str]:
    """How far each partition is; one that is moving elsewhere is not at its target."""
    if not targets:
        return {}
    moving = await admin.list_partition_reassignments(targets)
    current = await _current(admin, targets)
    states = {}
    for tp, target in targets.items():
        move = moving.get(tp)
        if move is not None:
            goal = [replica for replica in move.replicas if replica not in move.removing]
            states[tp] = MOVING if goal == list(target) else NOT_THERE
        else:
            states[tp] = COMPLETE if current.get(tp) == tuple(target) else NOT_THERE
    return states


async def _current(
    admin: "Admin", targets: Mapping[TopicPartition, object]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of those partitions that exist."""
    from odradek.errors import ApiError

    found = await admin.describe_topics(sorted({tp.topic for tp in targets}))
    return {
        tp: tuple(one.replicas)
        for topic in found.values()
        if not isinstance(topic, ApiError)
        for one in topic.partitions
        if (tp := TopicPartition(topic.name, one.partition)) in targets
    }


def _print_states(
    arguments: argparse.Namespace,
    targets: Mapping[TopicPartition, Sequence[int]],
    states: Mapping[TopicPartition, str],
) -> None:
    if arguments.json:
        print_json(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "target": list(targets[tp]),
                    "state": state,
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


# Files and options


def _read_plan(path: str) -> dict[TopicPartition, tuple[int, ...]]:
    from pathlib import Path

    from odradek.client.admin.reassignment_plans import ReassignmentFileError, parse_reassignments

    try:
        return parse_reassignments(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
    except ReassignmentFileError as error:
        raise CommandError(f"{path}: {error}") from error


def _write_plan(path: str | None, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    if path is None:
        return
    import json
    from pathlib import Path

    from odradek.client.admin.reassignment_plans import encode_reassignments

    try:
        Path(path).write_text(json.dumps(encode_reassignments(replicas)) + "\n", encoding="utf-8")
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
