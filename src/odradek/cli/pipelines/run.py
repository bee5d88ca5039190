"""`odradek pipeline test` and `run`: the actions that start Spark and use the engine."""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from odradek.cli.output import print_error, print_json
from odradek.cli.pipelines.file import load_file, print_error_line, print_unready

if TYPE_CHECKING:
    from odradek.spark.pipeline.engine.fixtures.fixture_runs import FixtureResult
    from odradek.spark.pipeline.file import Loaded
    from odradek.spark.pipeline.graph.model import Fixture, Pipeline

__all__ = ["add_run", "add_test", "look_deep"]

_COMMAND: Final = "pipeline"
_FAILED, _INVALID, _REFUSED = 1, 2, 3
_GUARANTEE: Final = "P17"
_SQL: Final = "P08"
_SPARK_LEVELS: Final = ("off", "error", "warn", "info")


def add_test(parser: argparse.ArgumentParser) -> None:
    """Declares `test`."""
    parser.description = (
        "Runs the tests in the file: their rows replace the sources and pass through the same "
        "transforms. Needs no broker."
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help="only these tests")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_spark_log(parser)
    parser.set_defaults(act=_test)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declares `run`."""
    parser.description = (
        "Runs the pipeline until it is stopped (Ctrl-C, SIGTERM: after the current batch; twice: "
        "at once). Shows a table on a terminal, else a line of JSON for each batch."
    )
    parser.add_argument(
        "--once", action="store_true", help="end when all records present now have been read"
    )
    parser.add_argument(
        "--sink", action="append", metavar="NAME", help="only this sink; may be repeated"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master; overrides that of the file")
    parser.add_argument(
        "--metrics", type=int, metavar="PORT", help="serve metrics for Prometheus on this port"
    )
    _add_spark_log(parser)
    parser.set_defaults(act=_run)


def _add_spark_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spark-log",
        choices=_SPARK_LEVELS,
        default="off",
        help="level of Spark's own log on standard error (default: off)",
    )


def _test(arguments: argparse.Namespace) -> int:
    pipeline, code = _pipeline(arguments)
    if pipeline is None:
        return code
    fixtures = _chosen(pipeline, arguments.name)
    if fixtures is None:
        return _INVALID
    if not fixtures:
        print_error(_COMMAND, f"{arguments.file} has no tests")
        return 0
    from odradek.errors import ConfigError
    from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
    from odradek.spark.pipeline.engine.fixtures.fixture_runs import run_fixture
    from odradek.spark.pipeline.engine.fixtures.local_session import local_session

    schemas = AvroSchemas(pipeline.registry)
    results = []
    try:
        with local_session(pipeline, arguments.spark_log) as session:
            for fixture in fixtures:
                result = run_fixture(session, pipeline, fixture, schemas)
                results.append(result)
                if not arguments.json:
                    _print_result(result)
    except ConfigError as error:
        print_error(_COMMAND, str(error))
        return _FAILED
    failed = sum(not result.is_passed for result in results)
    if arguments.json:
        print_json(
            [
                {"test": one.name, "passed": one.is_passed, "differences": one.lines()}
                for one in results
            ]
        )
    else:
        print(f"{len(results) - failed} passed, {failed} failed")
    return _FAILED if failed else 0


def _print_result(result: "FixtureResult") -> None:
    print(f"{'ok    ' if result.is_passed else 'FAILED'} {result.name}")
    for line in result.lines():
        print(f"  {line}")
    sys.stdout.flush()


def look_deep(loaded: "Loaded", pipeline: "Pipeline") -> "Loaded":
    """Adds the problems that Spark finds in the queries of a pipeline to those already known."""
    from odradek.spark.pipeline.engine.fixtures.deep import deep_problems
    from odradek.spark.pipeline.engine.fixtures.local_session import local_session
    from odradek.spark.pipeline.file import Loaded
    from odradek.spark.pipeline.file.problems import Problem, Severity, mask

    secrets = sorted(pipeline.secrets, key=len, reverse=True)
    with local_session(pipeline) as session:
        found = [
            Problem(place, Severity.ERROR, _SQL, mask(message, secrets))
            for place, message in deep_problems(session, pipeline)
        ]
    return Loaded(None if found else pipeline, (*loaded.problems, *found))


def _run(arguments: argparse.Namespace) -> int:
    pipeline, code = _pipeline(arguments, master=arguments.master)
    if pipeline is None:
        return code
    from odradek.spark.pipeline.graph.queries import query_names

    known = query_names(pipeline)
    if unknown := [name for name in arguments.sink or () if name not in known]:
        print_error(
            _COMMAND,
            f"there is no sink {', '.join(unknown)}: {pipeline.name} has {', '.join(known)}",
        )
        return _INVALID
    from odradek.errors import ConfigError
    from odradek.spark.pipeline.engine.fixtures.local_session import quieten_pyspark
    from odradek.spark.pipeline.engine.problems import (
        NotReadyError,
        PipelineError,
        RefusedError,
    )
    from odradek.spark.pipeline.engine.running.run import run_pipeline
    from odradek.spark.pipeline.file.problems import mask
    from odradek.spark.runtime.shipping import VersionsDifferError

    quieten_pyspark()
    try:
        is_good = run_pipeline(
            pipeline,
            is_once=arguments.once,
            sinks=arguments.sink,
            metrics_port=arguments.metrics,
            spark_log=arguments.spark_log,
        )
    except RefusedError as error:
        print_error(_COMMAND, mask(str(error), pipeline.secrets))
        return _REFUSED
    except NotReadyError as error:
        print_unready(error, pipeline)
        return _FAILED
    except (PipelineError, ConfigError) as error:
        print_error(_COMMAND, mask(str(error), pipeline.secrets))
        return _FAILED
    except VersionsDifferError as error:
        print_error_line(str(error))  # A table, of several lines.
        return _FAILED
    return 0 if is_good else _FAILED


def _pipeline(
    arguments: argparse.Namespace, *, master: str | None = None
) -> "tuple[Pipeline | None, int]":
    """The pipeline of FILE, or the exit code; all problems are printed."""
    loaded = load_file(arguments, master=master)
    if loaded is None:
        return None, _INVALID
    for problem in loaded.problems:
        print_error_line(str(problem))
    if loaded.pipeline is not None:
        return loaded.pipeline, 0
    errors = {problem.code for problem in loaded.problems if str(problem.severity) == "error"}
    return None, _REFUSED if errors == {_GUARANTEE} else _INVALID


def _chosen(pipeline: "Pipeline", names: list[str]) -> "list[Fixture] | None":
    """The requested tests; None, with the error printed, if one does not exist."""
    known = [fixture.name for fixture in pipeline.tests]
    if unknown := [name for name in names if name not in known]:
        print_error(
            _COMMAND,
            f"there is no test {', '.join(map(repr, unknown))}: the file has"
            f" {', '.join(map(repr, known)) or 'none'}",
        )
        return None
    return [fixture for fixture in pipeline.tests if not names or fixture.name in names]
