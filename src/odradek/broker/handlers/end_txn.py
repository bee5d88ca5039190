"""EndTxn: commits or aborts a transaction."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.slices import body_of, start_apart
from odradek.coordinator.transaction.decisions import Answer, ProducerIdentity
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response, SendResponse
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_end_txn"]

_FIRST_FENCED_VERSION: Final = 2
_FIRST_EPOCH_VERSION: Final = 5


def handle_end_txn(
    request: Request, context: BrokerContext
) -> SendResponse | Coroutine[Any, Any, Response | None] | None:
    """Answers when the end is durable; the markers follow."""
    message = body_of(EndTxnRequest, request)
    if not is_allowed(
        context.authorizer,
        request,
        Operation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        message.transactional_id,
    ):
        denied = Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _reply(denied, request, context)
    note_local_end(request, context)
    assert context.transactions is not None, "given to every broker that serves requests"
    is_served = context.transactions.begin_ending(
        message.transactional_id,
        ProducerIdentity(message.producer_id, message.producer_epoch),
        is_commit=message.committed,
        gets_epoch=request.header.api_version >= _FIRST_EPOCH_VERSION,
        answer=_replies(request, context),
    )
    if is_served:
        return None
    return start_apart(request, _end_with_new_id(message, request, context), context)


async def _end_with_new_id(
    message: EndTxnRequest, request: Request, context: BrokerContext
) -> Response | None:
    """The epochs of the producer id are used up: the client gets another id for what follows."""
    assert context.transactions is not None, "checked before"
    await context.transactions.end(
        message.transactional_id,
        ProducerIdentity(message.producer_id, message.producer_epoch),
        is_commit=message.committed,
        gets_epoch=True,
        answer=_replies(request, context),
    )
    return None


def _replies(request: Request, context: BrokerContext) -> Callable[[Answer], None]:
    return lambda outcome: request.reply(_reply(outcome, request, context))


def _reply(outcome: Answer, request: Request, context: BrokerContext) -> SendResponse:
    error, version = outcome.error, request.header.api_version
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    response = EndTxnResponse(
        error_code=error,
        producer_id=outcome.identity.producer_id,
        producer_epoch=outcome.identity.producer_epoch,
    )
    return reply_throttled(request, response, context)
