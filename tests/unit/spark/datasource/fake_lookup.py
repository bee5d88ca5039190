"""A cluster in memory, for planning."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from odradek.client.offsets import EARLIEST, LATEST
from odradek.model import TopicPartition
from odradek.spark.datasource.lookup import Selected
from odradek.spark.datasource.options import Selection

__all__ = ["FakeLog", "FakeLookup"]


@dataclass
class FakeLog:
    """One partition: a record per offset between the two, each later than the one before."""

    end: int = 0
    start: int = 0
    first_timestamp_ms: int = 1000
    size_bytes: int = 0
    # Where an open transaction begins.
    stable_end: int | None = None


@dataclass
class FakeLookup:
    """Answers as brokers would."""

    logs: dict[str, list[FakeLog]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    queries: list[dict[TopicPartition, int]] = field(default_factory=list)

    def select(self, selection: Selection, known: Collection[TopicPartition] = ()) -> Selected:
        del known  # Nothing is ever missing by chance here.
        there = {
            TopicPartition(name, number)
            for name, logs in self.logs.items()
            for number in range(len(logs))
        }
        if selection.partitions is not None:
            wanted = set(selection.partitions)
            missing: set[TopicPartition | str] = set(wanted - there)
            found = wanted & there
        elif selection.topics is not None:
            missing = {name for name in selection.topics if name not in self.logs}
            found = {tp for tp in there if tp.topic in selection.topics}
        else:
            pattern = re.compile(selection.pattern or "")
            missing = set()
            found = {tp for tp in there if pattern.fullmatch(tp.topic)}
        return Selected(
            partitions=tuple(sorted(found)),
            topic_ids={
                name: self.ids.get(name, f"id-of-{name}")
                for name in sorted({tp.topic for tp in found})
            },
            missing=tuple(sorted(missing, key=str)),
        )

    def offsets(self, queries: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.queries.append(dict(queries))
        return {tp: self._offset(tp, query) for tp, query in queries.items()}

    def _offset(self, tp: TopicPartition, query: int) -> int:
        log = self.logs[tp.topic][tp.partition]
        if query == EARLIEST:
            return log.start
        if query == LATEST:
            return log.end if log.stable_end is None else log.stable_end
        offset = log.start + max(query - log.first_timestamp_ms, 0)
        return offset if offset < log.end else -1

    def log_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp.topic][tp.partition].end for tp in partitions}

    def sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp.topic][tp.partition].size_bytes for tp in partitions}
