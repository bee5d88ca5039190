"""Checks what the queries of a run need, before Spark is started, which takes seconds.

Checked are the tables that are read from a disk of this machine, that a broker of each cluster can
be reached, also at an address that the cluster names, and the topics. A topic that only a sink
writes to may be missing where brokers create topics themselves.
"""

import glob
import os
import re
import socket
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from odradek import Admin
from odradek.client.admin import ConfigResource, ConfigResourceType
from odradek.client.cluster import TopicView
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.engine.operations.clusters import Cluster, cluster_of, cluster_of_sink
from odradek.spark.pipeline.engine.problems import NotReadyError
from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.graph.locations import is_uri
from odradek.spark.pipeline.graph.model import (
    DeadLetters,
    OnDataLoss,
    Pipeline,
    Place,
    TableInput,
    TopicInput,
    TopicTarget,
)
from odradek.spark.pipeline.graph.queries import stages_of
from odradek.spark.pipeline.graph.topics import topic_sources

__all__ = ["Unready", "find_unready", "refuse_unready"]

# A broker that is there takes a connection within milliseconds, however busy it is.
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 10.0
# Pauses before a topic counts as missing: a broker that was just started may not know it yet.
_LOOK_PAUSES_S: Final = (0.1, 0.2, 0.4)
_AUTO_CREATE: Final = "auto.create.topics.enable"
_GLOB: Final = re.compile(r"[*?\[{]")

# A place of the file, and what is wrong with what it names.
Unready = tuple[Place, str]


@dataclass(frozen=True, slots=True)
class _Need:
    """The topics of one source or sink.

    Attributes:
        what: The source or sink in messages: `source 'orders' reads`.
        topics: Topic -> partitions that are named; none for all of a topic.
        is_written: Whether brokers may create the topics.
        may_be_gone: Whether a topic that does not exist is data loss that the source accepts.
    """

    place: Place
    what: str
    topics: Mapping[str, tuple[int, ...]]
    is_written: bool = False
    may_be_gone: bool = False


def refuse_unready(pipeline: Pipeline, plans: Sequence[QueryPlan]) -> None:
    """Checks what the queries need.

    Raises:
        NotReadyError: Something is missing; it has all problems.
    """
    if found := find_unready(pipeline, plans):
        raise NotReadyError(found)


def find_unready(pipeline: Pipeline, plans: Sequence[QueryPlan]) -> tuple[Unready, ...]:
    """What the queries need and cannot have, by place in the file."""
    found = dict.fromkeys(_missing_tables(pipeline, plans))
    for cluster, needs in _needs(pipeline, plans).items():
        found |= dict.fromkeys(_Look(cluster, needs).problems())
    return tuple(sorted(found, key=lambda one: (one[0].file, one[0].line, one[0].column, one[1])))


def _missing_tables(pipeline: Pipeline, plans: Sequence[QueryPlan]) -> Iterator[Unready]:
    if pipeline.spark.master.startswith("sc://"):
        return  # The server reads them, on its machine.
    names = dict.fromkeys(name for plan in plans for name in stages_of(pipeline, plan.name))
    for name in names:
        source = pipeline.sources.get(name)
        if source is None or not isinstance(source.input, TableInput):
            continue
        path = _local_path(source.input.path)
        if path is None or _is_there(path):
            continue
        yield source.place, f"source '{name}' reads the table {path}, which does not exist"


def _local_path(path: str) -> str | None:
    if not is_uri(path):
        return path
    parts = urlsplit(path)
    return parts.path if parts.scheme.lower() == "file" else None


def _is_there(path: str) -> bool:
    """Whether a table exists, as far as Spark's patterns can be followed here."""
    if os.path.exists(path):
        return True
    if "{" in path:
        return True
    return bool(_GLOB.search(path)) and next(glob.iglob(path), None) is not None


def _needs(pipeline: Pipeline, plans: Sequence[QueryPlan]) -> dict[Cluster, list[_Need]]:
    found: dict[Cluster, list[_Need]] = {}
    for plan in plans:
        for name, topics in topic_sources(pipeline, plan.name).items():
            need = _Need(
                place=pipeline.sources[name].place,
                what=f"source '{name}' reads",
                topics=_named_topics(topics),
                may_be_gone=plan.has_run and topics.on_data_loss is OnDataLoss.CONTINUE,
            )
            found.setdefault(cluster_of(pipeline, topics), []).append(need)
        written = _written_topic(pipeline, plan)
        if written is None:
            continue
        target, place = written
        need = _Need(
            place=place,
            what=f"sink '{plan.name}' writes to",
            topics={target.topic: ()},
            is_written=True,
        )
        found.setdefault(cluster_of_sink(pipeline, target.kafka), []).append(need)
    return found


def _written_topic(
    pipeline: Pipeline, plan: QueryPlan
) -> tuple[TopicTarget | DeadLetters, Place] | None:
    if plan.sink is None:
        letters = pipeline.dead_letters
        return None if letters is None else (letters, letters.place or Place(pipeline.file, 1, 1))
    target = plan.sink.target
    return (target, plan.sink.place) if isinstance(target, TopicTarget) else None


def _named_topics(topics: TopicInput) -> dict[str, tuple[int, ...]]:
    """The topics that a source names; none for a pattern, whose topics may come later."""
    if topics.assign is not None:
        return {topic: tuple(held) for topic, held in topics.assign.items()}
    return dict.fromkeys(topics.topics, ())


class _Look:
    """One look at a cluster, for all sources and sinks that use it."""

    def __init__(self, cluster: Cluster, needs: Sequence[_Need]) -> None:
        self._settings = dict(cluster)
        self._needs = needs

    @property
    def _bootstrap(self) -> str:
        return self._settings["bootstrap.servers"]

    def problems(self) -> list[Unready]:
        """What is missing in the cluster."""
        settings = {
            **self._settings,
            "socket.connection.setup.timeout.ms": str(int(_CONNECT_S * 1000)),
        }
        try:
            with Admin(settings) as admin:
                admin.connect(timeout=_ANSWER_S)
                return self._missing(admin)
        except OdradekError as error:
            return [
                (
                    one.place,
                    f"{one.what} {_topics_text(one)} on {self._bootstrap}, where no broker"
                    f" answers: {error}",
                )
                for one in self._needs
            ]

    def _missing(self, admin: Admin) -> list[Unready]:
        topics = self._described(admin)
        found = []
        for need in self._needs:
            for topic, partitions in need.topics.items():
                why = self._why_missing(admin, need, topic, partitions, topics[topic])
                if why is not None:
                    found.append((need.place, f"{need.what} the topic '{topic}', {why}"))
        return found or self._unreachable_brokers(admin)

    def _described(self, admin: Admin) -> dict[str, TopicView | ApiError]:
        """The topics; those that are only read are looked for again before they are missing."""
        names = sorted({topic for need in self._needs for topic in need.topics})
        read = {topic for need in self._needs if not need.is_written for topic in need.topics}
        found = admin.describe_topics(names, timeout=_ANSWER_S) if names else {}
        for pause_s in _LOOK_PAUSES_S:
            missing = [name for name in names if name in read and _is_unknown(found[name])]
            if not missing:
                break
            threading.Event().wait(pause_s)
            found |= admin.describe_topics(missing, timeout=_ANSWER_S)
        return found

    def _why_missing(
        self,
        admin: Admin,
        need: _Need,
        topic: str,
        partitions: Collection[int],
        found: TopicView | ApiError,
    ) -> str | None:
        if isinstance(found, TopicView):
            lacking = [one for one in partitions if one >= len(found.partitions)]
            if not lacking or need.may_be_gone:
                return None
            numbers = ", ".join(map(str, lacking))
            last = len(found.partitions) - 1
            return f"which has no partition {numbers}: its partitions are 0 to {last}"
        if not _is_unknown(found):
            # Partitions without a leader, say: the query waits for them.
            return None if found.code.retriable else f"which is refused: {found}"
        if need.may_be_gone or (need.is_written and _creates_topics(admin)):
            return None
        hint = suggestion(topic, admin.list_topics(timeout=_ANSWER_S))
        return (
            f"which {self._bootstrap} does not have{hint}; create it: odradek topics create"
            f" {topic} --bootstrap-server {self._bootstrap}"
        )

    def _unreachable_brokers(self, admin: Admin) -> list[Unready]:
        """A cluster that names addresses for clients of which none can be reached from here."""
        whys = []
        for node in admin.describe_cluster(timeout=_ANSWER_S).nodes:
            why = _why_unreachable(node.host, node.port)
            if why is None:
                return []
            whys.append(f"{node.host}:{node.port} ({why})")
        if not whys:
            return []
        return [
            (
                one.place,
                f"{one.what} {_topics_text(one)} on {self._bootstrap}, whose brokers name addresses"
                f" that cannot be reached from here: {', '.join(whys)}; see advertised.listeners of"
                " the brokers",
            )
            for one in self._needs
        ]


def _is_unknown(found: TopicView | ApiError) -> bool:
    return isinstance(found, ApiError) and found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topics_text(need: _Need) -> str:
    names = ", ".join(f"'{topic}'" for topic in need.topics)
    return f"the topic{'s' if len(need.topics) > 1 else ''} {names}" if names else "topics"


def _creates_topics(admin: Admin) -> bool:
    """Whether brokers create a topic that is written to; so it is assumed if none says."""
    try:
        nodes = admin.describe_cluster(timeout=_ANSWER_S).nodes
        broker = ConfigResource(ConfigResourceType.BROKER, str(nodes[0].id))
        told = admin.describe_configs([broker], names=[_AUTO_CREATE], timeout=_ANSWER_S)[broker]
    except (OdradekError, IndexError):
        return True
    if isinstance(told, ApiError):
        return True
    return all(entry.value != "false" for entry in told)


def _why_unreachable(host: str, port: int) -> str | None:
    """Why an address does not take a connection; None if it does."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return None
    except OSError as error:
        return error.strerror or str(error)
