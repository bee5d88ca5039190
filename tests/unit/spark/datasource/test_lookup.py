"""What planning asks, of a broker that says what it is told to."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from odradek.client.client import Client
from odradek.client.consumer.config import ConsumerConfig
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.spark.datasource.connections import ClusterConnection
from odradek.spark.datasource.lookup import ClusterLookup, Selected
from odradek.spark.datasource.options import Selection
from tests.support.scripted_broker import client_of, scripted, told_topic

T0 = TopicPartition("t", 0)


class LoopConnection:
    """A connection whose client lives on the loop of a test."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.config = ConsumerConfig()
        self._loop = asyncio.get_running_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


def select(
    selection: Selection, known: list[TopicPartition], *, forgetful: int
) -> tuple[Selected, int]:
    """What comes of a broker whose first answers know no topic, and how often it was asked."""

    async def ask() -> tuple[Selected, int]:
        async with scripted() as broker, client_of(broker) as client:
            count = 0

            def answer(request: MetadataRequest) -> MetadataResponse:
                nonlocal count
                count += 1
                broker.topics = {"t": told_topic("t")} if count > forgetful else {}
                return broker.metadata(request)

            broker.will_answer(ApiKey.METADATA, answer)
            lookup = ClusterLookup(cast("ClusterConnection", LoopConnection(client)))
            return await asyncio.to_thread(lookup.select, selection, known), count

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "selection",
    [Selection(topics=("t",)), Selection(pattern="t"), Selection(partitions=(T0,))],
)
def test_what_was_there_is_asked_for_again(selection: Selection) -> None:
    """12:SP-37: a broker that has just started does not know it yet."""
    found, _ = select(selection, [T0], forgetful=2)
    assert (found.partitions, found.missing) == ((T0,), ())


def test_what_is_gone_is_gone_in_the_end() -> None:
    """12:SP-37."""
    found, _ = select(Selection(topics=("t",)), [T0], forgetful=1000)
    assert (found.partitions, found.missing) == ((), ("t",))


def test_what_nobody_knew_is_asked_for_once() -> None:
    others = [TopicPartition("other", 0)]
    for known in ([], others):
        found, count = select(Selection(topics=("t",)), known, forgetful=1000)
        assert (found.missing, count) == (("t",), 1)
