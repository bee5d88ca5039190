"""`odradek pipeline status`, `reset` and `backfill`: the actions of an operator."""

import argparse
import sys
from typing import TYPE_CHECKING

from odradek.cli.output import print_error, print_json, print_table
from odradek.cli.pipelines.file import load_file, print_error_line, print_unready

if TYPE_CHECKING:
    from odradek.spark.pipeline.engine.operations.status import QueryStatus
    from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
    from odradek.spark.pipeline.graph.model import Pipeline

__all__ = ["add_backfill", "add_reset", "add_status"]

_COMMAND = "pipeline"
_POSITION = "earliest, latest, an instant (2026-01-31T12:00:00Z), or offsets as JSON"


def add_status(parser: argparse.ArgumentParser) -> None:
    """Declares `status`."""
    parser.description = (
        "Shows the progress of each query: its last batch in the checkpoint, that of the marker of "
        "an exactly-once sink (COMMITTED), its lag behind the topics' ends, and "
        "the lag that its group shows. Works with and without an active run; needs no Spark."
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every partition")
    parser.set_defaults(act=_status)


def add_reset(parser: argparse.ArgumentParser) -> None:
    """Declares `reset`."""
    parser.description = (
        "Deletes checkpoints and groups: the next run reads again, and writes rows that its sinks "
        "may have already. Refused while a run is active."
    )
    _add_sink(parser)
    parser.add_argument("--to", metavar="POSITION", help=f"where the next run begins: {_POSITION}")
    parser.add_argument("--yes", action="store_true", help="do it; without it, show what would go")
    parser.set_defaults(act=_reset)


def add_backfill(parser: argparse.ArgumentParser) -> None:
    """Declares `backfill`."""
    parser.description = (
        "Runs the records between two positions through the same transforms again, as a batch. "
        "Checkpoints and groups of the running queries are not touched."
    )
    _add_sink(parser)
    parser.add_argument(
        "--from", dest="start", metavar="POSITION", required=True, help=f"from here: {_POSITION}"
    )
    parser.add_argument(
        "--to", dest="end", metavar="POSITION", required=True, help="up to here, likewise"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master; overrides that of the file")
    parser.set_defaults(act=_backfill)


def _add_sink(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sink", action="append", metavar="NAME", help="only this sink; may be repeated"
    )


def _status(arguments: argparse.Namespace) -> int:
    pipeline = _pipeline(arguments)
    if pipeline is None:
        return 2
    from odradek.spark.pipeline.engine.operations.status import pipeline_status
    from odradek.spark.pipeline.engine.problems import PipelineError
    from odradek.spark.pipeline.engine.running.query_plans import plan_queries

    try:
        found, why = pipeline_status(pipeline, plan_queries(pipeline))
    except PipelineError as error:
        print_error(_COMMAND, str(error))
        return 1
    if why is not None:
        print_error(_COMMAND, f"the lag of some partitions is not known: {why}")
    if arguments.json:
        queries = [one.as_json() for one in found]
        print_json({"pipeline": pipeline.name, "queries": queries})
    else:
        rows = [[one.sink, *_numbers(one), one.group, _run(one)] for one in found]
        print_table(
            ["SINK", "STATE", "BATCH", "COMMITTED", "LAG", "GROUP LAG", "GROUP", "RUN"], rows
        )
    return 0


def _numbers(status: "QueryStatus") -> list[object]:
    return [
        status.state,
        "-" if status.batch is None else status.batch,
        "-" if status.committed_batch is None else status.committed_batch,
        "-" if status.lag is None else status.lag,
        "-" if status.group_lag is None else status.group_lag,
    ]


def _run(status: "QueryStatus") -> str:
    return "-" if status.holder is None else f"pid {status.holder.pid} on {status.holder.host}"


def _reset(arguments: argparse.Namespace) -> int:
    pipeline = _pipeline(arguments)
    if pipeline is None:
        return 2
    from odradek.spark.pipeline.engine.operations.positions import check_position, parse_position
    from odradek.spark.pipeline.engine.operations.reset import reset_queries
    from odradek.spark.pipeline.engine.problems import PipelineError, RefusedError

    plans = _plans(pipeline, arguments.sink)
    if plans is None:
        return 2
    try:
        to = None if arguments.to is None else parse_position(arguments.to)
        if to is not None:
            check_position(pipeline, [plan.name for plan in plans], to)
    except PipelineError as error:
        print_error(_COMMAND, str(error))
        return 2
    if not arguments.yes:
        for plan in plans:
            print(f"would delete {plan.checkpoint} and the group {plan.group}")
        print_error(
            _COMMAND,
            "nothing was changed. The next run would read again: topics and Delta tables without"
            " merge_key would get rows twice. If that is intended, give --yes",
        )
        return 3
    try:
        warnings = reset_queries(pipeline, plans, to)
    except RefusedError as error:
        print_error(_COMMAND, str(error))
        return 3
    except PipelineError as error:
        print_error(_COMMAND, str(error))
        return 1
    for warning in warnings:
        print_error(_COMMAND, warning)
    for plan in plans:
        print(f"forgot {plan.checkpoint}")
    return 0


def _backfill(arguments: argparse.Namespace) -> int:
    pipeline = _pipeline(arguments)
    if pipeline is None:
        return 2
    from odradek.spark.pipeline.engine.operations.positions import check_position, parse_position
    from odradek.spark.pipeline.engine.problems import PipelineError

    names = list(pipeline.sinks) if arguments.sink is None else arguments.sink
    unknown = [name for name in names if name not in pipeline.sinks]
    if unknown:
        _print_unknown(unknown, pipeline)
        return 2
    try:
        start, end = parse_position(arguments.start), parse_position(arguments.end)
        for position in (start, end):
            check_position(pipeline, names, position)
    except PipelineError as error:
        print_error(_COMMAND, str(error))
        return 2
    from odradek.errors import ConfigError
    from odradek.spark.pipeline.engine.operations.backfill import backfill, count_letters
    from odradek.spark.pipeline.engine.problems import NotReadyError
    from odradek.spark.pipeline.engine.running.libraries import task_libraries
    from odradek.spark.pipeline.engine.running.preflight import refuse_unready
    from odradek.spark.pipeline.engine.running.query_plans import (
        plan_queries,
        refuse_without_packages,
    )
    from odradek.spark.pipeline.file.problems import mask
    from odradek.spark.runtime.shipping import VersionsDifferError
    from odradek.spark.session import build_session

    sinks = [pipeline.sinks[name] for name in names]
    try:
        refuse_without_packages(sinks)
        refuse_unready(pipeline, plan_queries(pipeline, sinks=names))
        session = build_session(
            master=arguments.master or pipeline.spark.master,
            conf=pipeline.spark.conf,
            app_name=f"odradek-{pipeline.name}-backfill",
            ship=pipeline.spark.ship,
            task_libraries=task_libraries(pipeline, names),
            log_level="off",
        )
        try:
            counts = backfill(session, pipeline, sinks, start=start, end=end)
            print_table(["SINK", "ROWS"], list(counts.items()))
            letters = count_letters(session, pipeline, sinks, start=start, end=end)
        finally:
            session.stop()
    except NotReadyError as error:
        print_unready(error, pipeline)
        return 1
    except (PipelineError, ConfigError, VersionsDifferError) as error:
        print_error(_COMMAND, mask(str(error), pipeline.secrets))
        return 1
    if letters:
        rows = [[*place, count] for place, count in letters.items()]
        print_table(["STAGE", "REASON", "DEAD LETTERS, NOT WRITTEN"], rows)
    return 0


def _pipeline(arguments: argparse.Namespace) -> "Pipeline | None":
    """The pipeline of FILE; None, with all problems printed, if the file is invalid."""
    loaded = load_file(arguments)
    if loaded is None:
        return None
    if loaded.pipeline is None:
        for problem in loaded.problems:
            print_error_line(str(problem))
    return loaded.pipeline


def _plans(pipeline: "Pipeline", sinks: list[str] | None) -> "tuple[QueryPlan, ...] | None":
    from odradek.spark.pipeline.engine.running.query_plans import plan_queries

    plans = plan_queries(pipeline)
    if sinks is None:
        return plans
    unknown = [name for name in sinks if name not in {plan.name for plan in plans}]
    if unknown:
        _print_unknown(unknown, pipeline)
        return None
    return tuple(plan for plan in plans if plan.name in sinks)


def _print_unknown(names: list[str], pipeline: "Pipeline") -> None:
    sys.stdout.flush()
    print_error(
        _COMMAND,
        f"there is no sink {', '.join(names)}: {pipeline.name} has {', '.join(pipeline.sinks)}",
    )
