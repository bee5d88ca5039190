"""Listens to streaming queries and commits their progress to groups.

::

    stream = spark.readStream.format("odradek").option("progressGroup", "orders-to-lake")…
    progress_of(spark)  # once per session; a run of a pipeline does it by itself

Spark's own commit call to a source is one batch late, and is missing for the last batch; its
listeners receive a report of every batch. The options of a source are looked up in the plan when
its query starts, because a report does not contain them. Spark Connect gives no access to the plan:
there `watch` must name the groups, as pipelines do.
"""

import logging
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.spark.progress.commits import GroupCommitter
from odradek.spark.progress.targets import ProgressTarget, lag_of, parse_position, target_of

__all__ = ["ProgressListener", "leave_progress", "progress_of"]

logger = logging.getLogger(__name__)

_SOURCE_NAME: Final = "odradek"


class ProgressListener(StreamingQueryListener):
    """See the module's docstring.

    Args:
        session: The session whose queries are listened to; None: `watch` names all groups.
        committer: Commits the positions; one of its own if not given.
    """

    def __init__(
        self, session: SparkSession | None, committer: GroupCommitter | None = None
    ) -> None:
        self._session = session
        self.committer = committer or GroupCommitter()
        self._lock = threading.Condition()
        # Runs that have started and whose end was not reported yet.
        self._runs: set[str] = set()
        # Per run, one target per source, in the query's order; None for one without a group. Keyed
        # by run, because a query may be started again before the end of the last run is reported.
        self._targets: dict[str, Sequence[ProgressTarget | None]] = {}
        # By the query's id or name, see `watch`.
        self._told: dict[str, Sequence[ProgressTarget | None]] = {}
        # By query: the run, and its lag.
        self._lags: dict[str, tuple[str, dict[TopicPartition, int] | None]] = {}

    def watch(self, query: object, targets: Sequence[ProgressTarget | None]) -> None:
        """Sets the groups of a query's sources, in the order of its reports.

        Applies to later runs of the query, too.

        Args:
            query: Its id, or its name, which is known before the start, so that no batch is missed.
            targets: One for each source; a single one if all are the same.
        """
        with self._lock:
            self._told[str(query)] = targets

    def lag(self, query_id: object) -> dict[TopicPartition, int] | None:
        """The lag of a query after its last batch, in records; None while it is not known."""
        with self._lock:
            return self._lags.get(str(query_id), ("", None))[1]

    def settle(self, timeout_s: float) -> bool:
        """Waits until all batches so far are committed or failed; returns False on timeout.

        Reports of a query that has ended may still be in transit; call this before the process
        ends.
        """
        if self._session is not None and not self._has_heard_all(self._session, timeout_s):
            return False
        return self.committer.settle(timeout_s)

    def _has_heard_all(self, session: SparkSession, timeout_s: float) -> bool:
        if _is_classic(session):
            bus: Any = session.sparkContext._jsc.sc().listenerBus()  # noqa: SLF001 - no other way
            try:
                bus.waitUntilEmpty(int(timeout_s * 1000))
            except Py4JJavaError:  # The timeout is over.
                return False
            return True
        # Reports arrive over the network, that of the end of a run after those of its batches.
        try:
            active = {str(query.runId) for query in session.streams.active}
        except PySparkException:
            return False
        with self._lock:
            return self._lock.wait_for(lambda: self._runs <= active, timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Looks up the groups in the options of the query's sources."""
        with self._lock:
            self._runs.add(str(event.runId))
        if self._session is None or not _is_classic(self._session):
            return
        try:
            targets = _targets_in_plan(self._session, str(event.id))
        except Exception:  # Spark's inner plan may change, and the query must go on
            logger.warning("groups of query %s are not known", event.id, exc_info=True)
            return
        if any(targets):
            with self._lock:
                self._targets[str(event.runId)] = targets

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Commits the end of the batch."""
        report = event.progress
        sources = report.sources
        lags = [lag_of(source.endOffset, source.latestOffset) for source in sources]
        known = [lag for lag in lags if lag is not None]
        query, run = str(report.id), str(report.runId)
        with self._lock:
            told = self._told.get(query) or self._told.get(report.name or "")
            targets = told or self._targets.get(run, ())
            self._lags[query] = run, _sum(known) if known else None
        for source, target in zip(sources, _fitted(targets, len(sources)), strict=True):
            position = parse_position(source.endOffset)
            if target is None or position is None:
                continue
            metadata = f"batch {report.batchId}"
            self.committer.submit(
                target,
                {tp: OffsetAndMetadata(at, metadata) for tp, at in position.offsets().items()},
            )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forgets the run; its last report arrived before."""
        query, run = str(event.id), str(event.runId)
        with self._lock:
            self._targets.pop(run, None)
            if self._lags.get(query, ("", None))[0] == run:
                del self._lags[query]
            self._runs.discard(run)
            self._lock.notify_all()


def _fitted(
    targets: Sequence[ProgressTarget | None], count: int
) -> Sequence[ProgressTarget | None]:
    """A group for each source of a report.

    Spark merges sources that a query names twice, so the numbers may differ. Then all sources must
    have the same group, which is safe since a position names its topics.
    """
    if len(targets) == count:
        return targets
    distinct = set(targets)
    return [distinct.pop() if len(distinct) == 1 else None] * count


def _sum(lags: Sequence[dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
    merged: dict[TopicPartition, int] = {}
    for lag in lags:
        merged |= lag
    return merged


def _targets_in_plan(spark: SparkSession, query_id: str) -> list[ProgressTarget | None]:
    query: Any = spark.streams.get(query_id)
    if query is None or query._jsq is None:  # noqa: SLF001 - Spark has no public way to the plan
        return []
    leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()  # noqa: SLF001
    targets = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.isStreaming():
            continue
        is_ours = hasattr(leaf, "sourceName") and leaf.sourceName() == _SOURCE_NAME
        options = dict(leaf.extraOptions().asCaseSensitiveMap()) if is_ours else {}
        targets.append(target_of(options))
    return targets


_listeners: "weakref.WeakKeyDictionary[SparkSession, ProgressListener]" = (
    weakref.WeakKeyDictionary()
)


def progress_of(session: SparkSession) -> ProgressListener:
    """The listener of a session, which is added at the first call."""
    listener = _listeners.get(session)
    if listener is None:
        listener = _listeners[session] = ProgressListener(session)
        session.streams.addListener(listener)
    return listener


def leave_progress(session: SparkSession) -> None:
    """Stops listening to a session that is about to end.

    A session of Spark Connect warns of every listener that it still has at its end.
    """
    listener = _listeners.pop(session, None)
    if listener is not None:
        session.streams.removeListener(listener)


def _is_classic(session: object) -> bool:
    """Whether the queries run in this process, and not on a Spark Connect server."""
    return isinstance(session, SparkSession)
