"""Maps sources to the topics they read, and topics to their source.

A position can be a map of offsets for all sources together; each source gets its part of it. Spark
reports progress by topics, which are mapped back to the names in the file.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from odradek.spark.pipeline.graph.model import Pipeline, Source, StartPosition, TopicInput
from odradek.spark.pipeline.graph.queries import stages_of

__all__ = [
    "missing_offsets",
    "name_sources",
    "position_for",
    "reads",
    "topic_sources",
    "unread_offsets",
]

Offsets = Mapping[str, Mapping[int, int]]


def reads(topics: TopicInput, topic: str, partition: int | None = None) -> bool:
    """Whether a source reads a topic, or one of its partitions."""
    if topics.pattern is not None:
        return re.fullmatch(topics.pattern, topic) is not None
    if topics.assign is not None:
        return topic in topics.assign and (partition is None or partition in topics.assign[topic])
    return topic in topics.topics


def position_for(topics: TopicInput, position: StartPosition) -> StartPosition:
    """The part of a position that is for one source."""
    if position.offsets is None:
        return position
    offsets = {
        topic: {number: offset for number, offset in held.items() if reads(topics, topic, number)}
        for topic, held in position.offsets.items()
        if reads(topics, topic)
    }
    return replace(position, offsets=offsets)


def unread_offsets(inputs: Iterable[TopicInput], offsets: Offsets) -> list[tuple[str, int | None]]:
    """Topics that no source reads; and partitions, where a source names those it reads."""
    sources = list(inputs)
    found: list[tuple[str, int | None]] = []
    for topic, held in offsets.items():
        if not any(reads(one, topic) for one in sources):
            found.append((topic, None))
            continue
        found += [
            (topic, number)
            for number in held
            if not any(reads(one, topic, number) for one in sources)
        ]
    return found


def missing_offsets(topics: TopicInput, offsets: Offsets) -> list[str]:
    """The topics or partitions that a source reads and that have no offsets, in words.

    Only those that the source names: the brokers know the topics of a pattern, and the number of
    partitions.
    """
    if topics.pattern is not None:
        is_there = any(reads(topics, topic) for topic in offsets)
        return [] if is_there else [f"topics like '{topics.pattern}'"]
    if topics.assign is not None:
        return [
            f"partition {number} of topic '{topic}'"
            for topic, numbers in topics.assign.items()
            for number in numbers
            if number not in offsets.get(topic, {})
        ]
    return [f"topic '{topic}'" for topic in topics.topics if topic not in offsets]


def topic_sources(pipeline: Pipeline, query: str) -> dict[str, TopicInput]:
    """The sources of a query that read topics, by name, in the order of the file."""
    sources: list[Source] = [
        pipeline.sources[name] for name in stages_of(pipeline, query) if name in pipeline.sources
    ]
    return {one.name: one.input for one in sources if isinstance(one.input, TopicInput)}


def name_sources(
    inputs: Mapping[str, TopicInput], reported: Sequence[Iterable[str]]
) -> list[str | None]:
    """The source of each set of topics that a query reports; None if none reads all of them.

    Two sources of a query may read the same topics: then they are named in the order of the file.
    One source may be reported more than once, as by a join with itself.
    """
    named: list[str | None] = []
    for topics in reported:
        fitting = [
            name for name, one in inputs.items() if all(reads(one, topic) for topic in topics)
        ]
        # A source that names exactly these topics comes first, before patterns that match them.
        fitting.sort(key=lambda name: not _is_exactly(inputs[name], topics))
        free = [name for name in fitting if name not in named]
        named.append(next(iter(free or fitting), None))
    return named


def _is_exactly(source: TopicInput, topics: Iterable[str]) -> bool:
    told = source.assign if source.assign is not None else source.topics
    return source.pattern is None and set(told) == set(topics)
