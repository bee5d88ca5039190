"""The progress of a pipeline's queries, with or without an active run.

The checkpoint decides: the last batch that Spark has noted as done, and the offsets where it ended.
The group of a query shows the same to Kafka's tools; it is behind if a run was killed or a commit
failed. An exactly-once sink has a marker of its last batch in its cluster, which is one batch ahead
if a run was killed between the two. The ends of the topics, the offsets of groups and the markers
come from the brokers: without them they are unknown, and the rest is still shown.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from odradek import Admin
from odradek.client.offsets import LATEST
from odradek.errors import ApiError, OdradekError
from odradek.lazy_dataclass import dataclass
from odradek.model import TopicPartition
from odradek.protocol.enums import IsolationLevel
from odradek.spark.datasource.offsets import Position
from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder, Lock
from odradek.spark.pipeline.engine.operations.clusters import Cluster, cluster_of
from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
from odradek.spark.pipeline.graph.model import DeadLetters, Pipeline, TopicInput, TopicTarget
from odradek.spark.pipeline.graph.topics import name_sources, topic_sources
from odradek.spark.transactional.commits import last_marker
from odradek.spark.transactional.marker import QueryIdentity

__all__ = ["PartitionProgress", "QueryStatus", "pipeline_status"]

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of a query in one partition.

    Attributes:
        source: The source in the file; empty if none reads the topic any more.
        end: The end of the partition; None if no broker answers.
        committed: The offset of the group; None if it has none.
    """

    source: str
    topic: str
    partition: int
    next_offset: int
    end: int | None
    committed: int | None

    @property
    def lag(self) -> int | None:
        """The number of records to read."""
        return None if self.end is None else max(0, self.end - self.next_offset)

    @property
    def group_lag(self) -> int | None:
        """The same as the group shows it."""
        if self.end is None or self.committed is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """The progress of one query.

    Attributes:
        batch: The last batch that is done; None before the first.
        is_in_batch: Whether another was begun and is not done, now or when its run ended.
        committed_batch: The last batch whose marker is in the cluster; None for a sink that is not
            exactly-once, or if no broker answers.
        holder: The active run.
    """

    sink: str
    group: str
    checkpoint: str
    query_id: str | None
    batch: int | None
    is_in_batch: bool
    committed_batch: int | None
    holder: Lock | None
    partitions: tuple[PartitionProgress, ...]

    @property
    def state(self) -> str:
        """`running`, `stopped`, or `new` for a query that never ran."""
        if self.holder is not None:
            return "running"
        return "new" if self.query_id is None else "stopped"

    @property
    def lag(self) -> int | None:
        """The lag over all partitions; None if that of one is not known."""
        return _sum([one.lag for one in self.partitions])

    @property
    def group_lag(self) -> int | None:
        """The same as the group shows it."""
        return _sum([one.group_lag for one in self.partitions])

    def as_json(self) -> dict[str, Any]:
        """The status as a JSON object."""
        return {
            "sink": self.sink,
            "state": self.state,
            "batch": self.batch,
            "in_batch": self.is_in_batch,
            "committed_batch": self.committed_batch,
            "lag": self.lag,
            "group": self.group,
            "group_lag": self.group_lag,
            "checkpoint": self.checkpoint,
            "query_id": self.query_id,
            "run": None
            if self.holder is None
            else {"host": self.holder.host, "pid": self.holder.pid},
            "partitions": [
                {
                    "source": one.source,
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": one.next_offset,
                    "committed": one.committed,
                    "end": one.end,
                    "lag": one.lag,
                }
                for one in self.partitions
            ],
        }


def _sum(known: Sequence[int | None]) -> int | None:
    found = [one for one in known if one is not None]
    return sum(found) if found and len(found) == len(known) else None


def pipeline_status(
    pipeline: Pipeline, plans: Sequence[QueryPlan]
) -> tuple[tuple[QueryStatus, ...], str | None]:
    """The status of each query, and why ends or group offsets are missing, if they are.

    Raises:
        PipelineError: A checkpoint cannot be read.
    """
    folders = {plan.name: CheckpointFolder(plan.checkpoint) for plan in plans}
    done = {name: _done(pipeline, name, folder) for name, folder in folders.items()}
    told = _Told()
    told.ask(pipeline, [(plan, done[plan.name]) for plan in plans])
    found = []
    for plan in plans:
        folder = folders[plan.name]
        begun, ended = folder.newest("offsets"), folder.newest("commits")
        found.append(
            QueryStatus(
                sink=plan.name,
                group=plan.group,
                checkpoint=plan.checkpoint,
                query_id=folder.query_id(),
                batch=None if ended is None else ended[0],
                is_in_batch=begun is not None and (ended is None or begun[0] > ended[0]),
                committed_batch=told.committed_batch(pipeline, plan, folder.query_id()),
                holder=folder.holder(),
                partitions=tuple(
                    PartitionProgress(
                        source=place.source,
                        topic=place.tp.topic,
                        partition=place.tp.partition,
                        next_offset=offset,
                        end=told.ends.get((plan.name, place)),
                        committed=told.committed.get((plan.name, place)),
                    )
                    for place, offset in sorted(done[plan.name].items())
                ),
            )
        )
    return tuple(found), "; ".join(told.problems) or None


class _Place(NamedTuple):
    """A partition as one source reads it."""

    source: str
    tp: TopicPartition


def _done(pipeline: Pipeline, query: str, folder: CheckpointFolder) -> dict[_Place, int]:
    """The end of the last batch that is done, over all sources of the query."""
    ended = folder.newest("commits")
    text = None if ended is None else folder.file("offsets", ended[0])
    if text is None:
        return {}
    reported: list[dict[TopicPartition, int]] = []
    # The file has a version, Spark's settings of the batch, then a line for each source.
    for line in text.splitlines()[2:]:
        try:
            reported.append(Position.parse(json.loads(line)).offsets())
        except ValueError:
            continue  # Of another kind of source.
    names = name_sources(
        topic_sources(pipeline, query), [{tp.topic for tp in one} for one in reported]
    )
    return {
        _Place(name or "", tp): offset
        for name, offsets in zip(names, reported, strict=True)
        for tp, offset in offsets.items()
    }


class _Told:
    """Answers of the brokers: ends of partitions, and committed offsets of groups."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, _Place], int] = {}
        self.committed: dict[tuple[str, _Place], int] = {}
        self.problems: list[str] = []

    def ask(self, pipeline: Pipeline, done: Iterable[tuple[QueryPlan, Iterable[_Place]]]) -> None:
        """Asks every cluster about the topics read from it; one that is down only once."""
        wanted: dict[Cluster, list[tuple[QueryPlan, TopicInput, list[_Place]]]] = {}
        for plan, places in done:
            sources = topic_sources(pipeline, plan.name)
            held: dict[str, list[_Place]] = {}
            for place in places:
                held.setdefault(place.source, []).append(place)
            for name, parts in sorted(held.items()):
                if name not in sources:
                    self._note(f"no source of {plan.name} reads {parts[0].tp.topic} any more")
                    continue
                cluster = cluster_of(pipeline, sources[name])
                wanted.setdefault(cluster, []).append((plan, sources[name], parts))
        for cluster, questions in wanted.items():
            try:
                with Admin(dict(cluster)) as admin:
                    for plan, topics, parts in questions:
                        self._ask(admin, plan, topics, parts)
            except OdradekError as error:
                self._note(str(error))

    def _ask(
        self, admin: Admin, plan: QueryPlan, topics: TopicInput, held: Sequence[_Place]
    ) -> None:
        wanted = [place.tp for place in held]
        ends = admin.list_offsets(
            dict.fromkeys(wanted, LATEST),
            # A source that reads committed records cannot read those of open transactions yet.
            isolation_level=IsolationLevel[topics.isolation.upper()],
            timeout=_TIMEOUT_S,
        )
        found = admin.list_group_offsets({plan.group: wanted}, timeout=_TIMEOUT_S)[plan.group]
        if isinstance(found, ApiError):
            self._note(f"group {plan.group}: {found}")
            found = {}
        for place in held:
            end, committed = ends[place.tp], found.get(place.tp)
            if isinstance(end, ApiError):
                self._note(f"{place.tp}: {end}")
            else:
                self.ends[plan.name, place] = end.offset
            if committed is not None:
                self.committed[plan.name, place] = committed.offset

    def committed_batch(
        self, pipeline: Pipeline, plan: QueryPlan, query_id: str | None
    ) -> int | None:
        """The batch of the marker of an exactly-once sink."""
        target = pipeline.dead_letters if plan.sink is None else plan.sink.target
        if query_id is None or not isinstance(target, (TopicTarget, DeadLetters)):
            return None
        if not target.exactly_once:
            return None
        identity = QueryIdentity(name=plan.name, query_id=query_id, target=target.topic)
        settings = {"bootstrap.servers": pipeline.bootstrap or "", **target.kafka}
        try:
            marker = last_marker(settings, identity.key)
        except OdradekError as error:
            self._note(f"the marker of {plan.name}: {error}")
            return None
        return None if marker is None else marker.batch

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
