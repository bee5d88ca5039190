"""Where `consume` ends: partitions that have reached their end, and groups that rebalance."""

import argparse
import asyncio
from collections.abc import Iterable
from typing import Any

from odradek.cli.messages.inlet import Inlet
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord, TimestampType

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeConsumer:
    """The assignment and positions of a consumer, which the test sets."""

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        self.ends = ends
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    async def position(self, tp: TopicPartition) -> int:
        return self.positions[tp]

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in partitions}

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.update(partitions)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset


def inlet_of(consumer: FakeConsumer) -> Inlet:
    arguments = argparse.Namespace(exit_at_end=True, to=None)
    stand_in: Any = consumer
    return Inlet(stand_in, arguments, now_ms=0)


def records(tp: TopicPartition, *offsets: int) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(*tp, offset, 0, TimestampType.CREATE_TIME, None, b"") for offset in offsets
    ]


def test_messages_behind_the_end_are_given_back() -> None:
    asyncio.run(read_up_to_the_ends())


async def read_up_to_the_ends() -> None:
    consumer = FakeConsumer({A: 2, B: 5})
    inlet = inlet_of(consumer)
    inlet.on_partitions_assigned([A, B])
    consumer.positions = {A: 0, B: 0}
    assert await inlet.cut([]) == []
    consumer.ends = {A: 9, B: 9}  # More arrives meanwhile.
    consumer.positions = {A: 4, B: 3}
    kept = await inlet.cut([*records(A, 0, 1, 2, 3), *records(B, 0, 1, 2)])
    assert kept == [*records(A, 0, 1), *records(B, 0, 1, 2)]
    assert (consumer.positions[A], consumer.paused, inlet.is_done) == (2, {A}, False)
    consumer.positions[B] = 5  # By way of a marker, without a message.
    assert await inlet.cut([]) == []
    assert inlet.is_done


def test_a_group_that_rebalances_has_not_reached_its_end() -> None:
    asyncio.run(read_through_a_rebalance())


async def read_through_a_rebalance() -> None:
    consumer = FakeConsumer({A: 2, B: 2})
    inlet = inlet_of(consumer)
    inlet.on_partitions_assigned([A, B])
    consumer.positions = {A: 2, B: 0}
    await inlet.cut([])
    inlet.on_partitions_revoked([A, B])
    consumer.positions = {}
    assert await inlet.cut([]) == []
    assert not inlet.is_done
    consumer.positions = {B: 1}
    inlet.on_partitions_assigned([B])
    await inlet.cut([])
    assert not inlet.is_done
    consumer.positions = {B: 2}
    await inlet.cut([])
    assert inlet.is_done
