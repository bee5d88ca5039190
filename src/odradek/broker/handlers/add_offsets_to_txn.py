"""AddOffsetsToTxn: the offsets partition of a group joins a transaction."""

from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.slices import body_of
from odradek.coordinator.group.coordinator import OFFSETS_TOPIC
from odradek.coordinator.transaction.decisions import ProducerIdentity
from odradek.errors import ErrorCode
from odradek.network.request import Request, SendResponse
from odradek.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_add_offsets_to_txn"]

_FIRST_FENCED_VERSION: Final = 2


def handle_add_offsets_to_txn(request: Request, context: BrokerContext) -> SendResponse | None:
    """Answers when the transaction durably includes the partition."""
    message = body_of(AddOffsetsToTxnRequest, request)

    def reply(error: ErrorCode) -> SendResponse:
        if (
            error is ErrorCode.PRODUCER_FENCED
            and request.header.api_version < _FIRST_FENCED_VERSION
        ):  # fmt: skip
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return reply_throttled(request, AddOffsetsToTxnResponse(error_code=error), context)

    def may(operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return is_allowed(context.authorizer, request, operation, resource_type, name)

    if not may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id):
        return reply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(Operation.READ, ResourceType.GROUP, message.group_id):
        return reply(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    partition = context.groups.partition_of(message.group_id)
    note_local_end(request, context)
    assert context.transactions is not None, "given to every broker that serves requests"
    context.transactions.begin_adding(
        message.transactional_id,
        ProducerIdentity(message.producer_id, message.producer_epoch),
        {OFFSETS_TOPIC: frozenset({partition})},
        lambda error: request.reply(reply(error)),
    )
    return None
