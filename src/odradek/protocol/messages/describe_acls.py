"""DescribeAcls (key 29): the access rules that match a filter."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["AclDescription", "DescribeAclsRequest", "DescribeAclsResource", "DescribeAclsResponse"]


class DescribeAclsRequest(Message, versions="1-3", flexible="2+"):
    """A filter; null matches anything."""

    # 1: pattern types (KIP-290).
    # 2: flexible.
    # 3: users as resources (KIP-373).

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, default=3)
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


class AclDescription(Message):
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


class DescribeAclsResource(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, default=3)
    acls: Sequence[AclDescription] = wire(array(AclDescription))


class DescribeAclsResponse(Message, versions="1-3", flexible="2+"):
    """Rules by resource."""

    # 1: pattern types.
    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resources: Sequence[DescribeAclsResource] = wire(array(DescribeAclsResource))
