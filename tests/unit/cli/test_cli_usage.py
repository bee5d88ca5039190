"""Help and wrong usage of every command: nothing is contacted."""

import shlex
import subprocess
import sys

import pytest

from odradek.cli.main import COMMANDS, _parse
from tests.support.commands import run_command

ACTIONS = [
    "topics create",
    "topics list",
    "topics describe",
    "topics alter",
    "topics delete",
    "configs describe",
    "configs alter",
    "groups list",
    "groups describe",
    "groups reset-offsets",
    "groups delete",
    "groups delete-offsets",
    "transactions list",
    "transactions describe",
    "transactions producers",
    "transactions find-hanging",
    "transactions abort",
    "features list",
    "features update",
    "reassign plan",
    "reassign execute",
    "reassign verify",
    "reassign cancel",
    "reassign list",
    "controller show",
]
# Commands that connect to nothing, or only with one of their actions.
OTHERS = (
    *("serve", "cluster", "topics", "configs", "groups", "reassign", "controller", "log"),
    *("metrics", "pipeline", "transactions", "features"),
)


@pytest.mark.parametrize("command", [*COMMANDS, *ACTIONS])
def test_every_command_has_help(command: str) -> None:
    outcome = run_command(*command.split(), "--help")

    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: odradek {command} ")


def examples_of(command: str) -> list[str]:
    shown = run_command(*command.split(), "--help").out.partition("examples:\n")[2]
    return [line.strip() for line in shown.splitlines()]


@pytest.mark.parametrize("command", ["topics", "configs", "delete-records", "produce", "consume"])
def test_what_people_do_first_is_shown(command: str) -> None:
    assert len(examples_of(command)) >= 2


@pytest.mark.parametrize("command", [*COMMANDS, *ACTIONS, "controller re-elect"])
def test_examples_can_be_typed(command: str) -> None:
    """Every one is understood; what a shell makes of it is left out."""
    for line in examples_of(command):
        words = shlex.split(line.rpartition("| ")[2].partition(" < ")[0], comments=True)
        assert words[0] == "odradek"
        assert _parse(words[1:]).command == command.split()[0], line


@pytest.mark.parametrize("command", [*(c for c in COMMANDS if c not in OTHERS), *ACTIONS])
def test_commands_that_connect_have_the_same_options(command: str) -> None:
    shown = run_command(*command.split(), "--help").out

    for option in ("--bootstrap-server", "localhost:9092", "--request-timeout", "--tls-ca"):
        assert option in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topics create", "TOPIC"),
        ("topics create t --partitions 0", "0 is not a positive number"),
        ("topics create t --partitions x", "invalid _positive value: 'x'"),
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
            "topics list --bootstrap-server nowhere",
            "odradek topics list: --bootstrap-server nowhere: "
            "'nowhere' is not HOST:PORT, an IPv6 host in brackets\n",
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


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["topics", "--help"], ["consume", "--help"]])
def test_help_does_not_wait_for_imports(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from odradek.cli.main import main\n"
        "try:\n"
        f"    main({words!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = ('asyncio', 'ssl', 'socket', 'dataclasses', 'odradek.client', 'odradek.broker')\n"
        "sys.exit(','.join(name for name in heavy if name in sys.modules) or 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )

    assert (result.returncode, result.stderr) == (0, "")
