"""The clusters that a pipeline reads from, as settings of an admin client.

A source may have a cluster of its own, by `kafka: {bootstrap.servers: …}`. Every cluster that a
query reads from has the query's group, with the offsets of its own topics.
"""

from collections.abc import Mapping

from odradek.spark.pipeline.engine.frames.source_options import reading_options
from odradek.spark.pipeline.graph.model import Pipeline, TopicInput
from odradek.spark.pipeline.graph.topics import topic_sources
from odradek.spark.progress.targets import PROGRESS_GROUP, target_of

__all__ = ["Cluster", "cluster_of", "cluster_of_sink", "clusters_of"]

# Settings of a client by Kafka's name, sorted, so that equal settings compare equal.
Cluster = tuple[tuple[str, str], ...]


def cluster_of(pipeline: Pipeline, topics: TopicInput) -> Cluster:
    """The cluster of a source: the settings with which its progress is committed."""
    options: Mapping[str, str] = reading_options(
        topics, pipeline.bootstrap or "", with_headers=False, is_streaming=True
    )
    target = target_of({**options, PROGRESS_GROUP: "any"})
    assert target is not None, "a group was given"
    return target.kafka


def cluster_of_sink(pipeline: Pipeline, kafka: Mapping[str, str]) -> Cluster:
    """The cluster of a sink with these settings of a client."""
    options = {"kafka.bootstrap.servers": pipeline.bootstrap or "", PROGRESS_GROUP: "any"}
    target = target_of(options | {f"kafka.{name}": value for name, value in kafka.items()})
    assert target is not None, "a group was given"
    return target.kafka


def clusters_of(pipeline: Pipeline, query: str) -> tuple[Cluster, ...]:
    """The clusters that a query reads from, each once."""
    sources = topic_sources(pipeline, query).values()
    return tuple(dict.fromkeys(cluster_of(pipeline, one) for one in sources))
