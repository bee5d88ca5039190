"""FindCoordinator: the leader of the partition that stores a group or a transactional id."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.coordinator.group.coordinator import OFFSETS_TOPIC
from odradek.coordinator.transaction.coordinator import TRANSACTIONS_TOPIC
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_NODE, Node
from odradek.network.request import Request
from odradek.protocol.enums import CoordinatorType
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_find_coordinator"]

_FIRST_BATCH_VERSION: Final = 4


class _Found(NamedTuple):
    """The coordinator of a key."""

    node: Node
    error: ErrorCode
    message: str | None = None


@in_slices
def handle_find_coordinator(request: Request, context: BrokerContext) -> Steps:
    """Answers coordinators with their addresses on the listener of the request."""
    version = request.header.api_version
    message = body_of(FindCoordinatorRequest, request)
    if version < _FIRST_BATCH_VERSION:
        node, error, why = _find(request, message.key_type, message.key, context)
        response = FindCoordinatorResponse(
            error_code=error,
            error_message=why,
            node_id=node.id,
            host=node.host,
            port=node.port,
        )
        return reply_throttled(request, response, context)
    rows = []
    for key in dict.fromkeys(message.coordinator_keys):
        node, error, why = _find(request, message.key_type, key, context)
        rows.append(
            Coordinator(
                key=key,
                node_id=node.id,
                host=node.host,
                port=node.port,
                error_code=error,
                error_message=why,
            )
        )
        yield
    response = FindCoordinatorResponse(coordinators=rows)
    return (yield from reply_in_slices(request, response, context))


def _find(request: Request, key_type: int, key: str, context: BrokerContext) -> _Found:
    partition_of: Callable[[str], int]
    may_describe = partial(is_allowed, context.authorizer, request, Operation.DESCRIBE)
    if key_type == CoordinatorType.TRANSACTION:
        if not may_describe(ResourceType.TRANSACTIONAL_ID, key):
            return _Found(NO_NODE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        assert context.transactions is not None, "given to every broker that serves requests"
        partition_of, topic = context.transactions.partition_of, TRANSACTIONS_TOPIC
    elif key_type == CoordinatorType.GROUP:
        if not may_describe(ResourceType.GROUP, key):
            return _Found(NO_NODE, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        partition_of, topic = context.groups.partition_of, OFFSETS_TOPIC
    else:
        return _Found(
            NO_NODE,
            ErrorCode.INVALID_REQUEST,
            f"expected key type 0 (group) or 1 (transaction), found {key_type}",
        )
    cache = context.cache
    if not cache.contains_topic(topic):
        context.topic_creator.start_creation(topic)
        return _Found(NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = partition_of(key)
    node = cache.get_partition_leader_endpoint(topic, partition, request.context.listener)
    if node is None or node.id == NO_NODE.id:
        return _Found(NO_NODE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(node, ErrorCode.NONE)
