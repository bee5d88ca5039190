"""Fetch requests as they are nested on the wire, and in which versions they are sent. Pure."""

from collections.abc import Mapping
from typing import Final

from odradek.client.consumer.fetch_session import Wanted
from odradek.model import TopicPartition
from odradek.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

__all__ = [
    "FETCH_LANE",
    "FIRST_FETCH_VERSION",
    "LAST_FETCH_BY_NAME",
    "fetch_topics",
    "forgotten_topics",
]

# The connection for fetches: nothing else waits behind a long poll.
FETCH_LANE: Final = "fetch"
# The first version with batches of magic 2, and the last that names topics.
FIRST_FETCH_VERSION: Final = 4
LAST_FETCH_BY_NAME: Final = 12


def fetch_topics(wanted: Mapping[TopicPartition, Wanted], max_bytes: int) -> list[FetchTopic]:
    """Partitions as a Fetch request nests them, in their order as far as topics allow."""
    topics: dict[str, list[FetchPartition]] = {}
    ids: dict[str, bytes] = {}
    for tp, one in wanted.items():
        ids[tp.topic] = one.topic_id
        topics.setdefault(tp.topic, []).append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=one.leader_epoch,
                fetch_offset=one.offset,
                last_fetched_epoch=one.last_epoch,
                partition_max_bytes=max_bytes,
            )
        )
    return [
        FetchTopic(topic=name, topic_id=ids[name], partitions=partitions)
        for name, partitions in topics.items()
    ]


def forgotten_topics(partitions: Mapping[TopicPartition, bytes]) -> list[ForgottenTopic]:
    """Partitions as a Fetch request removes them from its session."""
    topics: dict[tuple[str, bytes], list[int]] = {}
    for tp, topic_id in partitions.items():
        topics.setdefault((tp.topic, topic_id), []).append(tp.partition)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
        for (name, topic_id), numbers in topics.items()
    ]
