"""`odradek features`: shows the features of the cluster, and puts levels of them in force."""

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

_UPDATE_DESCRIPTION = """\
Puts levels of features in force for the whole cluster. Clients notice while they run. Level 0 takes
a feature back.
"""

_UPDATE_EXAMPLES = """\
examples:
  odradek features update transaction.version=2
  odradek features update transaction.version=0 --downgrade
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    list_ = actions.add_parser(
        "list", help="show features and their levels", examples=("odradek features list",)
    )
    update = actions.add_parser(
        "update",
        help="change the levels of features",
        description=_UPDATE_DESCRIPTION,
        epilog=_UPDATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    update.add_argument("levels", nargs="+", metavar="FEATURE=LEVEL")
    way = update.add_mutually_exclusive_group()
    way.add_argument(
        "--downgrade", action="store_true", help="accept a lower level that loses nothing"
    )
    way.add_argument(
        "--unsafe-downgrade", action="store_true", help="accept any lower level, whatever is lost"
    )
    update.add_argument("--validate-only", action="store_true", help="only check, change nothing")
    for action in (list_, update):
        add_json_argument(action)
        add_connection_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if a feature was refused."""
    work = {"list": _list, "update": _update}[arguments.action]
    command = f"features {arguments.action}"
    return run_with_admin(command, arguments, lambda admin: work(admin, arguments))


async def _list(admin: "Admin", arguments: argparse.Namespace) -> int:
    features = await admin.describe_features()
    if arguments.json:
        print_json([one._asdict() for one in features])
    else:
        print_table(("FEATURE", "MIN-SUPPORTED", "MAX-SUPPORTED", "LEVEL"), features)
    return 0


async def _update(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.admin import FeatureUpgrade

    levels = {}
    for name, text in parse_pairs("FEATURE=LEVEL", arguments.levels).items():
        if not text.isdecimal() or int(text) > 32_767:
            raise CommandError(f"{name}={text}: expected a level from 0 to 32767")
        levels[name] = int(text)
    upgrade = FeatureUpgrade.UPGRADE
    if arguments.downgrade:
        upgrade = FeatureUpgrade.SAFE_DOWNGRADE
    elif arguments.unsafe_downgrade:
        upgrade = FeatureUpgrade.UNSAFE_DOWNGRADE
    results = await admin.update_features(
        levels, upgrade=upgrade, validate_only=arguments.validate_only
    )
    done = {name: levels[name] for name, error in results.items() if error is None}
    if arguments.json:
        print_json(done)
    else:
        verb = "can have" if arguments.validate_only else "has"
        for name, level in done.items():
            print(f"{name} {verb} level {level}")
    return report_errors(
        "features update", [error for error in results.values() if error is not None]
    )
