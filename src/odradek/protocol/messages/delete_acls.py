"""DeleteAcls (key 31): remove the access rules that match filters."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
]


class DeleteAclsFilter(Message):
    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, default=3)
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


class DeleteAclsRequest(Message, versions="1-3", flexible="2+"):
    """Filters; null matches anything."""

    # 1: pattern types (KIP-290).
    # 2: flexible.
    # 3: users as resources (KIP-373).

    filters: Sequence[DeleteAclsFilter] = wire(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


class DeleteAclsFilterResult(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    matching_acls: Sequence[DeleteAclsMatchingAcl] = wire(array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Message, versions="1-3", flexible="2+"):
    """The rules that each filter matched, in order."""

    # 1: pattern types.
    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    filter_results: Sequence[DeleteAclsFilterResult] = wire(array(DeleteAclsFilterResult))
