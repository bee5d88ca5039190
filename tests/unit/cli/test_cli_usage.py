"""Help and wrong usage of every command: nothing is contacted."""

import argparse
import itertools
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from odradek.cli.main import COMMANDS, build_parser
from tests.support.commands import run_command


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of its actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers_of(below)


def find_commands() -> dict[str, argparse.ArgumentParser]:
    """Every command and every action of one, by the words to type."""
    found = {}
    for command in COMMANDS:
        branch = next(one for one in build_parser([command])._actions if one.dest == "command")
        assert isinstance(branch, argparse._SubParsersAction)
        for parser in parsers_of(branch.choices[command]):
            found[parser.prog.removeprefix("odradek ")] = parser
    return found


ALL = find_commands()
# Those that speak with a cluster, by what they do: they take its address.
CONNECTING = [name for name, parser in ALL.items() if "-X" in parser._option_string_actions]


def test_the_commands_are_found() -> None:
    assert len(ALL) > 60
    assert {"serve", "topics create", "cluster describe", "profile add", "log dump"} <= set(ALL)
    assert len(CONNECTING) > 35


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_help(command: str) -> None:
    outcome = run_command(*command.split(), "--help")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: odradek {command} ")


def examples_of(command: str) -> list[str]:
    shown = run_command(*command.split(), "--help").out.partition("examples:\n")[2]
    return [line.strip() for line in shown.splitlines()]


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_an_example_that_can_be_typed(command: str) -> None:
    """Every one is understood; what a shell makes of it is left out."""
    examples = examples_of(command)
    assert examples
    for line in examples:
        words = list(_last_command(shlex.split(line, comments=True)))
        assert words[0] == "odradek"
        assert build_parser(words[1:]).parse_args(words[1:]).command == command.split()[0], line


def _last_command(words: list[str]) -> Iterator[str]:
    """The command behind the last pipe of a line, without what it redirects."""
    while "|" in words:
        words = words[words.index("|") + 1 :]
    return itertools.takewhile(lambda word: word not in ("<", ">"), words)


@pytest.mark.parametrize("command", CONNECTING)
def test_commands_that_connect_have_the_same_options(command: str) -> None:
    options = (
        *("-b", "--bootstrap-server", "--profile", "--command-config", "-X", "--request-timeout"),
        *("--tls", "--tls-ca", "--tls-cert", "--tls-key"),
    )

    assert set(options) - set(ALL[command]._option_string_actions) == set()
    assert command == "profile add" or "--json" in ALL[command]._option_string_actions


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topics create", "TOPIC"),
        ("topics create t --partitions 0", "0 is not a positive number"),
        ("topics create t --partitions x", "expected a number, found 'x'"),
        ("produce", "TOPIC"),
        ("produce t --acks 2", "invalid choice: '2'"),
        ("produce t --compression zip", "invalid choice: 'zip'"),
        pytest.param(
            "consume t --from-beginning --partition 0 --offset 3", "not allowed with", id="08:T-3"
        ),
        ("consume", "expected either a TOPIC or --pattern"),
        ("consume t --pattern t.*", "expected either a TOPIC or --pattern"),
        ("consume --pattern t(", "'t(' is no regular expression"),
        ("consume t --group g --offset 3", "--offset cannot go with --group"),
        ("consume t --group g --partition 3", "--partition cannot go with --group"),
        ("consume t --group g --from 1h", "--from cannot go with --group"),
        ("consume t --from yesterday", "'yesterday' is no time"),
        ("consume t --from 1h --from-beginning", "not allowed with"),
        ("consume t --format xml", "a template such as"),
        ("consume t --format {nothing}", "{nothing}: "),
        ("consume t --filter key=", "cannot read '='"),
        ("produce t --json --key k", "cannot go with --json"),
        ("produce t --json --null-marker x", "cannot go with --json"),
        ("produce t --keep-partitions", "--keep-partitions goes with --json"),
        ("produce t --key k --key-separator :", "not allowed with"),
        ("produce t --whole --json", "not allowed with"),
        ("produce t --partition -1", "-1 is negative"),
        ("produce t --unknown file", "unrecognized arguments: --unknown"),
        pytest.param(
            "consume t --partition 0 --offset abc",
            "expected N, -N, earliest or latest, not abc",
            id="08:T-1-neither",
        ),
        ("consume t --max-messages -1", "-1 is negative"),
        ("consume t --timeout nan", "nan is not a time in seconds"),
        ("configs describe user alice", "invalid choice: 'user'"),
        ("delete-records t", "--before"),
        ("delete-records t --before -2", "-2 is neither an offset nor `latest`"),
        ("transactions abort t --partition 0", "one of the arguments --start-offset --producer-id"),
        ("transactions abort t --start-offset 3", "--partition"),
        ("transactions list --min-duration -1", "-1 is negative"),
        ("features update t=1 --downgrade --unsafe-downgrade", "not allowed with"),
        ("topics list --request-timeout 0", "0 is not a time in seconds"),
        ("serve --log-level loud", "invalid choice: 'loud'"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_done(words: str, expected: str) -> None:
    outcome = run_command(*words.split())

    assert (outcome.code, outcome.out) == (2, "")
    assert expected in outcome.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "topics list --bootstrap-server nowhere:x",
            "odradek topics list: --bootstrap-server nowhere:x: "
            "'nowhere:x' is not HOST:PORT, an IPv6 host in brackets\n",
        ),
        (
            "topics list --tls-ca /nowhere.pem",
            "odradek topics list: --tls-ca /nowhere.pem: [Errno 2] No such file or directory\n",
        ),
    ],
    ids=["address", "certificates"],
)
def test_options_that_cannot_be_used_give_one_line(words: str, expected: str) -> None:
    outcome = run_command(*words.split())

    assert (outcome.code, outcome.out, outcome.err) == (1, "", expected)


# Each takes at least some milliseconds to import, and none is needed to print help.
HEAVY = (
    *("asyncio", "ssl", "socket", "json", "datetime"),
    *("odradek.client", "odradek.broker", "odradek.storage", "odradek.protocol"),
)
# Modules that a command may have besides those of the interpreter, argparse and `odradek --help`.
MOST_MODULES = 45


def imported(words: str) -> set[str]:
    """The modules that printing a help imports, beyond those of a bare interpreter."""
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from odradek.cli.main import main\n"
        "try:\n"
        f"    main({words.split()!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('\\n', *(set(sys.modules) - before))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stderr == ""
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.slow
def test_help_does_not_wait_for_imports() -> None:
    first = imported("--help")
    assert first & set(HEAVY) <= {"json"}  # `odradek.builds` reads its list with it.
    assert len(first) < 100
    for command in COMMANDS:
        more = imported(f"{command} --help") - first
        assert more & set(HEAVY) == set(), command
        assert len(more) < MOST_MODULES, command
