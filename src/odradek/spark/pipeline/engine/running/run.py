"""Runs a pipeline: locks its checkpoints, starts its queries, shows their progress, ends them.

In order: the queries of the file are planned; their checkpoints are locked, or the run is refused;
Spark starts; the queries start; SIGINT or SIGTERM end the run, a second one at once. When all
queries have ended, their positions are committed to their groups, and the checkpoints are unlocked,
also after an error.
"""

import contextlib
import logging
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Final, TextIO

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # It ships no types.
from pyspark.sql import SparkSession

from odradek.clock import Clock, SystemClock
from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.display.batch_progress import BatchRow, with_sources
from odradek.spark.pipeline.engine.display.metrics_server import MetricsServer
from odradek.spark.pipeline.engine.display.run_display import JsonDisplay, TableDisplay
from odradek.spark.pipeline.engine.display.run_metrics import RunMetrics
from odradek.spark.pipeline.engine.operations.checkpoint import (
    BEAT_SECONDS,
    CheckpointFolder,
    Notes,
    has_stream_files,
)
from odradek.spark.pipeline.engine.operations.file_systems import FileSystemError
from odradek.spark.pipeline.engine.operations.positions import parse_position
from odradek.spark.pipeline.engine.problems import PipelineError, RefusedError
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.libraries import task_libraries
from odradek.spark.pipeline.engine.running.preflight import refuse_unready
from odradek.spark.pipeline.engine.running.queries import start_query
from odradek.spark.pipeline.engine.running.query_plans import (
    QueryPlan,
    dead_rules,
    plan_queries,
    refuse_without_packages,
)
from odradek.spark.pipeline.engine.running.supervisor import (
    Observer,
    QueryState,
    RunningQuery,
    Supervisor,
)
from odradek.spark.pipeline.file.problems import mask
from odradek.spark.pipeline.graph.fingerprint import changes, fingerprint, refusal
from odradek.spark.pipeline.graph.model import FilesTarget, Pipeline
from odradek.spark.pipeline.graph.queries import DEAD_LETTER_SINK
from odradek.spark.pipeline.graph.topics import topic_sources
from odradek.spark.progress.listener import leave_progress, progress_of
from odradek.spark.session import build_session

__all__ = ["run_pipeline"]

logger = logging.getLogger(__name__)

_SETTLE_SECONDS: Final = 30.0
_JAVA_GONE: Final = (ConnectionError, Py4JError)


def run_pipeline(
    pipeline: Pipeline,
    *,
    is_once: bool = False,
    sinks: Collection[str] | None = None,
    metrics_port: int | None = None,
    spark_log: str | None = None,
    session: SparkSession | None = None,
    out: TextIO | None = None,
    clock: Clock | None = None,
) -> bool:
    """Runs a pipeline until its queries are done, one fails for good, or a signal arrives.

    Args:
        pipeline: The pipeline to run.
        is_once: Ends when all records present now have been read.
        sinks: Only these; `dlq` is the query of the dead letters. None for all.
        metrics_port: The port of the metrics; None to serve none.
        spark_log: The level of the log of a Spark that is started, `off` to `info`; None to leave
            it unchanged.
        session: A session to use, which then is not stopped; None to start one.
        out: Where progress is shown; standard output if None.
        clock: The clock.

    Returns:
        Whether no query failed for good.

    Raises:
        PipelineError: It cannot be started.
        RefusedError: A checkpoint is in use, or was made for another pipeline.
    """
    out = sys.stdout if out is None else out
    clock = clock or SystemClock()
    plans = plan_queries(pipeline, sinks=sinks, is_once=is_once)
    if not plans:
        raise PipelineError("there is no query to run")
    refuse_without_packages(plan.sink for plan in plans if plan.sink is not None)
    metrics = RunMetrics(pipeline.name, DEAD_LETTER_SINK)
    display = _display(out, [plan.name for plan in plans], dead_rules(pipeline))
    with contextlib.ExitStack() as stack:
        stack.callback(display.close)
        lost = threading.Event()
        plans = stack.enter_context(_checkpoints(pipeline, plans, clock, lost))
        display.on_wait("asking the brokers")
        refuse_unready(pipeline, plans)
        if metrics_port is not None:
            server = stack.enter_context(MetricsServer(metrics_port, metrics.render))
            logger.info("metrics are served on port %d", server.port)
        if session is None:
            display.on_wait("starting Spark")
            session = _own_session(pipeline, sinks, spark_log)
            stack.callback(_stop_session, session)
        observers = _All([metrics, display], pipeline)
        supervisor = _supervisor(
            session, pipeline, plans, observers, display, clock, lost, is_once=is_once
        )
        stack.enter_context(_signals(_stopping(supervisor, display)))
        try:
            is_good = supervisor.run()
        except _JAVA_GONE as error:
            raise PipelineError(f"Java, in which Spark runs, has ended: {error}") from error
        else:
            display.close(supervisor.states())
        finally:
            _settle(session, pipeline.name)
        if lost.is_set():
            raise RefusedError("another run has taken the lock of a checkpoint of this run")
        return is_good


def _supervisor(
    session: SparkSession,
    pipeline: Pipeline,
    plans: Sequence[QueryPlan],
    observer: Observer,
    display: JsonDisplay | TableDisplay,
    clock: Clock,
    lost: threading.Event,
    *,
    is_once: bool,
) -> Supervisor:
    schemas = AvroSchemas(pipeline.registry)
    return Supervisor(
        {plan.name: _starter(session, pipeline, plan, schemas, display) for plan in plans},
        pipeline.restart,
        observer,
        clock=clock,
        is_lost=lost.is_set,
        is_once=is_once,
    )


def _stopping(supervisor: Supervisor, display: JsonDisplay | TableDisplay) -> Callable[[], None]:
    def stop() -> None:
        display.on_stop()
        supervisor.stop()

    return stop


def _own_session(
    pipeline: Pipeline, sinks: Collection[str] | None, spark_log: str | None
) -> SparkSession:
    """Starts Spark so that its Java ends when this process ends it, and by no signal.

    SIGTERM may be sent to all processes of a group; Java would then end in the middle of a batch.
    Java keeps ignoring the signals that are ignored when it starts. A signal that arrives while it
    starts is lost.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN) if is_main else None
    try:
        return build_session(
            master=pipeline.spark.master,
            conf=pipeline.spark.conf,
            app_name=f"odradek-{pipeline.name}",
            checkpoint=pipeline.checkpoint,
            ship=pipeline.spark.ship,
            task_libraries=task_libraries(pipeline, sinks),
            log_level=spark_log,
        )
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def _stop_session(session: SparkSession) -> None:
    with contextlib.suppress(*_JAVA_GONE):
        leave_progress(session)
        session.stop()


def _settle(session: SparkSession, pipeline: str) -> None:
    """Waits until the last batches are committed to the groups."""
    try:
        is_settled = progress_of(session).settle(_SETTLE_SECONDS)
    except _JAVA_GONE:
        is_settled = False
    if not is_settled:
        logger.warning("the groups of %s do not show the last batches yet", pipeline)


class _All:
    """Passes events to several observers, with the names of the file and secrets masked."""

    def __init__(self, observers: Sequence[Observer], pipeline: Pipeline) -> None:
        self._observers = observers
        self._pipeline = pipeline
        self._secrets = sorted(pipeline.secrets, key=len, reverse=True)

    def on_batch(self, row: BatchRow) -> None:
        row = with_sources(row, topic_sources(self._pipeline, row.sink))
        for one in self._observers:
            one.on_batch(row)

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        message = mask(failure.message, self._secrets)
        for one in self._observers:
            one.on_failure(sink, replace(failure, message=message), wait_ms)

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        for one in self._observers:
            one.on_poll(states)


def _starter(
    session: SparkSession,
    pipeline: Pipeline,
    plan: QueryPlan,
    schemas: AvroSchemas,
    display: JsonDisplay | TableDisplay,
) -> Callable[[], RunningQuery]:
    def start() -> RunningQuery:
        display.on_wait(f"starting the query of {plan.name}")
        return start_query(session, pipeline, plan, schemas)

    return start


def _display(
    out: TextIO, sinks: Sequence[str], dead: frozenset[tuple[str, str]]
) -> JsonDisplay | TableDisplay:
    if not out.isatty():
        return JsonDisplay(out, dead, sinks, sys.stderr)
    return TableDisplay(out, sinks, dead, shutil.get_terminal_size().columns)


@contextlib.contextmanager
def _checkpoints(
    pipeline: Pipeline, plans: Sequence[QueryPlan], clock: Clock, lost: threading.Event
) -> Iterator[tuple[QueryPlan, ...]]:
    """Locks the checkpoints of all queries, with a heartbeat for the duration of the block."""
    taken: list[CheckpointFolder] = []
    ended = threading.Event()
    try:
        started = []
        for plan in plans:
            folder = CheckpointFolder(plan.checkpoint, clock)
            before, has_state = folder.read(), folder.newest("offsets") is not None
            if not has_state:
                _refuse_files_of_others(plan, plans)
            notes = _notes_for(pipeline, plan, before, has_state=has_state)
            folder.take(notes)
            taken.append(folder)
            start = None if notes.start is None else parse_position(notes.start)
            started.append(replace(plan, start=start, has_run=has_state))
        beating = threading.Thread(
            target=_beat, args=(taken, ended, lost), name="heartbeat", daemon=True
        )
        beating.start()
        try:
            yield tuple(started)
        finally:
            ended.set()
            beating.join()
    finally:
        for folder in taken:
            _release(folder)


def _release(folder: CheckpointFolder) -> None:
    """Unlocks a checkpoint.

    If that fails the lock expires by itself; the error is only logged, so that the other
    checkpoints are unlocked, too.
    """
    try:
        folder.release()
    except PipelineError as error:
        logger.warning("the checkpoint %s cannot be unlocked: %s", folder.path, error)


def _refuse_files_of_others(plan: QueryPlan, plans: Sequence[QueryPlan]) -> None:
    """Refuses a folder of files that another query has written: it belongs to one query for ever.

    Spark lists the batches in the folder by number, and takes those of a new query with the same
    numbers for batches it has: it would skip them silently.
    """
    path = _files_path(plan)
    if path is None:
        return
    if any(_files_path(other) == path for other in plans if other is not plan):
        raise RefusedError(f"two sinks write to the folder {path}: give each its own")
    if has_stream_files(path):
        raise RefusedError(
            f"the folder {path} was written by another query, or by this one before a reset: Spark"
            f" would skip the first batches of {plan.name!r}. Write to another path, or move the"
            " folder away"
        )


def _files_path(plan: QueryPlan) -> str | None:
    target = None if plan.sink is None else plan.sink.target
    return target.path if isinstance(target, FilesTarget) else None


def _notes_for(
    pipeline: Pipeline, plan: QueryPlan, before: Notes | None, *, has_state: bool
) -> Notes:
    """The new notes beside the checkpoint; raises if its state belongs to another pipeline."""
    document = fingerprint(pipeline, plan.name)
    if has_state and before is not None and (found := changes(before.fingerprint, document)):
        raise RefusedError(refusal(pipeline.file, plan.name, found))
    return Notes(
        pipeline=pipeline.name,
        sink=plan.name,
        fingerprint=document,
        start=None if before is None else before.start,
        spark=pyspark.__version__,
    )


def _beat(
    folders: Sequence[CheckpointFolder], ended: threading.Event, lost: threading.Event
) -> None:
    while not ended.wait(BEAT_SECONDS):
        for folder in folders:
            try:
                folder.beat()
            except FileSystemError:
                logger.warning("the checkpoint %s cannot be written", folder.path, exc_info=True)
            except PipelineError:
                logger.exception("another run has taken the lock of a checkpoint")
                lost.set()
                return


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Lets SIGINT and SIGTERM end the run; only the main thread can handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop()

    before = {one: signal.signal(one, handle) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
