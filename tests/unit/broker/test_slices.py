"""Work in slices: the same answers, with others in between."""

import asyncio
from collections.abc import Sequence

import pytest

from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, in_slices, reply_in_slices
from odradek.network.request import CloseConnectionResponse, Request, Response, SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.schema import Message
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeConnection


def list_offsets(counts: Sequence[int]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=f"topic-{number}",
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=index, error_code=index % 3, timestamp=index, offset=number
                    )
                    for index in range(count)
                ],
            )
            for number, count in enumerate(counts)
        ]
    )


def groups(counts: Sequence[int]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=number % 2,
                group_id=f"g{number}",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=[
                    DescribedGroupMember(
                        member_id=f"m{index}",
                        client_id="c",
                        client_host="/h",
                        member_metadata=b"x" * index,
                        member_assignment=b"",
                    )
                    for index in range(count)
                ],
            )
            for number, count in enumerate(counts)
        ]
    )


def bytes_of(response: Response) -> bytes:
    assert isinstance(response, SendResponse)
    return b"".join(bytes(chunk) for chunk in response.chunks)  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", [[], [0], [1], [3, 0, 99, 100, 101, 5], [1_000], [1] * 300])
@pytest.mark.parametrize("version", [1, 5, 6, 8])
def test_an_answer_in_slices_is_the_same(counts: list[int], version: int) -> None:
    broker = BrokerFixture()
    answer = list_offsets(counts)

    def request() -> Request:
        return broker.request(ApiKey.LIST_OFFSETS, ListOffsetsRequest(replica_id=-1), version)

    whole, sliced = request(), request()
    expected = reply_throttled(whole, answer, broker.context)
    found = finish(reply_in_slices(sliced, answer, "topics", broker.context, inner="partitions"))
    assert bytes_of(found) == bytes_of(expected)
    assert dict(sliced.errors or {}) == dict(whole.errors or {})


@pytest.mark.parametrize("version", [0, 4, 6])
@pytest.mark.parametrize("inner", ["", "members"])
def test_rows_behind_rows(version: int, inner: str) -> None:
    broker = BrokerFixture()
    answer = groups([0, 250, 3])
    message: Message = DescribeGroupsRequest(groups=["g"])
    request = broker.request(ApiKey.DESCRIBE_GROUPS, message, version)
    expected = reply_throttled(request, answer, broker.context)
    found = finish(reply_in_slices(request, answer, "groups", broker.context, inner=inner))
    assert bytes_of(found) == bytes_of(expected)


def finish(steps: Steps) -> Response:
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        response: Response = stop.value
        return response


class Slow:
    """A handler of ten steps, each of which takes some time."""

    def __init__(self, step_ms: int, broker: BrokerFixture) -> None:
        self.step_ms = step_ms
        self.broker = broker
        self.taken = 0

    def steps(self, request: Request, context: BrokerContext) -> Steps:
        for _ in range(10):
            self.taken += 1
            self.broker.clock.advance(self.step_ms)
            yield
        return reply_throttled(request, ListOffsetsResponse(topics=[]), context)


def make_request(broker: BrokerFixture) -> Request:
    return broker.request(ApiKey.LIST_OFFSETS, ListOffsetsRequest(replica_id=-1), 1)


def test_quick_work_is_answered_at_once() -> None:
    broker = BrokerFixture()
    slow = Slow(0, broker)
    answer = in_slices(slow.steps)(make_request(broker), broker.context)
    assert isinstance(answer, SendResponse)


def test_slow_work_lets_others_run() -> None:
    """02 §12: no handler keeps the loop longer than 1 ms."""
    broker = BrokerFixture()
    slow = Slow(1, broker)
    seen: list[int] = []

    async def bystander() -> None:
        while slow.taken < 10:
            seen.append(slow.taken)
            await asyncio.sleep(0)

    async def main() -> None:
        handling = in_slices(slow.steps)(make_request(broker), broker.context)
        assert not isinstance(handling, Response)
        answer, _ = await asyncio.gather(handling, bystander())
        assert isinstance(answer, SendResponse)

    asyncio.run(main())
    assert seen == list(range(1, 10))


def test_nothing_more_is_done_for_a_client_that_is_gone() -> None:
    broker = BrokerFixture()
    slow = Slow(1, broker)
    request = make_request(broker)
    handling = in_slices(slow.steps)(request, broker.context)
    assert not isinstance(handling, Response)
    assert isinstance(request.connection, FakeConnection)
    request.connection.is_closed = True
    assert isinstance(asyncio.run(handling), CloseConnectionResponse)
    assert slow.taken == 1
