"""Who may do what: the question handlers ask, whoever answers it.

The numbers are those of the wire and of stored access rules.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Protocol

from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request

__all__ = [
    "CLUSTER_NAME",
    "CLUSTER_OPERATIONS",
    "NOT_ASKED",
    "TOPIC_OPERATIONS",
    "AllowEverything",
    "Authorizer",
    "Operation",
    "ResourceType",
    "check_allowed",
    "cluster_operations",
    "operation_bits",
    "security_disabled",
    "topic_operations",
]

CLUSTER_NAME: Final = "kafka-cluster"  # The name of the only resource of type CLUSTER.
NOT_ASKED: Final = -(1 << 31)  # Authorised operations nobody asked for.


class ResourceType(IntEnum):
    """What access rules are about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """What can be allowed or denied."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


class Authorizer(Protocol):
    """Decides."""

    def is_allowed(
        self, request: Request, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Whether who sent the request may do this to the resource of that very name."""
        ...


class AllowEverything:
    """The authorizer of a cluster without access rules."""

    __slots__ = ()

    def is_allowed(
        self,
        request: Request,  # noqa: ARG002 - nobody is asked who they are
        operation: Operation,  # noqa: ARG002
        resource: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        return True


_DENIALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def check_allowed(
    authorizer: Authorizer,
    request: Request,
    operation: Operation,
    resource: ResourceType = ResourceType.CLUSTER,
    name: str = CLUSTER_NAME,
) -> None:
    """Asks for one resource, the cluster unless another is named.

    Raises:
        ApiError: It is denied; the code is that of the type of resource.
    """
    if not authorizer.is_allowed(request, operation, resource, name):
        raise ApiError(
            _DENIALS[resource],
            f"{operation.name} of {resource.name.lower().replace('_', ' ')} {name} is not allowed",
        )


def security_disabled() -> ApiError:
    """What requests about access rules are told by a broker that keeps none."""
    return ApiError(
        ErrorCode.SECURITY_DISABLED,
        "no access rules are kept here, every client may do everything (authorizer.class.name)",
    )


def topic_operations(authorizer: Authorizer, request: Request, topic: str) -> int:
    """What a client may do with a topic, as answers carry it."""
    return operation_bits(
        operation
        for operation in TOPIC_OPERATIONS
        if authorizer.is_allowed(request, operation, ResourceType.TOPIC, topic)
    )


def cluster_operations(authorizer: Authorizer, request: Request) -> int:
    """The same for the cluster; none are told to a client that may not describe it."""

    def may(operation: Operation) -> bool:
        return authorizer.is_allowed(request, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    return operation_bits(filter(may, CLUSTER_OPERATIONS)) if may(Operation.DESCRIBE) else 0


def operation_bits(operations: Iterable[Operation]) -> int:
    """A set of operations as answers carry it: the bit of each one's number."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits
