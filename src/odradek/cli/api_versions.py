"""`odradek api-versions`: shows which requests the brokers serve."""

import argparse
from typing import TYPE_CHECKING

from odradek.cli.connecting import add_connection_arguments, add_json_argument, run_with_admin
from odradek.cli.output import print_json, print_table

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Shows for every broker the requests it serves, in which versions, and the newest version that this
client also speaks (USABLE; empty if there is none).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = "examples:\n  odradek api-versions\n  odradek api-versions --json"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_json_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Asks every broker and prints the answers."""
    return run_with_admin("api-versions", arguments, lambda admin: _show(admin, arguments))


async def _show(admin: "Admin", arguments: argparse.Namespace) -> int:
    brokers = await admin.describe_api_versions()
    if arguments.json:
        print_json(
            [
                {
                    "broker": broker.node_id,
                    "host": broker.host,
                    "port": broker.port,
                    "apis": [
                        {
                            "key": api.key,
                            "name": api.name,
                            "min": api.versions.first,
                            "max": api.versions.last,
                            "usable": api.usable,
                        }
                        for api in broker.apis
                    ],
                }
                for broker in brokers
            ]
        )
    else:
        print_table(
            ("BROKER", "KEY", "API", "VERSIONS", "USABLE"),
            [
                (broker.node_id, api.key, api.name, api.versions, api.usable)
                for broker in brokers
                for api in broker.apis
            ],
        )
    return 0
