"""Metadata and DescribeTopicPartitions of many topics: in slices, of one image (02 section 12)."""

import asyncio
from collections.abc import Iterable
from typing import Any

from odradek.broker.dispatch import HANDLERS
from odradek.metadata.cache import MetadataCache, TopicMetadata
from odradek.metadata.image import ClusterImage
from odradek.network.request import Request
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.broker.handlers.handler_fakes import BrokerFixture


class CountedNames(list[str]):
    """Counts the names that are looked at."""

    looked_at = 0

    def __getitem__(self, place: Any) -> Any:
        self.looked_at += 1
        return super().__getitem__(place)


class CountingCache(MetadataCache):
    """Counts the topics that are read; each takes a millisecond."""

    __slots__ = ("broker", "names", "read")

    def __init__(self, broker: BrokerFixture) -> None:
        super().__init__(0)
        self.broker = broker
        self.read = 0
        self.names = CountedNames()
        self._image = broker.cache.image

    def get_sorted_topics(self, image: ClusterImage) -> list[str]:
        self.names = CountedNames(super().get_sorted_topics(image))
        return self.names

    def get_topic_metadata(
        self, topics: Iterable[str], listener: str, **options: Any
    ) -> list[TopicMetadata]:
        names = list(topics)
        self.read += len(names)
        self.broker.clock.advance(len(names))
        return super().get_topic_metadata(names, listener, **options)


def make(topic_count: int) -> tuple[BrokerFixture, CountingCache]:
    broker = BrokerFixture()
    for number in range(topic_count):
        broker.publish_topic(f"t{number:03}", 2, number=number + 1)
    cache = CountingCache(broker)
    object.__setattr__(broker.context, "cache", cache)
    return broker, cache


def finish(broker: BrokerFixture, between: Any = None) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(broker.tasks.run_all())
        await asyncio.sleep(0)
        if between is not None:
            between()
        await task

    asyncio.run(main())


def metadata_request(broker: BrokerFixture) -> Request:
    return broker.request(ApiKey.METADATA, MetadataRequest(topics=None), 9)


def test_all_topics_are_told_in_slices_of_one_image() -> None:
    broker, cache = make(50)
    assert HANDLERS[ApiKey.METADATA](metadata_request(broker), broker.context) is None
    assert cache.read == 1  # Of which each would take a millisecond.

    def delete() -> None:
        broker.remove_topic("t049")
        cache._image = broker.cache.image

    finish(broker, delete)
    answer = broker.last_sent(MetadataResponse)
    assert [topic.name for topic in answer.topics] == [f"t{number:03}" for number in range(50)]


def test_a_page_reads_its_own_topics_only() -> None:
    """It used to build all that remained, for each page."""
    broker, cache = make(50)
    message = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10)
    request = broker.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, message, 0)
    assert HANDLERS[ApiKey.DESCRIBE_TOPIC_PARTITIONS](request, broker.context) is None
    finish(broker)
    answer = broker.last_sent(DescribeTopicPartitionsResponse)
    assert len(answer.topics) == 5
    assert answer.next_cursor is not None
    assert answer.next_cursor.topic_name == "t005"
    assert cache.read == 6  # And the one that the cursor names.
    # Those, and a few to find where the page begins; not all that come behind it.
    assert cache.names.looked_at < 20
