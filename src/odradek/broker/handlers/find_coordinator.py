"""FindCoordinator: this broker, for groups; nobody yet, for transactions."""

from typing import Final, NamedTuple

from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_NODE, Node
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["handle_find_coordinator"]

_GROUP: Final = 0
_TRANSACTION: Final = 1
_FIRST_BATCH_VERSION: Final = 4


class _Found(NamedTuple):
    """The coordinator of every key of a type."""

    node: Node
    error: ErrorCode
    message: str | None = None


def handle_find_coordinator(request: Request, context: BrokerContext) -> Response:
    """Names the coordinator as it can be reached on the listener that was asked."""
    version = request.header.api_version
    message, _ = parse_message(
        FindCoordinatorRequest, request.payload, version, request.body_offset
    )
    found = _find(message.key_type, request.context.listener, context)
    node = found.node
    if version < _FIRST_BATCH_VERSION:
        response = FindCoordinatorResponse(
            error_code=found.error,
            error_message=found.message,
            node_id=node.id,
            host=node.host,
            port=node.port,
        )
        return reply_throttled(request, response, context)
    rows = [
        Coordinator(
            key=key,
            node_id=node.id,
            host=node.host,
            port=node.port,
            error_code=found.error,
            error_message=found.message,
        )
        for key in message.coordinator_keys
    ]
    return reply_throttled(request, FindCoordinatorResponse(coordinators=rows), context)


def _find(key_type: int, listener: str, context: BrokerContext) -> _Found:
    if key_type == _TRANSACTION:
        return _Found(
            NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served here"
        )
    if key_type != _GROUP:
        return _Found(
            NO_NODE,
            ErrorCode.INVALID_REQUEST,
            f"expected key type 0 (group) or 1 (transaction), found {key_type}",
        )
    own = context.cache.get_alive_broker(context.broker_id)
    node = None if own is None else own.nodes.get(listener)
    if node is None:
        return _Found(NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(node, ErrorCode.NONE)
