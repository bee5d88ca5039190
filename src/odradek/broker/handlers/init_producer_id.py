"""InitProducerId: an id for an idempotent producer."""

from functools import partial

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.slices import body_of
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_init_producer_id"]


async def handle_init_producer_id(request: Request, context: BrokerContext) -> Response:
    """Gives a new id with epoch 0; transactional producers need a coordinator."""
    message = body_of(InitProducerIdRequest, request)
    denial = _denial(message.transactional_id, request, context)
    if denial is not None:
        return _refuse(denial, request, context)
    if message.transactional_id is not None:
        code = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if message.transactional_id
            else ErrorCode.INVALID_REQUEST
        )
        return _refuse(code, request, context)
    if (message.producer_id == -1) != (message.producer_epoch == -1):
        return _refuse(ErrorCode.INVALID_REQUEST, request, context)
    note_local_end(request, context)
    try:
        producer_id = await context.producer_ids.next_id()
    except ApiError as error:
        return _refuse(error.code, request, context)
    response = InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
    return reply_throttled(request, response, context)


def _refuse(error: ErrorCode, request: Request, context: BrokerContext) -> Response:
    response = InitProducerIdResponse(error_code=error, producer_epoch=-1)
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
