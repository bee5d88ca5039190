"""Operations, the resources they are about, and the numbers both have on the wire.

Every number is a contract of the wire and of stored access rules. ANY and MATCH occur in filters
only; UNKNOWN replaces a number that is not listed here.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

__all__ = [
    "CLUSTER_NAME",
    "NOT_ASKED",
    "OPERATIONS",
    "Operation",
    "PatternType",
    "Permission",
    "ResourceType",
    "operation_bits",
    "parse_operation_bits",
]

CLUSTER_NAME: Final = "kafka-cluster"  # The name of the only resource of type CLUSTER.
NOT_ASKED: Final = -(1 << 31)  # The bits of an answer whose request did not ask for them.


class ResourceType(IntEnum):
    """The resources that access rules are about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an access rule covers names of resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3  # The same name; the name `*` covers all.
    PREFIXED = 4  # Every name that begins with it.


class Operation(IntEnum):
    """The operations that a rule can allow or deny."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule denies or allows an operation."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# The operations that exist for a type of resource: those that an answer with authorized operations
# can contain.
OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
        ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
        ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
        ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    }
)


def operation_bits(operations: Iterable[Operation]) -> int:
    """A set of operations in the form of the wire: operation number n sets bit n."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


def parse_operation_bits(bits: int) -> frozenset[Operation] | None:
    """The operations in an answer; None if its request did not ask for them.

    Operations of brokers that are newer than this list are left out.
    """
    if bits == NOT_ASKED:
        return None
    return frozenset(one for one in Operation if one > Operation.ALL and bits & 1 << one)
