"""IncrementalAlterConfigs (key 44): change single dynamic settings."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterableConfig",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
]


class AlterableConfig(Message):
    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable="0+", is_secret=True)


class AlterConfigsResource(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[AlterableConfig] = wire(array(AlterableConfig))


class IncrementalAlterConfigsRequest(Message, versions="0-1", flexible="1+"):
    """Operations per key: 0 set, 1 delete, 2 append, 3 subtract."""

    # 1: flexible.

    resources: Sequence[AlterConfigsResource] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)


class AlterConfigsResourceResponse(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


class IncrementalAlterConfigsResponse(Message, versions="0-1", flexible="1+"):
    """The outcome per resource."""

    # 1: flexible.

    throttle_time_ms: int = wire(INT32)
    responses: Sequence[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse))
