"""InitProducerId: id and epoch of a producer that is idempotent or transactional."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.slices import body_of, start_apart
from odradek.coordinator.transaction.decisions import Answer, ProducerIdentity
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_init_producer_id"]

_FIRST_FENCED_VERSION: Final = 4


def handle_init_producer_id(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response | None] | None:
    """Gives a new id with epoch 0, or what the coordinator of the transactional id decides.

    Both may wait for other brokers: for the controller, that has the ids, and for the replicas of a
    decision.
    """
    message = body_of(InitProducerIdRequest, request)
    denial = _denial(message.transactional_id, request, context)
    if denial is not None:
        return _reply(Answer(denial), request, context)
    if (message.producer_id == -1) != (message.producer_epoch == -1):
        return _reply(Answer(ErrorCode.INVALID_REQUEST), request, context)
    note_local_end(request, context)
    return start_apart(request, _give(message, request, context), context)


async def _give(
    message: InitProducerIdRequest, request: Request, context: BrokerContext
) -> Response | None:
    if message.transactional_id is None:
        return _reply(await _new_id(context), request, context)
    assert context.transactions is not None, "given to every broker that serves requests"
    given = None
    if message.producer_id != -1:
        given = ProducerIdentity(message.producer_id, message.producer_epoch)
    await context.transactions.init_producer_id(
        message.transactional_id,
        message.transaction_timeout_ms,
        given,
        lambda outcome: request.reply(_reply(outcome, request, context)),
    )
    return None


async def _new_id(context: BrokerContext) -> Answer:
    try:
        producer_id = await context.producer_ids.next_id()
    except ApiError as error:
        return Answer(error.code)
    return Answer(ErrorCode.NONE, ProducerIdentity(producer_id, 0))


def _reply(outcome: Answer, request: Request, context: BrokerContext) -> Response:
    error = outcome.error
    if (
        error is ErrorCode.PRODUCER_FENCED
        and request.header.api_version < _FIRST_FENCED_VERSION
    ):  # fmt: skip
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    response = InitProducerIdResponse(
        error_code=error,
        producer_id=outcome.identity.producer_id,
        producer_epoch=outcome.identity.producer_epoch,
    )
    return reply_throttled(request, response, context)


def _denial(
    transactional_id: str | None, request: Request, context: BrokerContext
) -> ErrorCode | None:
    """The error if no id may be given. A client that may write to any topic may get one."""
    may = partial(is_allowed, context.authorizer, request)
    if transactional_id is not None:
        if may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if may(Operation.IDEMPOTENT_WRITE) or any(
        may(Operation.WRITE, ResourceType.TOPIC, name) for name in context.cache.image.topics
    ):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
