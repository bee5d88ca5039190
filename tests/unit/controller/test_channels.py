"""Senders: order, retries, bad answers, one broker never delaying another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from odradek.controller.channels import (
    ControlChannel,
    ControllerChannels,
)
from odradek.errors import (
    ApiError,
    ConfigError,
    DisconnectedError,
    ErrorCode,
    InvariantViolation,
    RequestTimedOutError,
    SessionExpired,
    UnsupportedVersionError,
)
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.image import LiveBroker
from odradek.metrics import MetricName, MetricRegistry
from odradek.model import Endpoint
from odradek.protocol.messages.stop_replica import StopReplicaResponse
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.testing import ManualClock
from tests.support.controllers import broker


class Peer:
    """A broker behind a channel, up or down."""

    def __init__(self) -> None:
        self.is_up = True
        self.attempts = 0
        self.closes = 0
        self.received: list[ControlRequest] = []
        self.answer: ControlResponse = UpdateMetadataResponse()
        self.hangs = False
        self.refusal: Exception | None = None

    async def send(self, request: ControlRequest) -> ControlResponse:
        self.attempts += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        if not self.is_up:
            raise ConnectionRefusedError("down")
        self.received.append(request)
        return self.answer

    async def close(self) -> None:
        self.closes += 1


class Setup:
    def __init__(self, tasks: asyncio.TaskGroup, prefix: str | None = None) -> None:
        self.peers = {1: Peer(), 2: Peer()}
        self.opened: list[int] = []
        self.pauses = 0
        clock = ManualClock()
        self.metrics = MetricRegistry(clock, Random(1))
        self.channels = ControllerChannels(
            0,
            self._open,
            listener="CONTROL",
            tasks=tasks,
            clock=clock,
            metrics=self.metrics,
            sleep=self._sleep,
            name_prefix=prefix,
        )

    def _open(self, target: LiveBroker, _endpoint: Endpoint | None) -> ControlChannel:
        self.opened.append(target.id)
        return self.peers[target.id]

    async def _sleep(self, seconds: float) -> None:
        assert seconds == 0.1
        self.pauses += 1
        await asyncio.sleep(0)

    def queue_size(self) -> float:
        gauge = self.metrics.get(
            MetricName(
                "kafka.controller",
                "ControllerChannelManager",
                "QueueSize",
                (("broker-id", "1"),),
            )
        )
        assert gauge is not None
        return gauge.read()  # type: ignore[union-attr]  # it is a gauge


@asynccontextmanager
async def started(prefix: str | None = None) -> AsyncIterator[Setup]:
    async with asyncio.TaskGroup() as tasks:
        setup = Setup(tasks, prefix)
        setup.channels.add_broker(broker(1))
        setup.channels.add_broker(broker(2))
        yield setup
        await setup.channels.shutdown()


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def request(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_epoch=number)


def test_a_broker_is_added_once() -> None:
    """03a:C-12"""

    async def main() -> None:
        async with started() as setup:
            setup.channels.add_broker(broker(1))
            assert setup.opened == [1, 2]
            names = [task.get_name() for task in asyncio.all_tasks()]
            assert names.count("Controller-0-to-broker-1-send-thread") == 1

    asyncio.run(main())


def test_requests_wait_for_a_broker_that_is_down() -> None:
    """03a:C-13: the first one is held by the sender, the others wait; all arrive once, in order."""

    async def main() -> None:
        async with started() as setup:
            peer = setup.peers[1]
            peer.is_up = False
            for number in (1, 2, 3):
                setup.channels.send(1, request(number))
            await turns()
            assert setup.queue_size() == setup.channels.queue_size(1) == 2
            assert setup.channels.total_queue_size == 2
            assert setup.pauses == peer.closes > 1
            peer.is_up = True
            await turns()
            assert [r.controller_epoch for r in peer.received] == [1, 2, 3]
            assert setup.queue_size() == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedVersionError("broker 1 serves UPDATE_METADATA none"),
        ApiError(ErrorCode.UNSUPPORTED_VERSION, "a field that the version lacks"),
        ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not a broker"),
        TypeError("a field of another type"),
        InvariantViolation("planted"),
    ],
    ids=repr,
)
def test_a_request_that_cannot_arrive_does_not_hold_up_the_next(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """03b section 2.1: retried for ever, unless no attempt can succeed; then said once."""

    async def main() -> None:
        async with started() as setup:
            peer = setup.peers[1]
            peer.refusal = error
            answers: list[ControlResponse] = []
            setup.channels.send(1, request(1), answers.append)
            await turns()
            assert (peer.attempts, setup.pauses, answers) == (1, 0, [])
            peer.refusal = None
            setup.channels.send(1, request(2), answers.append)
            await turns()
            assert [r.controller_epoch for r in peer.received] == [2]
            assert answers == [peer.answer]

    asyncio.run(main())
    assert caplog.text.count("can never be delivered") == 1


@pytest.mark.parametrize(
    "error",
    [
        DisconnectedError("hung up"),
        RequestTimedOutError("late"),
        SessionExpired("no store"),
        ConfigError("ssl.keystore.location", "a.pem", "cannot be used"),
    ],
    ids=repr,
)
def test_a_request_that_may_arrive_later_is_sent_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with started() as setup:
            peer = setup.peers[1]
            peer.refusal = error
            setup.channels.send(1, request(1))
            await turns()
            assert setup.pauses > 1
            peer.refusal = None
            await turns()
            assert len(peer.received) == 1

    asyncio.run(main())
    assert caplog.text.count("will retry") == 1  # Not a line for each attempt.


def test_an_answer_of_another_kind_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """03a:C-14"""

    async def main() -> None:
        async with started() as setup:
            peer = setup.peers[1]
            peer.answer = StopReplicaResponse()
            answers: list[ControlResponse] = []
            setup.channels.send(1, request(1), answers.append)
            await turns()
            assert (answers, peer.closes) == ([], 1)
            peer.answer = UpdateMetadataResponse()
            setup.channels.send(1, request(2), answers.append)
            await turns()
            assert answers == [peer.answer]

    asyncio.run(main())
    assert "expected UpdateMetadataResponse, found StopReplicaResponse" in caplog.text


def test_a_callback_that_fails_does_not_end_the_sender(caplog: pytest.LogCaptureFixture) -> None:
    """03a:C-15: and the request is not sent again."""

    async def main() -> None:
        async with started() as setup:
            peer = setup.peers[1]

            def fail(_response: ControlResponse) -> None:
                raise RuntimeError("planted")

            setup.channels.send(1, request(1), fail)
            setup.channels.send(1, request(2))
            await turns()
            assert [r.controller_epoch for r in peer.received] == [1, 2]
            assert peer.closes == 1

    asyncio.run(main())
    assert "could not be used" in caplog.text


def test_a_hung_broker_delays_nobody_else() -> None:
    """03a:C-16"""

    async def main() -> None:
        async with started() as setup:
            setup.peers[1].hangs = True
            setup.channels.send(1, request(1))
            setup.channels.send(2, request(1))
            await turns()
            assert len(setup.peers[2].received) == 1
            await setup.channels.remove_broker(1)  # Ends the wait for the answer, too.
            assert setup.channels.broker_ids == [2]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        pytest.param(None, "Controller-0-to-broker-2-send-thread", id="03a:C-18"),
        pytest.param("p", "p:Controller-0-to-broker-2-send-thread", id="03a:C-18-prefix"),
    ],
)
def test_names_of_senders(prefix: str | None, name: str) -> None:
    async def main() -> None:
        async with started(prefix) as setup:
            assert setup.channels.task_name(2) == name
            assert name in [task.get_name() for task in asyncio.all_tasks()]

    asyncio.run(main())


def test_a_request_for_nobody_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with started() as setup:
            setup.channels.send(9, request(1))

    asyncio.run(main())
    assert "no such broker" in caplog.text
