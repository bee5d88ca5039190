"""What the asking principal may do to a topic, a group or the cluster, as brokers tell it."""

from enum import IntEnum
from typing import Final

__all__ = ["AclOperation", "parse_operations"]

# The field of an answer to somebody who did not ask.
_NOT_ASKED: Final = -(1 << 31)


class AclOperation(IntEnum):
    """An operation that needs a right; the number is wire contract."""

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


def parse_operations(bits: int) -> frozenset[AclOperation] | None:
    """A bit for each operation, numbered as they are; None if the broker was not asked.

    Operations of brokers that are newer than this list are left out.
    """
    if bits == _NOT_ASKED:
        return None
    return frozenset(one for one in AclOperation if bits & 1 << one)
