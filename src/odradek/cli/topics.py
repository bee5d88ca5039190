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
from odradek.cli.inspection.topics import add_describe, id_text, show_topics
from odradek.cli.messages.copying import add_copy_parser, run_copy
from odradek.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from odradek.cli.usage.parser import Actions
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

    create = actions.add_parser(
        "create",
        help="create topics",
        examples=(
            "odradek topics create orders --partitions 6 --config retention.ms=86400000",
            "odradek topics create orders payments --if-not-exists",
        ),
    )
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

    list_ = actions.add_parser("list", help="list topics", examples=("odradek topics list",))
    list_.add_argument("--internal", action="store_true", help="internal topics, too")

    describe = actions.add_parser(
        "describe",
        help="show partitions, replicas and settings",
        examples=("odradek topics describe orders", "odradek topics describe --under-replicated"),
    )
    add_describe(describe)

    _add_changing(actions)
    for action in (create, list_):
        add_json_argument(action)
        add_connection_arguments(action)


def _add_changing(actions: "Actions") -> None:
    alter = actions.add_parser(
        "alter",
        help="add partitions, change settings",
        examples=(
            "odradek topics alter orders --partitions 12",
            "odradek topics alter orders --config retention.ms=3600000 --delete-config segment.ms",
        ),
    )
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

    delete = actions.add_parser(
        "delete",
        help="delete topics and all their messages",
        examples=("odradek topics delete orders --if-exists",),
    )
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="a missing topic is no error")

    add_copy_parser(actions)
    for action in (alter, delete):
        add_json_argument(action)
        add_connection_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if any topic failed."""
    if arguments.action == "copy":
        return run_copy(arguments)
    action = {
        "create": _create,
        "list": _list,
        "describe": show_topics,
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
                    "topic_id": id_text(result.topic_id),
                    "partitions": result.partition_count,
                    "replication_factor": result.replication_factor,
                }
                for name, result in created
            ]
        )
    else:
        verb = "could create" if arguments.validate_only else "created"
        for name, result in created:
            print(f"{verb} {name} with {counted(result.partition_count, 'partition')}")
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
            nothing="no topics; `odradek topics create` makes one",
        )
    return 0


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


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
