"""A position in a stream as Spark keeps it: JSON in its checkpoint. Pure.

::

    {"v": 1,
     "topics": {"orders": {"id": "iJZ4...", "p": {"0": 123, "1": 77}}},
     "split": {"min": 0, "max": 0}}

`p` has the next offset of each partition. `split` has `minPartitions` and `maxRecordsPerPartition`,
0 for none, as they were when the batch was planned: a batch that is planned again after a restart
gives the same tasks, even if the options have changed.

Rules:

1. Spark compares positions as text. So one position has one text: topics by name, partitions by
   number, and nothing that can change while the position stays.
2. A topic that was deleted and created again has another id. The id is "" where brokers give none.
3. Kafka's plain form, `{"orders": {"0": 123}}`, is read as well: it has no ids and no split.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from odradek.model import TopicPartition

__all__ = ["NO_ID", "NO_SPLIT", "Position", "SplitRule", "TopicPosition", "parse_plain"]

_VERSION: Final = 1
_MAX_PARTITION: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1

# Id of a topic whose broker gives no ids.
NO_ID: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """How ranges of offsets are cut into tasks; 0: the option is not set."""

    min_partitions: int = 0
    max_records: int = 0


NO_SPLIT: Final = SplitRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPosition:
    """The position in one topic."""

    topic_id: str = NO_ID
    # Next offset by partition.
    offsets: Mapping[int, int]

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.offsets.items()))
        object.__setattr__(self, "offsets", MappingProxyType(ordered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """See the module's docstring."""

    topics: Mapping[str, TopicPosition] = field(default_factory=dict)
    split: SplitRule = NO_SPLIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", MappingProxyType(dict(sorted(self.topics.items()))))

    @classmethod
    def of(
        cls,
        offsets: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        split: SplitRule = NO_SPLIT,
    ) -> "Position":
        """The position of partitions whose topics have these ids."""
        nested: dict[str, dict[int, int]] = {}
        for tp, offset in offsets.items():
            nested.setdefault(tp.topic, {})[tp.partition] = offset
        topics = {
            name: TopicPosition(topic_id=topic_ids.get(name, NO_ID), offsets=partitions)
            for name, partitions in nested.items()
        }
        return cls(topics=topics, split=split)

    @classmethod
    def parse(cls, told: object) -> "Position":
        """Reads the form that `to_json` writes, or Kafka's plain form.

        Raises:
            ValueError: It is neither, or of an unknown version.
        """
        if not isinstance(told, Mapping):
            raise _malformed(told, "expected an object")
        version = told.get("v")
        if isinstance(version, Mapping) or (version is None and "topics" not in told):
            return cls.of(parse_plain(told, lowest=0), {})
        if version != _VERSION or isinstance(version, bool):
            raise ValueError(
                f"an offset of version {version!r}: this odradek reads version {_VERSION} and "
                "Kafka's plain form; a newer odradek wrote it, use that one"
            )
        return cls(topics=_parse_topics(told), split=_parse_split(told))

    def to_json(self) -> dict[str, object]:
        """The document for Spark's checkpoint, in the order of rule 1."""
        return {
            "v": _VERSION,
            "topics": {
                name: {
                    "id": topic.topic_id,
                    "p": {str(number): offset for number, offset in topic.offsets.items()},
                }
                for name, topic in self.topics.items()
            },
            "split": {"min": self.split.min_partitions, "max": self.split.max_records},
        }

    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset of every partition, in order."""
        return {
            TopicPartition(name, number): offset
            for name, topic in self.topics.items()
            for number, offset in topic.offsets.items()
        }

    def offset(self, tp: TopicPartition) -> int | None:
        """The next offset of one partition; None if the position does not have it."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.offsets.get(tp.partition)

    def topic_ids(self) -> dict[str, str]:
        """The id of every topic, `NO_ID` where it is not known."""
        return {name: topic.topic_id for name, topic in self.topics.items()}


def parse_plain(told: object, *, lowest: int) -> dict[TopicPartition, int]:
    """Reads Kafka's form, `{"topic": {"0": 123}}`.

    Args:
        lowest: The lowest number allowed as an offset: -2 where -1 and -2 mean the ends.

    Raises:
        ValueError: It has another form.
    """
    if not isinstance(told, Mapping):
        raise _malformed(told, "expected an object")
    numbers: dict[TopicPartition, int] = {}
    for name, partitions in told.items():
        if not isinstance(name, str) or not name:
            raise _malformed(told, f"{name!r} is not a topic")
        if not isinstance(partitions, Mapping):
            raise _malformed(told, f"of topic {name!r}: expected an object of partitions")
        for number, value in partitions.items():
            tp = TopicPartition(name, _parse_partition(number, name))
            numbers[tp] = _parse_number(value, lowest=lowest, what=str(tp))
    return numbers


def _parse_topics(told: Mapping[object, object]) -> dict[str, TopicPosition]:
    topics = told.get("topics")
    if not isinstance(topics, Mapping):
        raise _malformed(told, "expected an object under 'topics'")
    parsed = {}
    for name, topic in topics.items():
        if not isinstance(topic, Mapping) or not isinstance(topic.get("id"), str):
            raise _malformed(told, f"of topic {name!r}: expected an 'id' and 'p'")
        plain = parse_plain({name: topic.get("p")}, lowest=0)
        parsed[name] = TopicPosition(
            topic_id=topic["id"], offsets={tp.partition: at for tp, at in plain.items()}
        )
    return parsed


def _parse_split(told: Mapping[object, object]) -> SplitRule:
    split = told.get("split")
    if not isinstance(split, Mapping):
        raise _malformed(told, "expected an object under 'split'")
    return SplitRule(
        min_partitions=_parse_number(split.get("min"), lowest=0, what="split min"),
        max_records=_parse_number(split.get("max"), lowest=0, what="split max"),
    )


def _parse_partition(number: object, topic: str) -> int:
    is_number = isinstance(number, str) and number.isdecimal() and number.isascii()
    if not is_number or int(str(number)) > _MAX_PARTITION:
        raise ValueError(f"{number!r} is not a partition of topic {topic!r}")
    return int(str(number))


def _parse_number(value: object, *, lowest: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(  # noqa: TRY004 - the text has a wrong form, the caller no wrong type
            f"{what}: expected a whole number, found {value!r}"
        )
    if not lowest <= value <= _MAX_OFFSET:
        raise ValueError(f"{what}: expected at least {lowest}, found {value}")
    return value


def _malformed(told: object, why: str) -> ValueError:
    return ValueError(f"not an offset of this source: {why}; found {str(told)[:200]}")
