"""`odradek quotas`: limits of clients, users and addresses."""

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
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

_ALTER_DESCRIPTION = """\
Sets quotas of an entity, or removes them. An entity is a user, a client id, both together, or an
address; a default holds for all names that have no quota of their own.

Keys: producer_byte_rate and consumer_byte_rate (bytes a second), request_percentage,
controller_mutation_rate; for addresses connection_creation_rate.
"""
_KINDS = ("user", "client-id", "ip")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    describe = actions.add_parser(
        "describe",
        help="show quotas",
        description="Shows the quotas of the entities that the options name, or all.",
        examples=("odradek quotas describe", "odradek quotas describe --client-id loader"),
    )
    alter = actions.add_parser(
        "alter",
        help="set and remove quotas",
        description=_ALTER_DESCRIPTION,
        examples=(
            "odradek quotas alter --client-id loader --set producer_byte_rate=1048576",
            "odradek quotas alter --default-client-id --delete producer_byte_rate",
        ),
    )
    for action in (describe, alter):
        for kind in _KINDS:
            which = action.add_mutually_exclusive_group()
            which.add_argument(f"--{kind}", metavar="NAME", help=f"this {_noun(kind)}")
            which.add_argument(
                f"--default-{kind}", action="store_true", help=f"the default of every {_noun(kind)}"
            )
    alter.add_argument(
        "--set", action="append", default=[], metavar="KEY=NUMBER", help="may be repeated"
    )
    alter.add_argument(
        "--delete", action="append", default=[], metavar="KEY", help="may be repeated"
    )
    alter.add_argument("--validate-only", action="store_true", help="only check, change nothing")
    for action in (describe, alter):
        add_json_argument(action)
        add_connection_arguments(action)


def _noun(kind: str) -> str:
    return {"user": "user", "client-id": "client id", "ip": "address"}[kind]


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if it failed."""
    work = {"describe": _describe, "alter": _alter}[arguments.action]
    command = f"quotas {arguments.action}"
    return run_with_admin(command, arguments, lambda admin: work(admin, arguments))


async def _describe(admin: "Admin", arguments: argparse.Namespace) -> int:
    found = await admin.describe_client_quotas(_entity(arguments))
    rows = [
        (entity, key, value)
        for entity, quotas in sorted(found.items(), key=lambda item: str(item[0]))
        for key, value in sorted(quotas.items())
    ]
    if arguments.json:
        print_json(
            [
                {"entity": dict(entity.parts), "key": key, "value": value}
                for entity, key, value in rows
            ]
        )
    else:
        print_table(
            ("ENTITY", "QUOTA", "VALUE"),
            [(str(entity), key, _number(value)) for entity, key, value in rows],
            nothing="no quotas",
        )
    return 0


async def _alter(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import QuotaEntity

    parts = _entity(arguments)
    if not parts:
        options = " ".join(f"--{kind}" for kind in _KINDS)
        raise CommandError(f"expected an entity: one of {options}, or of their --default-…")
    changes: dict[str, float | None] = dict.fromkeys(arguments.delete)
    for key, text in parse_pairs("--set", arguments.set).items():
        try:
            changes[key] = float(text)
        except ValueError:
            raise CommandError(f"--set {key}={text}: expected a number") from None
    if not changes:
        raise CommandError("nothing to change; give --set or --delete")
    entity: QuotaEntity = QuotaEntity.of(parts)
    results = await admin.alter_client_quotas(
        {entity: changes}, validate_only=arguments.validate_only
    )
    errors = [error for error in results.values() if error is not None]
    if not errors and arguments.json:
        print_json({"entity": parts, "altered": sorted(changes)})
    elif not errors:
        verb = "could alter" if arguments.validate_only else "altered"
        print(f"{verb} {entity}: {', '.join(sorted(changes))}")
    return report_errors("quotas alter", errors)


def _entity(arguments: argparse.Namespace) -> dict[str, str | None]:
    """The names by kind; None is the default."""
    parts: dict[str, str | None] = {}
    for kind in _KINDS:
        option = kind.replace("-", "_")
        if getattr(arguments, f"default_{option}"):
            parts[kind] = None
        elif (name := getattr(arguments, option)) is not None:
            parts[kind] = name
    return parts


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value
