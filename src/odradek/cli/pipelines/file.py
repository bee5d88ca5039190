"""`odradek pipeline init`, `validate` and `plan`: the actions that need no Spark."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from odradek.cli.output import print_error, print_json, print_table

if TYPE_CHECKING:
    from odradek.spark.pipeline.engine.problems import NotReadyError
    from odradek.spark.pipeline.file import Loaded
    from odradek.spark.pipeline.graph.model import Pipeline

__all__ = [
    "add_init",
    "add_plan",
    "add_validate",
    "load_file",
    "parse_settings",
    "print_error_line",
    "print_problems",
    "print_unready",
]

_COMMAND = "pipeline"


def add_init(parser: argparse.ArgumentParser) -> None:
    """Declares `init`."""
    parser.description = (
        "Writes a pipeline that runs as it is to FILE, and the files it needs beside it. Files that"
        " exist are not overwritten."
    )
    parser.add_argument(
        "--template",
        metavar="NAME",
        default=None,
        help="which pipeline (default: orders); see --list-templates",
    )
    parser.add_argument(
        "--list-templates", action="store_true", help="list the templates and write nothing"
    )
    parser.set_defaults(act=_init)


def add_validate(parser: argparse.ArgumentParser) -> None:
    """Declares `validate`."""
    parser.description = "Finds all problems of a file, without Spark."
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--deep", action="store_true", help="let Spark analyse every query, too; takes seconds"
    )
    parser.set_defaults(act=_validate)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Declares `plan`."""
    parser.description = (
        "Shows sources, steps and queries: the checkpoint of each query, the group that shows its "
        "progress, and the guarantee of its sink. Needs no Spark and no broker."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(act=_plan)


def load_file(arguments: argparse.Namespace, *, master: str | None = None) -> "Loaded | None":
    """The pipeline of FILE with `--set` in it; None, with the error printed, for a wrong --set."""
    from odradek.spark.pipeline.file import load

    settings = parse_settings(arguments.settings)
    if settings is None:
        return None
    return load(arguments.file, settings=settings, master=master, environment=os.environ)


def parse_settings(words: list[str]) -> dict[str, str] | None:
    """Reads `KEY=VALUE` words; None, with the error printed, if one has another form."""
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            print_error(_COMMAND, f"expected KEY=VALUE after --set, found '{word}'")
            return None
        settings[key] = value
    return settings


def print_problems(loaded: "Loaded") -> None:
    """Prints every problem on a line of its own, in the form that editors parse."""
    for problem in loaded.problems:
        print(problem)


def _init(arguments: argparse.Namespace) -> int:
    from odradek.spark.pipeline.file.problems import suggestion
    from odradek.spark.pipeline.file.starters import DEFAULT, TEMPLATES, read_template

    if arguments.list_templates:
        print_table(["TEMPLATE", "SHOWS"], list(TEMPLATES.items()))
        return 0
    name, path = arguments.template or DEFAULT, arguments.file
    if path is None:
        print_error(_COMMAND, "init needs a FILE to write, such as orders.yaml")
        return 2
    if name not in TEMPLATES:
        print_error(
            _COMMAND,
            f"there is no template {name}{suggestion(name, TEMPLATES)}: there are"
            f" {', '.join(TEMPLATES)}",
        )
        return 2
    if path.endswith(".py"):
        print_error(_COMMAND, f"init writes YAML: expected FILE to end in .yaml, found {path}")
        return 2
    starter = read_template(name)
    folder = os.path.dirname(path)
    texts = {path: starter.for_file(path)}
    texts |= {os.path.join(folder, one): text for one, text in starter.beside.items()}
    if (existing := _other_files(path, texts)) is not None:
        print_error(_COMMAND, f"{existing} exists already, and is not overwritten")
        return 3
    for file, text in texts.items():
        try:
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            print_error(_COMMAND, f"cannot write {file}: {error.strerror}")
            return 1
    print(f"wrote {', '.join(texts)}; next: the commands at the top of {path}")
    return 0


def _other_files(path: str, texts: dict[str, str]) -> str | None:
    """A file that would be overwritten: the pipeline itself, or another file with another text."""
    for file, text in texts.items():
        try:
            with open(file, encoding="utf-8") as stream:
                is_other = file == path or stream.read() != text
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            is_other = os.path.lexists(file)
        if is_other:
            return file
    return None


def _validate(arguments: argparse.Namespace) -> int:
    loaded = load_file(arguments)
    if loaded is None:
        return 2
    if arguments.deep and loaded.pipeline is not None:
        from odradek.cli.pipelines.run import look_deep
        from odradek.errors import ConfigError

        try:
            loaded = look_deep(loaded, loaded.pipeline)
        except ConfigError as error:
            print_error(_COMMAND, f"Spark cannot be started: {error}")
            return 1
    if arguments.json:
        print_json([_as_json(problem) for problem in loaded.problems])
    else:
        print_problems(loaded)
        if loaded.pipeline is not None:
            print(f"{arguments.file}: pipeline '{loaded.pipeline.name}' is valid")
    return 0 if loaded.pipeline is not None else 2


def _plan(arguments: argparse.Namespace) -> int:
    loaded = load_file(arguments)
    if loaded is None:
        return 2
    if loaded.pipeline is None:
        for problem in loaded.problems:
            print_error_line(str(problem))
        return 2
    from odradek.spark.pipeline.graph.plan import plan

    document = plan(loaded.pipeline)
    if arguments.json:
        print_json(document)
    else:
        _print_plan(document)
    return 0


def print_error_line(line: str) -> None:
    """Prints a line on standard error, without a prefix."""
    import sys

    sys.stdout.flush()
    print(line, file=sys.stderr)


def print_unready(error: "NotReadyError", pipeline: "Pipeline") -> None:
    """Prints what a pipeline needs and cannot have, in the form of the problems of its file."""
    from odradek.spark.pipeline.file.problems import mask

    secrets = sorted(pipeline.secrets, key=len, reverse=True)
    for place, message in error.problems:
        print_error_line(f"{place}: error: {mask(message, secrets)}")


def _as_json(problem: Any) -> dict[str, Any]:
    return {
        "file": problem.place.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "severity": str(problem.severity),
        "code": problem.code,
        "message": problem.message,
    }


def _print_plan(document: dict[str, Any]) -> None:
    print(f"pipeline {document['pipeline']}")
    print(f"  bootstrap  {document['bootstrap'] or '-'}")
    print(f"  master     {document['master']}")
    print("sources")
    for name, source in document["sources"].items():
        where = source.get("topics") or source.get("path") or f"{source.get('rows')} rows"
        kind = "stream" if source["stream"] else "static"
        print(f"  {name}: {source['kind']} {_listed(where)} ({kind}){_mark(source)}")
        print(f"    columns    {_listed(source['columns']) if source['columns'] else 'not known'}")
    print("transforms")
    for name, step in document["transforms"].items():
        what = step.get("function") or _listed(step.get("keys") or [])
        print(
            f"  {name}: {step['kind']} {what}".rstrip()
            + f" <- {_listed(step['inputs'])}"
            + _mark(step)
        )
        for state in step["state"]:
            print(f"    state      {state['kind']} by {_listed(state['keys']) or 'nothing'}")
        print(f"    columns    {_listed(step['columns']) if step['columns'] else 'not known'}")
    print("queries")
    for name, query in document["queries"].items():
        print(f"  {name}: {query['kind']} {query['target']} <- {_listed(query['from'])}")
        print(f"    reads      {_listed(query['reads'])}")
        print(f"    output     {query['output_mode']}, {query['trigger']}")
        print(f"    checkpoint {query['checkpoint']}")
        print(f"    group      {query['group']}")
        print(f"    guarantee  {query['guarantee']} ({query['limit']})")


def _listed(value: Any) -> str:
    match value:
        case list():
            return ", ".join(str(one) for one in value)
        case dict():
            return ", ".join(f"{topic}{partitions}" for topic, partitions in value.items())
        case _:
            return str(value)


def _mark(stage: dict[str, Any]) -> str:
    mark = stage["watermark"]
    return f", watermark {mark['column']} {mark['delay_ms']} ms" if mark else ""
