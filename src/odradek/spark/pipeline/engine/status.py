"""How far the queries of a pipeline are, whether a run is up or not.

What counts is the checkpoint: the last batch that Spark has noted as done, and the offsets where it
ended. The ends of the topics come from the brokers, without which the lag is unknown; the rest is
told all the same.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from odradek import Admin
from odradek.client.offsets import LATEST
from odradek.errors import ApiError, OdradekError
from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import Position
from odradek.spark.pipeline.engine.checkpoint import CheckpointFolder, Lock
from odradek.spark.pipeline.engine.query_plans import QueryPlan
from odradek.spark.pipeline.graph.model import Pipeline
from odradek.values import dataclass

__all__ = ["PartitionStatus", "QueryStatus", "pipeline_status"]

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How far a query is in one partition; `end` is None while no broker says."""

    topic: str
    partition: int
    next_offset: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """Records that are yet to be read."""
        return None if self.end is None else max(0, self.end - self.next_offset)


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """How far one query is.

    Attributes:
        batch: the last one that is done; None before the first.
        is_in_batch: whether another was begun and is not done, now or when its run ended.
        holder: the run that is up.
    """

    sink: str
    group: str
    checkpoint: str
    query_id: str | None
    batch: int | None
    is_in_batch: bool
    holder: Lock | None
    partitions: tuple[PartitionStatus, ...]

    @property
    def state(self) -> str:
        """`running`, `stopped`, or `new` for a query that never ran."""
        if self.holder is not None:
            return "running"
        return "new" if self.query_id is None else "stopped"

    @property
    def lag(self) -> int | None:
        """Over all partitions; None if it is not known of one."""
        known = [one.lag for one in self.partitions]
        if not known or None in known:
            return None
        return sum(one for one in known if one is not None)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "sink": self.sink,
            "state": self.state,
            "batch": self.batch,
            "in_batch": self.is_in_batch,
            "lag": self.lag,
            "group": self.group,
            "checkpoint": self.checkpoint,
            "query_id": self.query_id,
            "run": None
            if self.holder is None
            else {"host": self.holder.host, "pid": self.holder.pid},
            "partitions": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": one.next_offset,
                    "end": one.end,
                    "lag": one.lag,
                }
                for one in self.partitions
            ],
        }


def pipeline_status(
    pipeline: Pipeline, plans: Sequence[QueryPlan]
) -> tuple[tuple[QueryStatus, ...], str | None]:
    """The status of each query, and why the ends of the topics are not known, if so."""
    folders = {plan.name: CheckpointFolder(plan.checkpoint) for plan in plans}
    done = {name: _done(folder) for name, folder in folders.items()}
    wanted = {tp for positions in done.values() for tp in positions}
    ends, why = _ends(pipeline, wanted)
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
                holder=folder.holder(),
                partitions=tuple(
                    PartitionStatus(tp.topic, tp.partition, offset, ends.get(tp))
                    for tp, offset in sorted(done[plan.name].items())
                ),
            )
        )
    return tuple(found), why


def _done(folder: CheckpointFolder) -> dict[TopicPartition, int]:
    """Where the last batch that is done has ended, over all sources of the query."""
    ended = folder.newest("commits")
    text = None if ended is None else folder.file("offsets", ended[0])
    if text is None:
        return {}
    positions: dict[TopicPartition, int] = {}
    # A version, what Spark set at that time, then a line for each source.
    for line in text.splitlines()[2:]:
        try:
            position = Position.parse(json.loads(line))
        except ValueError:
            continue  # Of another source than ours.
        positions |= position.offsets()
    return positions


def _ends(
    pipeline: Pipeline, wanted: set[TopicPartition]
) -> tuple[Mapping[TopicPartition, int], str | None]:
    if not wanted or pipeline.bootstrap is None:
        return {}, None
    settings = {**pipeline.kafka, "bootstrap.servers": pipeline.bootstrap}
    try:
        with Admin(settings) as admin:
            found = admin.list_offsets(dict.fromkeys(wanted, LATEST), timeout=_TIMEOUT_S)
    except OdradekError as error:
        return {}, str(error)
    ends = {tp: one.offset for tp, one in found.items() if not isinstance(one, ApiError)}
    failed = [f"{tp}: {one}" for tp, one in found.items() if isinstance(one, ApiError)]
    return ends, "; ".join(failed) or None
