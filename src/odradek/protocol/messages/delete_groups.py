"""DeleteGroups (key 42): remove empty groups."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["DeletableGroupResult", "DeleteGroupsRequest", "DeleteGroupsResponse"]


class DeleteGroupsRequest(Message, versions="0-2", flexible="2+"):
    """Groups to remove."""

    # 2: flexible.

    groups_names: Sequence[str] = wire(array(STRING))


class DeletableGroupResult(Message):
    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


class DeleteGroupsResponse(Message, versions="0-2", flexible="2+"):
    """The outcome per group."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    results: Sequence[DeletableGroupResult] = wire(array(DeletableGroupResult))
