"""Lookups in a cluster for planning: topics and their ids, offsets, sizes on disk."""

import asyncio
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from odradek.client.admin.cluster import LogDir, describe_log_dirs
from odradek.client.cluster import TopicView
from odradek.client.offsets import LATEST, list_offsets
from odradek.client.range_reader import topic_id_text
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.spark.datasource.bounds import Bound
from odradek.spark.datasource.connections import ClusterConnection
from odradek.spark.datasource.options import Selection

__all__ = ["ClusterLookup", "Lookup", "Selected", "is_wanted", "resolve"]

_READ_UNCOMMITTED: Final = 0
# Attempts before a partition that existed before counts as gone.
_MAX_LOOKS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The partitions that a selection matches now."""

    partitions: tuple[TopicPartition, ...]
    # Id by topic, for topics that exist.
    topic_ids: Mapping[str, str]
    # Topics and partitions that are named and do not exist.
    missing: tuple[TopicPartition | str, ...] = ()


class Lookup(Protocol):
    """The lookups that planning needs; the fake of tests answers from memory."""

    def select(self, selection: Selection, known: Collection[TopicPartition] = ()) -> Selected:
        """The partitions that a selection matches now.

        Args:
            known: Partitions that existed before. If one is missing, the cluster is asked again,
                before it counts as gone.
        """
        ...

    def offsets(self, queries: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of the first record at or after a time in ms, -1 if there is none.

        Instead of a time, -2 queries the log's start and -1 its end.
        """
        ...

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each log, open transactions included, at any isolation level."""
        ...

    def sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes on the leaders' disks."""
        ...


class ClusterLookup:
    """A `Lookup` that asks brokers."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._isolation_level = connection.config.isolation

    def select(self, selection: Selection, known: Collection[TopicPartition] = ()) -> Selected:
        """See `Lookup`. Asks several times: a broker that just started may not know all topics.

        Raises:
            ApiError: Brokers do not answer, or refuse.
        """
        client = self._connection.client
        wanted = {tp for tp in known if is_wanted(selection, tp)}
        for pause_ms in itertools.islice(client.pauses_ms(), _MAX_LOOKS - 1):
            selected = self._select(selection)
            if wanted <= set(selected.partitions):
                return selected
            self._connection.run(asyncio.sleep(pause_ms / 1000))
        return self._select(selection)

    def _select(self, selection: Selection) -> Selected:
        if selection.pattern is not None:
            return self._matching(re.compile(selection.pattern, re.ASCII))
        if selection.partitions is not None:
            return self._assigned(selection.partitions)
        return self._subscribed(selection.topics or ())

    def _matching(self, pattern: re.Pattern[str]) -> Selected:
        found = {
            name: topic
            for name, topic in self._topics(None).items()
            if not topic.is_internal and pattern.fullmatch(name)
        }
        return _selected(found)

    def _subscribed(self, names: Collection[str]) -> Selected:
        found = self._topics(names)
        return _selected(found, missing=tuple(name for name in names if name not in found))

    def _assigned(self, partitions: Collection[TopicPartition]) -> Selected:
        found = self._topics(sorted({tp.topic for tp in partitions}))
        there = set(_selected(found).partitions)
        return Selected(
            partitions=tuple(tp for tp in partitions if tp in there),
            topic_ids=_selected(found).topic_ids,
            missing=tuple(tp for tp in partitions if tp not in there),
        )

    def _topics(self, names: Collection[str] | None) -> dict[str, TopicView]:
        found: dict[str, TopicView] = {}
        for name, topic in self._connection.run(self._connection.client.topics(names)).items():
            if isinstance(topic, TopicView):
                found[name] = topic
            elif names is not None and not topic.code.retriable:
                raise topic
        return found

    def offsets(self, queries: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `Lookup`.

        Raises:
            ApiError: Brokers do not answer, or refuse.
        """
        return self._ask_offsets(queries, self._isolation_level)

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Lookup`.

        Raises:
            ApiError: Brokers do not answer, or refuse.
        """
        return self._ask_offsets(dict.fromkeys(partitions, LATEST), _READ_UNCOMMITTED)

    def _ask_offsets(
        self, queries: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, int]:
        if not queries:
            return {}
        answers = self._connection.run(
            list_offsets(self._connection.client, queries, isolation_level=isolation_level)
        )
        found = {}
        for tp, answer in answers.items():
            if isinstance(answer, ApiError):
                raise answer
            found[tp] = answer.offset
        return found

    def sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Lookup`.

        Raises:
            ApiError: Brokers do not answer, or refuse.
        """
        client = self._connection.client
        leaders = {
            tp: leader.id for tp in partitions if (leader := client.cluster.leader(tp)) is not None
        }
        told = self._connection.run(
            describe_log_dirs(client, sorted(set(leaders.values())), deadline=client.deadline())
        )
        found: dict[TopicPartition, int] = {}
        for node_id, log_dirs in told.items():
            if isinstance(log_dirs, ApiError):
                raise log_dirs
            for log_dir in log_dirs.values():
                if not isinstance(log_dir, LogDir):
                    raise log_dir
                for tp, replica in log_dir.replicas.items():
                    if leaders.get(tp) == node_id and not replica.is_future:
                        found[tp] = replica.size
        if leaders and not found:
            # Older brokers answer so to a client without the right.
            raise ApiError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "maxBytesPerTrigger needs the right to describe log directories; use "
                "maxOffsetsPerTrigger, or allow Describe on the cluster",
            )
        return found


def is_wanted(selection: Selection, tp: TopicPartition) -> bool:
    """Whether a selection matches a partition, if it exists."""
    if selection.pattern is not None:
        return re.fullmatch(selection.pattern, tp.topic, re.ASCII) is not None
    if selection.partitions is not None:
        return tp in selection.partitions
    return tp.topic in (selection.topics or ())


def _selected(topics: Mapping[str, TopicView], missing: tuple[str, ...] = ()) -> Selected:
    return Selected(
        partitions=tuple(
            TopicPartition(name, one.partition)
            for name, topic in sorted(topics.items())
            for one in topic.partitions
        ),
        topic_ids={name: topic_id_text(topic.topic_id) for name, topic in sorted(topics.items())},
        missing=missing,
    )


def resolve(
    lookup: Lookup, bound: Bound, partitions: Iterable[TopicPartition], *, on_no_match: str
) -> dict[TopicPartition, int]:
    """The offsets of a bound in the logs as they are now.

    Args:
        on_no_match: For a time after the last record: `latest`, or `error`.

    Raises:
        ValueError: The bound does not fit the partitions, or there is no match.
    """
    wanted = list(partitions)
    found = lookup.offsets(bound.queries(wanted)) | bound.fixed(wanted)
    unmatched = [tp for tp in wanted if found[tp] < 0]
    if unmatched and on_no_match == "error":
        raise ValueError(
            f"{bound.option}: there is no record at or after that time in "
            f"{', '.join(map(str, unmatched[:20]))}; choose an earlier time, or set "
            "startingOffsetsByTimestampStrategy=latest"
        )
    found |= lookup.offsets(dict.fromkeys(unmatched, LATEST))
    return {tp: found[tp] for tp in wanted}
