"""`odradek topics`: creates, lists, describes, changes and deletes topics."""

import argparse
from typing import TYPE_CHECKING

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    parse_pairs,
    report_errors,
    run_with_admin,
)
from odradek.cli.messages.copying import add_copy_parser, run_copy
from odradek.cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek.client import PartitionView, TopicView
    from odradek.client.admin import ConfigEntry
    from odradek.client.admin.admin import Admin
    from odradek.errors import ApiError

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  odradek topics create orders --partitions 6 --config retention.ms=86400000
  odradek topics describe orders
  odradek topics describe --under-replicated
  odradek topics alter orders --partitions 12 --delete-config retention.ms
  odradek topics copy orders orders-backup
  odradek topics delete orders --if-exists
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create topics")
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument(
        "--partitions", type=_positive, default=-1, metavar="N", help="default: the broker's"
    )
    create.add_argument(
        "--replication-factor",
        type=_positive,
        default=-1,
        metavar="N",
        help="default: the broker's",
    )
    create.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topic"
    )
    create.add_argument(
        "--if-not-exists", action="store_true", help="a topic that exists is no error"
    )
    create.add_argument(
        "--validate-only", action="store_true", help="only check whether it can be done"
    )

    list_ = actions.add_parser("list", help="list topics")
    list_.add_argument("--internal", action="store_true", help="internal topics, too")

    describe = actions.add_parser("describe", help="show partitions, replicas and settings")
    describe.add_argument("names", nargs="*", metavar="TOPIC", help="default: all topics")
    only = describe.add_mutually_exclusive_group()
    only.add_argument(
        "--under-replicated",
        action="store_true",
        help="only partitions with replicas that are not in sync",
    )
    only.add_argument("--unavailable", action="store_true", help="only partitions without a leader")
    only.add_argument(
        "--under-min-isr",
        action="store_true",
        help="only partitions with fewer replicas in sync than min.insync.replicas",
    )

    alter = actions.add_parser("alter", help="add partitions, change settings")
    alter.add_argument("names", nargs="+", metavar="TOPIC")
    alter.add_argument(
        "--partitions", type=_positive, metavar="N", help="new total, larger than now"
    )
    alter.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="set a setting"
    )
    alter.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="back to the default"
    )

    delete = actions.add_parser("delete", help="delete topics and all their messages")
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a missing topic is no error")

    add_copy_parser(actions)
    for action in (create, list_, describe, alter, delete):
        add_json_argument(action)
        add_connection_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if any topic failed."""
    if arguments.action == "copy":
        return run_copy(arguments)
    action = {
        "create": _create,
        "list": _list,
        "describe": _describe,
        "alter": _alter,
        "delete": _delete,
    }[arguments.action]
    return run_with_admin(
        f"topics {arguments.action}", arguments, lambda admin: action(admin, arguments)
    )


async def _create(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import NewTopic
    from odradek.errors import ApiError, ErrorCode

    configs = parse_pairs("--config", arguments.config)
    topics = [
        NewTopic(
            name=name,
            partition_count=arguments.partitions,
            replication_factor=arguments.replication_factor,
            configs=configs,
        )
        for name in arguments.names
    ]
    results = await admin.create_topics(topics, validate_only=arguments.validate_only)
    errors, created = [], []
    for name, result in results.items():
        if not isinstance(result, ApiError):
            created.append((name, result))
        elif not (arguments.if_not_exists and result.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            errors.append(result)
    if arguments.json:
        print_json(
            [
                {
                    "topic": name,
                    "topic_id": _id_text(result.topic_id),
                    "partitions": result.partition_count,
                    "replication_factor": result.replication_factor,
                }
                for name, result in created
            ]
        )
    else:
        verb = "could create" if arguments.validate_only else "created"
        for name, result in created:
            print(f"{verb} {name} with {_count(result.partition_count, 'partition')}")
    return report_errors("topics create", errors)


async def _list(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    topics = [
        topic
        for topic in (await admin.describe_topics()).values()
        if not isinstance(topic, ApiError) and (arguments.internal or not topic.is_internal)
    ]
    if arguments.json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "partitions": len(topic.partitions),
                    "replication_factor": topic.replication_factor,
                    "internal": topic.is_internal,
                }
                for topic in topics
            ]
        )
    else:
        print_table(
            ("TOPIC", "PARTITIONS", "REPLICAS"),
            [(topic.name, len(topic.partitions), topic.replication_factor) for topic in topics],
        )
    return 0


async def _describe(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import ConfigResource, ConfigResourceType
    from odradek.errors import ApiError

    if arguments.under_replicated or arguments.unavailable or arguments.under_min_isr:
        return await _describe_some(admin, arguments)
    found = await admin.describe_topics(arguments.names or None)
    topics = [topic for topic in found.values() if not isinstance(topic, ApiError)]
    resources = {
        topic.name: ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics
    }
    configs = await admin.describe_configs(list(resources.values())) if topics else {}
    errors = [topic for topic in found.values() if isinstance(topic, ApiError)]
    described = []
    for topic in topics:
        entries = configs[resources[topic.name]]
        if isinstance(entries, ApiError):
            errors.append(entries)
        else:
            described.append((topic, _own_settings(entries)))
    if arguments.json:
        print_json([_topic_json(topic, settings) for topic, settings in described])
    else:
        for number, (topic, settings) in enumerate(described):
            if number:
                print()
            _print_topic(topic, settings)
    return report_errors("topics describe", errors)


async def _describe_some(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    found = await admin.describe_topics(arguments.names or None)
    topics = [topic for topic in found.values() if not isinstance(topic, ApiError)]
    errors = [topic for topic in found.values() if isinstance(topic, ApiError)]
    if arguments.under_replicated:
        adding = await _replicas_being_added(admin)
        rows = [
            (topic, one)
            for topic in topics
            for one in topic.partitions
            if set(one.replicas) - adding.get((topic.name, one.partition), set()) - set(one.isr)
        ]
    elif arguments.unavailable:
        rows = [(topic, one) for topic in topics for one in topic.partitions if one.leader < 0]
    else:
        least = await _min_isr(admin, topics, errors)
        rows = [
            (topic, one)
            for topic in topics
            for one in topic.partitions
            if topic.name in least and len(one.isr) < least[topic.name]
        ]
    if arguments.json:
        print_json([{"topic": topic.name, **_partition_json(one)} for topic, one in rows])
    else:
        print_table(
            ("TOPIC", *_PARTITION_HEADINGS),
            [(topic.name, *_partition_row(one)) for topic, one in rows],
        )
    return report_errors("topics describe", errors)


async def _replicas_being_added(admin: "Admin") -> dict[tuple[str, int], set[int]]:
    """Replicas that are not expected to be in sync yet; none if the caller may not see that."""
    from odradek.errors import ApiError, ErrorCode

    try:
        moving = await admin.list_partition_reassignments()
    except ApiError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}
    return {(tp.topic, tp.partition): set(move.adding) for tp, move in moving.items()}


async def _min_isr(
    admin: "Admin", topics: "list[TopicView]", errors: "list[ApiError]"
) -> dict[str, int]:
    """The setting `min.insync.replicas` of topics; adds the errors of those that have none."""
    from odradek.client.admin import ConfigResource, ConfigResourceType
    from odradek.errors import ApiError

    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    found = await admin.describe_configs(resources, names=["min.insync.replicas"]) if topics else {}
    least = {}
    for resource, entries in found.items():
        if isinstance(entries, ApiError):
            errors.append(entries)
        else:
            for entry in entries:
                least[resource.name] = int(entry.value or 1)
    return least


async def _alter(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import ConfigOperation, ConfigResource, ConfigResourceType
    from odradek.errors import ApiError

    changes = [
        ConfigOperation.set(key, value)
        for key, value in parse_pairs("--config", arguments.config).items()
    ]
    changes += [ConfigOperation.delete(key) for key in arguments.delete_config]
    if not changes and arguments.partitions is None:
        raise CommandError("nothing to change; give --partitions, --config or --delete-config")
    failed: dict[str, ApiError] = {}
    if changes:
        resources = {
            name: ConfigResource(ConfigResourceType.TOPIC, name) for name in arguments.names
        }
        altered = await admin.incremental_alter_configs(dict.fromkeys(resources.values(), changes))
        failed = {name: error for name in arguments.names if (error := altered[resources[name]])}
    growing = [name for name in arguments.names if name not in failed]
    if arguments.partitions is not None and growing:
        grown = await admin.create_partitions(dict.fromkeys(growing, arguments.partitions))
        failed |= {name: told for name, told in grown.items() if isinstance(told, ApiError)}
    return _print_done("altered", "topics alter", arguments, failed)


async def _delete(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ErrorCode

    results = await admin.delete_topics(arguments.names)
    failed = {name: error for name, error in results.items() if error is not None}
    missing = [
        name for name, error in failed.items() if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    if arguments.if_exists:
        for name in missing:
            del failed[name]
        arguments.names = [name for name in arguments.names if name not in missing]
    return _print_done("deleted", "topics delete", arguments, failed)


def _print_done(
    verb: str, command: str, arguments: argparse.Namespace, failed: "dict[str, ApiError]"
) -> int:
    done = [name for name in dict.fromkeys(arguments.names) if name not in failed]
    if arguments.json:
        print_json({verb: done})
    else:
        for name in done:
            print(f"{verb} {name}")
    return report_errors(command, failed.values())


def _own_settings(entries: "list[ConfigEntry]") -> dict[str, str | None]:
    """The settings that were set for the topic itself."""
    from odradek.client.admin import ConfigSource

    return {
        entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC
    }


def _topic_json(topic: "TopicView", settings: dict[str, str | None]) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": _id_text(topic.topic_id),
        "internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "configs": settings,
        "partitions": [_partition_json(one) for one in topic.partitions],
    }


def _partition_json(one: "PartitionView") -> dict[str, object]:
    return {
        "partition": one.partition,
        "leader": one.leader,
        "leader_epoch": one.leader_epoch,
        "replicas": one.replicas,
        "isr": one.isr,
        "offline_replicas": one.offline_replicas,
    }


_PARTITION_HEADINGS = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE")


def _partition_row(one: "PartitionView") -> tuple[object, ...]:
    return (
        one.partition,
        one.leader if one.leader >= 0 else "none",
        one.leader_epoch,
        ",".join(map(str, one.replicas)),
        ",".join(map(str, one.isr)),
        ",".join(map(str, one.offline_replicas)),
    )


def _print_topic(topic: "TopicView", settings: dict[str, str | None]) -> None:
    print(
        f"{topic.name}: {_count(len(topic.partitions), 'partition')}, "
        f"{_count(topic.replication_factor, 'replica')}, id {_id_text(topic.topic_id)}"
    )
    for key, value in settings.items():
        print(f"{key}={value}")
    print_table(_PARTITION_HEADINGS, [_partition_row(one) for one in topic.partitions])


def _id_text(topic_id: bytes) -> str:
    from uuid import UUID

    from odradek.model import uuid_text

    return uuid_text(UUID(bytes=topic_id))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
