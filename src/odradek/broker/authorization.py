"""The rights of a request: the operations that the authorizer permits its principal.

Handlers check each element of a request before they act on any (spec 13, section 10). The hot
handlers call the authorizer themselves, as `is_allowed` does.
"""

from typing import Final

from odradek.broker.context import BrokerContext, is_from_peer_listener
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request
from odradek.security.authorizer import Authorizer
from odradek.security.operations import (
    CLUSTER_NAME,
    OPERATIONS,
    Operation,
    ResourceType,
    operation_bits,
)

__all__ = [
    "allowed_operations",
    "check_allowed",
    "check_is_peer",
    "cluster_operations",
    "is_allowed",
    "security_disabled",
]

_DENIALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def is_allowed(
    authorizer: Authorizer,
    request: Request,
    operation: Operation,
    resource_type: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> bool:
    """Whether the sender of a request may do an operation on a resource, by default the cluster."""
    sender = request.context
    return authorizer.is_allowed(
        sender.principal, sender.client_address, operation, resource_type, name
    )


def check_allowed(
    authorizer: Authorizer,
    request: Request,
    operation: Operation,
    resource_type: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> None:
    """Checks the right to one resource, by default the cluster.

    Raises:
        ApiError: It is denied; the code is that of the type of resource.
    """
    if not is_allowed(authorizer, request, operation, resource_type, name):
        kind = resource_type.name.lower().replace("_", " ")
        raise ApiError(_DENIALS[resource_type], f"{operation.name} of {kind} {name} is not allowed")


def check_is_peer(request: Request, context: BrokerContext) -> None:
    """Checks that a request between brokers came by a listener of brokers, and is permitted.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not is_from_peer_listener(request, context):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.header.api_key.name} is served on {sorted(context.peer_listeners)} only, and"
            f" came by listener {request.context.listener}",
        )
    check_allowed(context.authorizer, request, Operation.CLUSTER_ACTION)


def security_disabled() -> ApiError:
    """The answer to requests about access rules from a broker without an authorizer."""
    return ApiError(
        ErrorCode.SECURITY_DISABLED,
        "no access rules are kept here, every client may do everything (authorizer.class.name)",
    )


def allowed_operations(
    authorizer: Authorizer, request: Request, resource_type: ResourceType, name: str
) -> int:
    """The operations that a client may do on a resource, as bits of an answer."""
    return operation_bits(
        operation
        for operation in OPERATIONS[resource_type]
        if is_allowed(authorizer, request, operation, resource_type, name)
    )


def cluster_operations(authorizer: Authorizer, request: Request) -> int:
    """As `allowed_operations` for the cluster; none if the client may not describe it."""
    if not is_allowed(authorizer, request, Operation.DESCRIBE):
        return 0
    return allowed_operations(authorizer, request, ResourceType.CLUSTER, CLUSTER_NAME)
