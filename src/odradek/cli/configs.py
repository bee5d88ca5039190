"""`odradek configs`: shows and changes settings of topics and brokers."""

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
from odradek.cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek.client.admin import ConfigResource
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  odradek configs describe topic orders              # settings that were changed; --all: every key
  odradek configs alter topic orders --set retention.ms=3600000 --delete max.message.bytes
  odradek configs alter broker default --set message.max.bytes=2000000
  odradek configs alter broker-logger 0 --set odradek.network=DEBUG
"""

_NAME_HELP = (
    "topic name, broker id, or name of a subscription to client metrics; `default` means all"
    " brokers"
)
_KINDS = ("topic", "broker", "broker-logger", "client-metrics")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    describe = actions.add_parser(
        "describe",
        help="show settings and where they come from",
        description="Shows the settings that were changed; with --all, those at their default too.",
        examples=(
            "odradek configs describe topic orders",
            "odradek configs describe broker 0 --all",
        ),
    )
    alter = actions.add_parser(
        "alter",
        help="change settings of a running cluster",
        description="Changes settings at once and for good. All changes are made, or none.",
        examples=(
            "odradek configs alter topic orders --set retention.ms=3600000",
            "odradek configs alter broker default --delete message.max.bytes",
        ),
    )
    for action in (describe, alter):
        action.add_argument("kind", choices=_KINDS, metavar="KIND", help=", ".join(_KINDS))
        action.add_argument("name", metavar="NAME", help=_NAME_HELP)
    describe.add_argument("--all", action="store_true", help="settings at their default, too")
    alter.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    alter.add_argument(
        "--delete", action="append", default=[], metavar="KEY", help="back to the default"
    )
    alter.add_argument(
        "--append", action="append", default=[], metavar="KEY=VALUE", help="add to a list"
    )
    alter.add_argument(
        "--subtract", action="append", default=[], metavar="KEY=VALUE", help="remove from a list"
    )
    alter.add_argument(
        "--validate-only", action="store_true", help="only check whether it can be done"
    )
    for action in (describe, alter):
        add_json_argument(action)
        add_connection_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if it failed."""
    action = {"describe": _describe, "alter": _alter}[arguments.action]
    return run_with_admin(
        f"configs {arguments.action}", arguments, lambda admin: action(admin, arguments)
    )


async def _describe(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import ConfigSource
    from odradek.errors import ApiError

    resource = _resource(arguments)
    entries = (await admin.describe_configs([resource]))[resource]
    if isinstance(entries, ApiError):
        return report_errors("configs describe", [entries])
    shown = [
        entry for entry in entries if arguments.all or entry.source is not ConfigSource.DEFAULT
    ]
    if arguments.json:
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source.name.lower(),
                    "read_only": entry.is_read_only,
                    "sensitive": entry.is_sensitive,
                }
                for entry in shown
            ]
        )
    else:
        print_table(
            ("KEY", "VALUE", "SOURCE"),
            [
                (
                    entry.name,
                    "(hidden)" if entry.is_sensitive else entry.value,
                    entry.source.name.lower().replace("_", " "),
                )
                for entry in shown
            ],
        )
    return 0


async def _alter(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import ConfigOperation

    changes = [
        change(key, value)
        for option, change, pairs in (
            ("--set", ConfigOperation.set, arguments.set),
            ("--append", ConfigOperation.append, arguments.append),
            ("--subtract", ConfigOperation.subtract, arguments.subtract),
        )
        for key, value in parse_pairs(option, pairs).items()
    ]
    changes += [ConfigOperation.delete(key) for key in arguments.delete]
    if not changes:
        raise CommandError("nothing to change; give --set, --delete, --append or --subtract")
    resource = _resource(arguments)
    error = (
        await admin.incremental_alter_configs(
            {resource: changes}, validate_only=arguments.validate_only
        )
    )[resource]
    if error is not None:
        return report_errors("configs alter", [error])
    if arguments.json:
        print_json({"altered": [change.name for change in changes]})
    else:
        verb = "could alter" if arguments.validate_only else "altered"
        print(f"{verb} {resource}: {', '.join(change.name for change in changes)}")
    return 0


def _resource(arguments: argparse.Namespace) -> "ConfigResource":
    from odradek.client.admin import ConfigResource, ConfigResourceType

    kind = ConfigResourceType[arguments.kind.upper().replace("-", "_")]
    name: str = arguments.name
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        if kind is ConfigResourceType.BROKER and name == "default":
            name = ""
        elif not (name.isascii() and name.isdecimal()):
            raise CommandError(f"{arguments.kind} {name}: expected a broker id")
    return ConfigResource(kind, name)
