"""The rights of a request: what the principal of its connection may do, asked of the authorizer.

Handlers ask for each element of a request before they act on any (spec 13, section 10). The hot
handlers ask the authorizer themselves, as `is_allowed` does.
"""

from typing import Final

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
    """Whether the sender of a request may do this to a resource, the cluster if none is named."""
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
    """Asks for one resource, the cluster unless another is named.

    Raises:
        ApiError: It is denied; the code is that of the type of resource.
    """
    if not is_allowed(authorizer, request, operation, resource_type, name):
        kind = resource_type.name.lower().replace("_", " ")
        raise ApiError(_DENIALS[resource_type], f"{operation.name} of {kind} {name} is not allowed")


def security_disabled() -> ApiError:
    """The answer to requests about access rules by a broker that keeps none."""
    return ApiError(
        ErrorCode.SECURITY_DISABLED,
        "no access rules are kept here, every client may do everything (authorizer.class.name)",
    )


def allowed_operations(
    authorizer: Authorizer, request: Request, resource_type: ResourceType, name: str
) -> int:
    """What a client may do with a resource, as answers carry it."""
    return operation_bits(
        operation
        for operation in OPERATIONS[resource_type]
        if is_allowed(authorizer, request, operation, resource_type, name)
    )


def cluster_operations(authorizer: Authorizer, request: Request) -> int:
    """The same for the cluster; a client that may not describe it is told of none."""
    if not is_allowed(authorizer, request, Operation.DESCRIBE):
        return 0
    return allowed_operations(authorizer, request, ResourceType.CLUSTER, CLUSTER_NAME)
