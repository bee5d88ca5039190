"""Under which id and epoch partitions count, as the docstring of `identity` has it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from odradek.client.producer.batch import PartitionQueue
from odradek.client.producer.identity import Identity
from odradek.errors import ErrorCode, OdradekError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.support.scripted_broker import client_of, scripted


class Asker:
    """An identity whose questions are tasks of the test, and what it told."""

    def __init__(self) -> None:
        self.identity: Identity
        self.tasks: list[asyncio.Task[None]] = []
        self.answer_count = 0
        self.refusals: list[OdradekError] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def on_answer(self) -> None:
        self.answer_count += 1

    async def ask(self) -> None:
        self.identity.ask()
        await self.tasks[-1]


@asynccontextmanager
async def asker_of(*answers: InitProducerIdResponse) -> AsyncIterator[Asker]:
    async with scripted() as broker:
        broker.will_answer(ApiKey.INIT_PRODUCER_ID, *answers)
        async with client_of(broker) as client:
            asker = Asker()
            asker.identity = Identity(
                client,
                5_000,
                start=asker.start,
                on_answer=asker.on_answer,
                on_refusal=asker.refusals.append,
            )
            yield asker


def told(producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def numbers_of(queue: PartitionQueue) -> tuple[int, int]:
    return queue.producer_id, queue.producer_epoch


async def test_two_that_break_share_one_new_epoch() -> None:
    """09:CL-14: a partition needs an epoch that it did not have, not one that nobody has."""
    async with asker_of(told(7, 0)) as asker:
        identity = asker.identity
        await asker.ask()
        queues = [PartitionQueue("t", number) for number in range(3)]
        assert all(identity.try_lend(queue) for queue in queues)
        for queue in queues[:2]:
            queue.is_broken = True

        assert all(identity.try_lend(queue) for queue in queues)
        assert [numbers_of(queue) for queue in queues] == [(7, 1), (7, 1), (7, 0)]
        assert not any(queue.is_broken for queue in queues)


async def test_another_id_is_asked_for_after_the_last_epoch() -> None:
    """09:CL-14: meanwhile nobody gets numbers, not even who needs no new ones."""
    async with asker_of(told(7, 32767), told(8, 0)) as asker:
        identity = asker.identity
        await asker.ask()
        broken, sound = PartitionQueue("t", 0), PartitionQueue("t", 1)
        assert identity.try_lend(broken)
        broken.is_broken = True

        assert not identity.try_lend(broken)
        assert not identity.has_id
        assert not identity.try_lend(sound)
        assert len(asker.tasks) == 2
        await asker.tasks[-1]
        assert identity.try_lend(broken)
        assert identity.try_lend(sound)
        assert numbers_of(broken) == numbers_of(sound) == (8, 0)


async def test_it_is_asked_once_at_a_time() -> None:
    """09:CL-14: however many batches wait for the answer."""
    async with asker_of(told(7, 0)) as asker:
        asker.identity.ask()
        asker.identity.ask()
        assert len(asker.tasks) == 1
        await asker.tasks[0]
        assert asker.identity.has_id
        assert asker.answer_count == 1


async def test_a_refusal_that_lasts_is_told() -> None:
    """09:CL-14: who waits for numbers that never come has to fail."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with asker_of(InitProducerIdResponse(error_code=code)) as asker:
        await asker.ask()

        assert not asker.identity.has_id
        assert [str(error).count("no producer id") for error in asker.refusals] == [1]
        assert asker.answer_count == 1
