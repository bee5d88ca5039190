"""CreateAcls (key 30): add access rules."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["AclCreation", "AclCreationResult", "CreateAclsRequest", "CreateAclsResponse"]


class AclCreation(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


class CreateAclsRequest(Message, versions="1-3", flexible="2+"):
    """Rules to add."""

    # 1: pattern types (KIP-290).
    # 2: flexible.
    # 3: users as resources (KIP-373).

    creations: Sequence[AclCreation] = wire(array(AclCreation))


class AclCreationResult(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


class CreateAclsResponse(Message, versions="1-3", flexible="2+"):
    """The outcome per rule, in order."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    results: Sequence[AclCreationResult] = wire(array(AclCreationResult))
