"""The `odradek` command: finds the subcommand, runs it, turns errors into exit codes.

Subcommands are modules of this package, imported when they are called, so that `--help` costs no
more than the interpreter. Exit codes: 0 done, 1 the command found a problem or failed, 2 wrong
usage.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence

from odradek import __version__
from odradek.builds import StaleBuildError, check_sources, name_build
from odradek.cli.output import set_color
from odradek.cli.usage.parser import CommandParser

__all__ = ["COMMANDS", "build_parser", "main"]

# Command -> (module with `add_arguments(parser)` and `run(arguments) -> int`, one line of help).
COMMANDS = {
    "serve": ("odradek.cli.serve", "run a broker"),
    "cluster": ("odradek.cli.cluster", "describe the cluster, or run one on this machine"),
    "topics": ("odradek.cli.topics", "create, list, describe, alter, delete and copy topics"),
    "produce": ("odradek.cli.produce", "send lines, JSON or whole files as messages"),
    "consume": ("odradek.cli.consume", "print the messages of topics"),
    "groups": ("odradek.cli.groups", "show consumer groups, move their offsets"),
    "transactions": ("odradek.cli.transactions.commands", "show transactions, end those that hang"),
    "configs": ("odradek.cli.configs", "show and change settings of topics and brokers"),
    "features": ("odradek.cli.features", "show the features of the cluster, change their levels"),
    "offsets": (
        "odradek.cli.inspection.offsets",
        "show the ends of partitions, and offsets by time",
    ),
    "delete-records": ("odradek.cli.delete_records", "delete the oldest messages of partitions"),
    "quotas": ("odradek.cli.inspection.quotas", "show and change quotas of clients"),
    "log-dirs": ("odradek.cli.inspection.log_dirs", "show data directories and sizes of replicas"),
    "api-versions": ("odradek.cli.api_versions", "show which requests the brokers serve"),
    "reassign": ("odradek.cli.reassign", "move replicas of partitions to other brokers"),
    "elect-leaders": ("odradek.cli.elect_leaders", "move leadership to preferred replicas"),
    "controller": ("odradek.cli.controller", "show the controller, or elect a new one"),
    "metrics": ("odradek.cli.metrics", "show and watch the metrics of a broker"),
    "log": ("odradek.cli.log", "print the files of a log"),
    "pipeline": ("odradek.cli.pipeline", "check, plan and run data pipelines on Spark"),
    "profile": ("odradek.cli.connection.commands", "name clusters, choose the one to work with"),
    "completion": ("odradek.cli.usage.completion", "print completion for bash, zsh or fish"),
}
_EXAMPLES = (
    "odradek serve                                  # a broker on localhost:9092",
    "odradek topics create orders --partitions 6",
    "odradek groups describe billing -b broker-1:9092",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit code.
    """
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        check_sources()
    except StaleBuildError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    try:
        if not words:
            build_parser(words).print_help()
            sys.stdout.flush()
            return 0
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # The reader of the pipe, such as `head`, has ended.
        _discard_output()
        return 1
    except OSError as error:  # Commands handle errors of their files; this one is of the output.
        _discard_output()
        print(f"odradek: cannot write the output: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _run(words: list[str]) -> int:
    try:
        arguments = build_parser(words).parse_args(words)
    except SystemExit:
        sys.stdout.flush()  # Help, whose reader may have ended.
        raise
    set_color(getattr(arguments, "color", "auto"))
    code: int = arguments.run(arguments)
    return code


def build_parser(words: Sequence[str]) -> CommandParser:
    """The parser of all commands, with the options of the one that `words` name."""
    parser = CommandParser(
        prog="odradek",
        description="A distributed commit log that speaks the Kafka wire protocol.",
        examples=_EXAMPLES,
    )
    version = f"odradek {__version__} ({name_build()})"
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in words if word in COMMANDS), None)
    for name, (module_name, summary) in COMMANDS.items():
        command_parser = subparsers.add_parser(name, help=summary, description=summary)
        if name == wanted:
            module = importlib.import_module(module_name)
            module.add_arguments(command_parser)
            command_parser.show_examples_of_actions()
            command_parser.set_defaults(run=module.run)
    return parser


def _prepare_streams() -> None:
    """Makes every text printable, in any locale, and replaces closed streams by /dev/null."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for good
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Keeps the interpreter from complaining that it cannot flush stdout when it exits."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


if __name__ == "__main__":
    sys.exit(main())
