"""ISR changes on their way to the controller: together, in one version, each with its outcome."""

import asyncio
import uuid
from collections.abc import Mapping

import pytest

from odradek.broker.peers.isr_requests import IsrRequests
from odradek.errors import ApiError, DisconnectedError, ErrorCode
from odradek.metadata.ports import (
    NO_EPOCHS,
    AlterIsrOutcome,
    IsrAltered,
    IsrConflict,
    IsrNotAsked,
    IsrOutcomeUnknown,
    IsrRefused,
)
from odradek.model import LeaderAndIsr, TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message, parse_message
from odradek.protocol.inter_broker import INTER_BROKER_VERSIONS, InterBrokerVersions
from odradek.protocol.messages.alter_partition import (
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)
from odradek.tasks import OwnedTasks

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": uuid.UUID(int=1), "u": uuid.UUID(int=2)}


def state(*isr: int, version: int = 4) -> LeaderAndIsr:
    return LeaderAndIsr(leader=1, leader_epoch=7, isr=isr, partition_version=version)


class Controller:
    """The far end of a link: grants what it is asked for, unless told otherwise."""

    def __init__(self, protocol: str = "3.9") -> None:
        self.versions: InterBrokerVersions = INTER_BROKER_VERSIONS[protocol]
        self.asked: list[AlterPartitionRequest] = []
        self.errors: dict[tuple[bytes | str, int], ErrorCode] = {}
        self.error = ErrorCode.NONE
        self.failure: ApiError | None = None
        self.is_reached = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def reach(self, _api_key: ApiKey) -> None:
        if not self.is_reached:
            raise DisconnectedError("connection refused")

    async def alter_partition(
        self, message: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        # What is sent must fit the version.
        data = encode_message(message, version)
        message, _ = parse_message(AlterPartitionRequest, memoryview(data), version, 0)
        self.asked.append(message)
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        topics = []
        for topic in message.topics:
            rows = []
            for row in topic.partitions:
                name: bytes | str = topic.topic_id if version >= 2 else topic.topic_name
                isr = row.new_isr or [m.broker_id for m in row.new_isr_with_epochs]
                rows.append(
                    AlterPartitionPartitionResult(
                        partition_index=row.partition_index,
                        error_code=self.errors.get((name, row.partition_index), ErrorCode.NONE),
                        leader_id=1,
                        leader_epoch=7,
                        isr=isr,
                        partition_epoch=row.partition_epoch + 1,
                    )
                )
            topics.append(
                AlterPartitionTopicResult(
                    topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=rows
                )
            )
        answer = AlterPartitionResponse(error_code=self.error, topics=topics)
        parsed, _ = parse_message(
            AlterPartitionResponse, memoryview(encode_message(answer, version)), version, 0
        )
        return parsed


def ask(
    controller: Controller,
    changes: Mapping[TopicPartition, LeaderAndIsr],
    epochs: Mapping[int, int] = NO_EPOCHS,
) -> list[AlterIsrOutcome]:
    async def main() -> list[AlterIsrOutcome]:
        async with OwnedTasks() as tasks:
            requests = IsrRequests(
                1, controller, broker_epoch=lambda: 11, topic_id=IDS.get, tasks=tasks
            )
            return await asyncio.gather(
                *(requests.alter(tp, wanted, epochs) for tp, wanted in changes.items())
            )

    return asyncio.run(main())


@pytest.mark.parametrize("protocol", ["2.7", "2.8", "3.2", "3.3", "3.9"])
def test_changes_travel_together(protocol: str) -> None:
    """08:K-3, in every version of the request."""
    controller = Controller(protocol)
    outcomes = ask(controller, {T0: state(1), T1: state(1, 2), U0: state(1, version=8)})
    assert outcomes == [IsrAltered(5), IsrAltered(5), IsrAltered(9)]
    [request] = controller.asked
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    assert [len(topic.partitions) for topic in request.topics] == [2, 1]


def test_members_come_with_the_registrations_that_the_leader_knows() -> None:
    """15:KAFKA-15221: the controller compares them with its own."""
    controller = Controller()
    ask(controller, {T0: state(1, 2, 3)}, {2: 12})
    [row] = controller.asked[0].topics[0].partitions
    members = [(member.broker_id, member.broker_epoch) for member in row.new_isr_with_epochs]
    assert members == [(1, 11), (2, 12), (3, -1)]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, IsrRefused()),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, IsrRefused()),
        (ErrorCode.INVALID_REQUEST, IsrRefused()),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrConflict()),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrConflict()),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, IsrConflict()),
        (ErrorCode.UNKNOWN_TOPIC_ID, IsrConflict()),
        (ErrorCode.NOT_CONTROLLER, IsrOutcomeUnknown()),
        (ErrorCode.UNKNOWN_SERVER_ERROR, IsrOutcomeUnknown()),
    ],
)
def test_each_change_gets_the_outcome_of_its_partition(
    error: ErrorCode, outcome: AlterIsrOutcome
) -> None:
    controller = Controller()
    controller.errors[IDS["t"].bytes, 0] = error
    # Compared by type, too: named tuples without fields are all equal.
    found = ask(controller, {T0: state(1), T1: state(1)})
    assert [type(each) for each in found] == [type(outcome), IsrAltered]


@pytest.mark.parametrize("is_lost", [False, True], ids=["refused", "lost"])
def test_without_an_answer_all_outcomes_are_unknown(is_lost: bool) -> None:
    controller = Controller()
    if is_lost:
        controller.failure = DisconnectedError("hung up")
    else:
        controller.error = ErrorCode.NOT_CONTROLLER
    found = ask(controller, {T0: state(1), T1: state(1)})
    assert [type(each) for each in found] == [IsrOutcomeUnknown, IsrOutcomeUnknown]


@pytest.mark.parametrize("is_reached", [False, True], ids=["not reached", "not registered yet"])
def test_a_request_that_no_controller_handled_leaves_no_doubt(is_reached: bool) -> None:
    controller = Controller()
    controller.is_reached = is_reached
    controller.error = ErrorCode.STALE_BROKER_EPOCH
    found = ask(controller, {T0: state(1), T1: state(1)})
    assert [type(each) for each in found] == [IsrNotAsked, IsrNotAsked]
    assert len(controller.asked) == is_reached


@pytest.mark.parametrize(
    ("protocol", "error", "is_by_registration"),
    [
        ("3.9", ErrorCode.INELIGIBLE_REPLICA, True),
        ("3.9", ErrorCode.INVALID_REQUEST, False),
        ("3.4", ErrorCode.INELIGIBLE_REPLICA, False),  # It does not bring registrations.
    ],
)
def test_a_refusal_says_whether_registrations_were_compared(
    protocol: str, error: ErrorCode, is_by_registration: bool
) -> None:
    controller = Controller(protocol)
    controller.errors[IDS["t"].bytes, 0] = error
    assert ask(controller, {T0: state(1, 2)}, {2: 12}) == [IsrRefused(is_by_registration)]


def test_one_request_is_in_flight() -> None:
    async def main() -> None:
        controller = Controller()
        controller.may_answer.clear()
        async with OwnedTasks() as tasks:
            requests = IsrRequests(
                1, controller, broker_epoch=lambda: 11, topic_id=IDS.get, tasks=tasks
            )
            first = asyncio.ensure_future(requests.alter(T0, state(1), NO_EPOCHS))
            while not controller.asked:  # noqa: ASYNC110 - a few turns of the loop
                await asyncio.sleep(0)
            others = [
                asyncio.ensure_future(requests.alter(tp, state(1), NO_EPOCHS)) for tp in (T1, U0)
            ]
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(controller.asked) == 1
            controller.may_answer.set()
            await asyncio.gather(first, *others)
        assert [len(request.topics) for request in controller.asked] == [1, 2]

    asyncio.run(main())
