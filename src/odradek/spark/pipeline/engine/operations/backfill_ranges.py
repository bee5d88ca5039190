"""The offsets between the two positions of a backfill, as they are now.

A backfill that is exactly-once is known by them: the same range of the same sink is written once.
"""

import hashlib
import json
from dataclasses import dataclass

from odradek.spark.datasource.connections import CONNECTIONS
from odradek.spark.datasource.lookup import ClusterLookup, resolve
from odradek.spark.datasource.options import parse_options
from odradek.spark.pipeline.engine.frames.source_options import (
    ending_options,
    reading_options,
    starting_options,
    without_start,
)
from odradek.spark.pipeline.graph.model import Pipeline, Sink, StartPosition, TopicInput
from odradek.spark.pipeline.graph.topics import position_for, topic_sources

__all__ = ["Range", "batch_options", "range_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets of every partition that a sink reads, and their digest."""

    start: StartPosition
    end: StartPosition
    digest: str


def batch_options(
    pipeline: Pipeline,
    topics: TopicInput,
    start: StartPosition,
    end: StartPosition,
    *,
    with_headers: bool,
) -> dict[str, str]:
    """The options for reading a source between two positions."""
    options = reading_options(
        topics, pipeline.bootstrap or "", with_headers=with_headers, is_streaming=False
    )
    options = without_start(options)
    options |= starting_options(position_for(topics, start))
    return options | ending_options(position_for(topics, end))


def range_of(pipeline: Pipeline, sink: Sink, start: StartPosition, end: StartPosition) -> Range:
    """Looks up the offsets of two positions.

    Raises:
        ApiError: Brokers do not answer, or refuse.
        ValueError: A position does not fit the topics.
    """
    first: dict[str, dict[int, int]] = {}
    last: dict[str, dict[int, int]] = {}
    for topics in topic_sources(pipeline, sink.name).values():
        given = batch_options(pipeline, topics, start, end, with_headers=False)
        options = parse_options(given, is_streaming=False)
        with CONNECTIONS.lease(options.kafka) as connection:
            lookup = ClusterLookup(connection)
            partitions = lookup.select(options.selection).partitions
            begins = resolve(lookup, options.starting, partitions, on_no_match=options.on_no_match)
            ends = resolve(lookup, options.ending, partitions, on_no_match="latest")
        for tp in partitions:
            first.setdefault(tp.topic, {})[tp.partition] = begins[tp]
            last.setdefault(tp.topic, {})[tp.partition] = max(begins[tp], ends[tp])
    told = json.dumps([pipeline.name, sink.name, first, last], sort_keys=True)
    return Range(
        start=StartPosition(offsets=first),
        end=StartPosition(offsets=last),
        digest=hashlib.sha256(told.encode()).hexdigest(),
    )
