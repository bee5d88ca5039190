"""Work in slices: the same answers, with others in between."""

import asyncio
import dataclasses
import itertools
from collections.abc import Sequence

import pytest

from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, body_of, in_slices, parse_in_slices, reply_in_slices
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
from odradek.protocol.primitives import MAX_ELEMENTS
from odradek.protocol.schema import Message
from odradek.testing import ManualClock
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
    found = finish(reply_in_slices(sliced, answer, broker.context))
    assert bytes_of(found) == bytes_of(expected)
    assert dict(sliced.errors or {}) == dict(whole.errors or {})


@pytest.mark.parametrize("version", [0, 4, 6])
def test_rows_in_rows(version: int) -> None:
    broker = BrokerFixture()
    answer = groups([0, 250, 3])
    message: Message = DescribeGroupsRequest(groups=["g"])
    request = broker.request(ApiKey.DESCRIBE_GROUPS, message, version)
    expected = reply_throttled(request, answer, broker.context)
    found = finish(reply_in_slices(request, answer, broker.context))
    assert bytes_of(found) == bytes_of(expected)


def finish(steps: Steps) -> Response:
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        response: Response = stop.value
        return response


class TickingClock(ManualClock):
    """Each reading takes a millisecond: a slice is one step."""

    def monotonic_ns(self) -> int:
        self.advance(1)
        return super().monotonic_ns()


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
        assert in_slices(slow.steps)(make_request(broker), broker.context) is None
        await asyncio.gather(broker.tasks.run_all(), bystander())
        broker.last_sent(ListOffsetsResponse)

    asyncio.run(main())
    assert sorted(set(seen)) == list(range(1, 10))


def test_nothing_more_is_done_for_a_client_that_is_gone() -> None:
    broker = BrokerFixture()
    slow = Slow(1, broker)
    request = make_request(broker)
    assert in_slices(slow.steps)(request, broker.context) is None
    assert isinstance(request.connection, FakeConnection)
    request.connection.is_closed = True
    asyncio.run(broker.tasks.run_all())
    assert isinstance(broker.sent[-1], CloseConnectionResponse)
    assert slow.taken == 1


def test_one_slice_is_done_in_a_turn_of_the_loop_however_many_requests_there_are() -> None:
    """02 section 12: many requests that are served in slices keep the loop no longer than one."""
    broker = BrokerFixture()
    works = [Slow(1, broker) for _ in range(20)]
    taken: list[int] = []

    async def bystander() -> None:
        while sum(work.taken for work in works) < 200:
            taken.append(sum(work.taken for work in works))
            await asyncio.sleep(0)

    async def main() -> None:
        for work in works:
            assert in_slices(work.steps)(make_request(broker), broker.context) is None
        await asyncio.gather(broker.tasks.run_all(), bystander())

    asyncio.run(main())
    assert max(after - before for before, after in itertools.pairwise(taken)) == 1


def test_a_long_request_is_parsed_in_slices_and_handed_to_its_handler_again() -> None:
    broker = BrokerFixture()
    clock = TickingClock()
    context = dataclasses.replace(broker.context, clock=clock)
    message = DescribeGroupsRequest(groups=[f"g{number}" for number in range(100)])
    request = broker.request(ApiKey.DESCRIBE_GROUPS, message, 4)
    assert not parse_in_slices(request, context, MAX_ELEMENTS)
    assert request.parsed is None
    submitted: list[Request] = []
    broker.channel.submit_again = submitted.append  # type: ignore[method-assign,assignment]
    asyncio.run(broker.tasks.run_all())
    assert submitted == [request]
    assert body_of(DescribeGroupsRequest, request).groups == tuple(message.groups)


def test_a_malformed_long_request_closes_its_connection() -> None:
    broker = BrokerFixture()
    context = dataclasses.replace(broker.context, clock=TickingClock())
    message = DescribeGroupsRequest(groups=[f"g{number}" for number in range(100)])
    request = broker.request(ApiKey.DESCRIBE_GROUPS, message, 4)
    request.payload = request.payload[:-10]
    assert not parse_in_slices(request, context, MAX_ELEMENTS)
    asyncio.run(broker.tasks.run_all())
    [closed] = broker.sent
    assert isinstance(closed, CloseConnectionResponse)
    assert "DescribeGroupsRequest v4 ends" in closed.reason
