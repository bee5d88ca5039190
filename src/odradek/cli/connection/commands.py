"""`odradek profile`: clusters by name."""

import argparse
import os
import re
import sys

from odradek.cli.connecting import add_connection_arguments, add_json_argument
from odradek.cli.connection.choice import Given, given_by_options, known_keys
from odradek.cli.connection.profiles import Profiles
from odradek.cli.output import CommandError, print_error, print_json, print_table

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Profiles are clusters by name, kept in odradek/profiles.json of the user's configuration directory
($XDG_CONFIG_HOME, or else ~/.config). Commands use the current profile, unless --profile,
ODRADEK_PROFILE, ODRADEK_BOOTSTRAP_SERVERS or --bootstrap-server says otherwise.
"""

_ADD_DESCRIPTION = """\
Keeps the addresses of a cluster and the settings to connect with. Secrets are not kept: a profile
has their place, env:NAME for a variable or file:PATH for a file.
"""

# What file systems, shells and people find easy.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser(
        "add",
        help="add a cluster, or change one",
        description=_ADD_DESCRIPTION,
        examples=(
            "odradek profile add staging -b broker-1:9092,broker-2:9092 --use",
            "odradek profile add live -b live:9093 --tls-ca ca.pem --tls-cert me.pem "
            "-X ssl.key.password=env:KEY_PASSWORD",
            "odradek profile add test --command-config client.properties",
        ),
    )
    add.add_argument("name", metavar="NAME", type=_name)
    add.add_argument("--use", action="store_true", help="make it the current profile")
    add.add_argument("--replace", action="store_true", help="replace a profile of that name")
    add_connection_arguments(add)
    use = actions.add_parser(
        "use",
        help="choose the profile that commands use",
        examples=("odradek profile use staging", "odradek profile use --none"),
    )
    which = use.add_mutually_exclusive_group(required=True)
    which.add_argument("name", metavar="NAME", nargs="?")
    which.add_argument("--none", action="store_true", help="use none from now on")
    list_ = actions.add_parser("list", help="list profiles", examples=("odradek profile list",))
    show = actions.add_parser(
        "show",
        help="show the settings of a profile",
        examples=("odradek profile show", "odradek profile show staging --json"),
    )
    show.add_argument("name", metavar="NAME", nargs="?", help="default: the current profile")
    remove = actions.add_parser(
        "remove", help="remove a profile", examples=("odradek profile remove staging",)
    )
    remove.add_argument("name", metavar="NAME")
    for action in (list_, show):
        add_json_argument(action)


def run(arguments: argparse.Namespace) -> int:
    """Runs the action."""
    action = {"add": _add, "use": _use, "list": _list, "show": _show, "remove": _remove}
    try:
        action[arguments.action](Profiles.load(os.environ), arguments)
    except CommandError as error:
        print_error(f"profile {arguments.action}", str(error))
        return 1
    return 0


def _add(profiles: Profiles, arguments: argparse.Namespace) -> None:
    name: str = arguments.name
    if arguments.profile is not None:
        raise CommandError("--profile: a profile cannot be made of another")
    if name in profiles.by_name and not arguments.replace:
        raise CommandError(f"there is a profile {name!r} already; --replace overwrites it")
    _typed, given = given_by_options(arguments)
    if "bootstrap.servers" not in given:
        raise CommandError("no address; expected --bootstrap-server HOST:PORT")
    for key, one in given.items():
        _check(key, one)
    profiles.by_name[name] = {key: _kept(key, one.value) for key, one in given.items()}
    if arguments.use:
        profiles.current = name
    profiles.save()
    hint = (
        "" if profiles.current == name else f"; `odradek profile use {name}` makes it the current"
    )
    print(f"profile {name} is in {profiles.path}{hint}")


def _kept(key: str, value: str) -> str:
    """The value; paths as they are from every directory."""
    if key.endswith(".location"):
        return os.path.abspath(os.path.expanduser(value))
    if value.startswith("file:"):
        return f"file:{os.path.abspath(os.path.expanduser(value.removeprefix('file:')))}"
    return value


def _check(key: str, given: Given) -> None:
    """Refuses what a command would refuse later.

    Raises:
        CommandError: The setting is unknown, or a secret.
    """
    from odradek.cli.connection.choice import check_known
    from odradek.errors import ConfigError

    known = known_keys()
    check_known(key, given, known)
    declared = known[key]
    if declared.is_sensitive:
        if not given.value.startswith(("env:", "file:")):
            raise CommandError(
                f"{given.named(key)}: profiles keep no secrets; expected env:NAME for a variable "
                "or file:PATH for a file"
            )
        return
    try:
        declared.parse(given.value)
    except ConfigError as error:
        raise CommandError(f"{given.named(key)} {error.value}: {error.why}") from None


def _use(profiles: Profiles, arguments: argparse.Namespace) -> None:
    if arguments.name is not None:
        profiles.settings(arguments.name, named_by="NAME")
    profiles.current = arguments.name
    profiles.save()
    if arguments.name is None:
        print("no profile is used")
    else:
        servers = profiles.by_name[arguments.name]["bootstrap.servers"]
        print(f"commands use profile {arguments.name}: {servers}")


def _list(profiles: Profiles, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(
            [
                {
                    "profile": name,
                    "current": name == profiles.current,
                    "bootstrap_servers": settings.get("bootstrap.servers"),
                    "tls": settings.get("security.protocol") == "SSL",
                }
                for name, settings in sorted(profiles.by_name.items())
            ]
        )
        return
    print_table(
        ("PROFILE", "CURRENT", "BOOTSTRAP-SERVERS", "SECURITY"),
        [
            (
                name,
                "yes" if name == profiles.current else "",
                settings.get("bootstrap.servers"),
                settings.get("security.protocol", "PLAINTEXT"),
            )
            for name, settings in sorted(profiles.by_name.items())
        ],
        nothing="no profiles; `odradek profile add` makes one",
    )


def _show(profiles: Profiles, arguments: argparse.Namespace) -> None:
    name = arguments.name or profiles.current
    if name is None:
        raise CommandError(f"no profile is the current one; {profiles.known()}")
    settings = profiles.settings(name, named_by="NAME")
    if arguments.json:
        print_json({"profile": name, "current": name == profiles.current, "settings": settings})
        return
    if sys.stdout.isatty():
        print(f"# {name}{' (current)' if name == profiles.current else ''}")
    for key, value in sorted(settings.items()):
        print(f"{key}={value}")


def _remove(profiles: Profiles, arguments: argparse.Namespace) -> None:
    profiles.settings(arguments.name, named_by="NAME")
    del profiles.by_name[arguments.name]
    was_current = profiles.current == arguments.name
    if was_current:
        profiles.current = None
    profiles.save()
    print(f"removed profile {arguments.name}{', the current one' if was_current else ''}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name for a profile: expected letters, digits, '.', '_' and '-'"
        )
    return text
