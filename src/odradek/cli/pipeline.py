"""`odradek pipeline`: data pipelines on Spark, from a file.

Each action is one entry of `ACTIONS`; those that need Spark import it when they run.
Exit codes: 0 done, 1 failed, 2 invalid file or usage, 3 refused (checkpoint, lock, guarantee).
"""

import argparse
import importlib.util
from collections.abc import Callable

from odradek.cli.output import print_error
from odradek.cli.pipelines.file import add_init, add_plan, add_validate
from odradek.cli.pipelines.operations import add_backfill, add_reset, add_status
from odradek.cli.pipelines.run import add_run, add_test

__all__ = ["ACTIONS", "add_arguments", "run"]

# Action -> (one line of help, function that declares its arguments and sets `act`).
ACTIONS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "init": ("write a pipeline to start from", add_init),
    "validate": ("find all problems of a file, without Spark", add_validate),
    "plan": ("show what a run would do, without Spark", add_plan),
    "test": ("run the tests in a file, without a broker", add_test),
    "run": ("run a pipeline on Spark", add_run),
    "backfill": ("run past records through a pipeline again", add_backfill),
    "status": ("show the progress of a pipeline's queries", add_status),
    "reset": ("delete that progress: the next run starts anew", add_reset),
}
_EXAMPLES = {
    "init": ("odradek pipeline init orders.yaml",),
    "validate": ("odradek pipeline validate orders.yaml",),
    "plan": ("odradek pipeline plan orders.yaml",),
    "test": ("odradek pipeline test orders.yaml",),
    "run": (
        "odradek pipeline run orders.yaml",
        "odradek pipeline run orders.yaml --once --set bootstrap=broker-1:9092",
    ),
    "backfill": ("odradek pipeline backfill orders.yaml --from 2026-01-01 --to 2026-02-01",),
    "status": ("odradek pipeline status orders.yaml",),
    "reset": ("odradek pipeline reset orders.yaml",),
}
_NEEDED = ("ruamel.yaml", "sqlglot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, declare) in ACTIONS.items():
        action = actions.add_parser(
            name, help=summary, description=summary, examples=_EXAMPLES.get(name, ())
        )
        action.add_argument(
            "file",
            metavar="FILE",
            nargs="?" if name == "init" else None,
            help="the pipeline: YAML, or Python (.py)",
        )
        action.add_argument(
            "--set",
            dest="settings",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="a value that overrides the file's, by dotted path; may be repeated",
        )
        declare(action)


def run(arguments: argparse.Namespace) -> int:
    """Runs one action."""
    missing = [name for name in _NEEDED if not _is_installed(name)]
    if missing:
        print_error(
            "pipeline",
            f"{' and '.join(missing)} is not installed: pip install 'odradek[spark]'",
        )
        return 1
    code: int = arguments.act(arguments)
    return code


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
