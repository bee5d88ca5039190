"""DescribeCluster: cluster id, controller and brokers, with the addresses of the listener used."""

from typing import Final

from odradek.broker.authorization import cluster_operations
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import body_of
from odradek.errors import ErrorCode
from odradek.model import NO_CONTROLLER
from odradek.network.request import Request, Response
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.security.operations import NOT_ASKED

__all__ = ["handle_describe_cluster"]

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle_describe_cluster(request: Request, context: BrokerContext) -> Response:
    """Answers from the image that is published now."""
    message = body_of(DescribeClusterRequest, request)
    if message.endpoint_type != _BROKERS:
        return reply_throttled(request, _refusal(message.endpoint_type), context)
    operations = NOT_ASKED
    if message.include_cluster_authorized_operations:
        operations = cluster_operations(context.authorizer, request)
    controller_id = context.cache.get_controller_id()
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=context.cluster_id,
        controller_id=NO_CONTROLLER if controller_id is None else controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in context.cache.get_alive_nodes(request.context.listener)
        ],
        cluster_authorized_operations=operations,
    )
    return reply_throttled(request, response, context)


def _refusal(endpoint_type: int) -> DescribeClusterResponse:
    code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
    return DescribeClusterResponse(
        error_code=code,
        error_message=f"expected endpoint type {_BROKERS}, for this is a broker's listener; "
        f"found {endpoint_type}",
    )
