"""InitProducerId waits for other brokers, and keeps nobody else waiting."""

import asyncio
from dataclasses import replace

from odradek.broker.handlers.init_producer_id import handle_init_producer_id
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture


class SilentController:
    """Has no id for anybody until it speaks."""

    def __init__(self) -> None:
        self.speaks = asyncio.Event()
        self.error: Exception | None = None

    async def next_id(self) -> int:
        await self.speaks.wait()
        if self.error is not None:
            raise self.error
        return 4000


def ask(error: Exception | None = None) -> InitProducerIdResponse:
    async def scenario() -> InitProducerIdResponse:
        broker, controller = BrokerFixture(), SilentController()
        controller.error = error
        broker.context = replace(broker.context, producer_ids=controller)
        message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        request = broker.request(ApiKey.INIT_PRODUCER_ID, message, 5)
        # A coroutine would take one of the slots that requests of the next controller need.
        assert handle_init_producer_id(request, broker.context) is None
        waiting = asyncio.ensure_future(broker.tasks.run_all())
        await asyncio.sleep(0)
        assert broker.sent == []
        controller.speaks.set()
        await waiting
        return broker.last_sent(InitProducerIdResponse)

    return asyncio.run(scenario())


def test_the_wait_for_the_controller_takes_no_slot() -> None:
    """02 section 12: nobody who waits keeps others from being served."""
    answer = ask()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 4000, 0)


def test_why_there_is_no_id_is_told() -> None:
    refused = ask(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids"))
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_bug_behind_the_wait_is_answered() -> None:
    assert ask(ZeroDivisionError()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
