"""AlterConfigs (key 33): replace all dynamic settings of a resource."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterableConfig",
]


class AlterableConfig(Message):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+", is_secret=True)


class AlterConfigsResource(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[AlterableConfig] = wire(array(AlterableConfig))


class AlterConfigsRequest(Message, versions="0-2", flexible="2+"):
    """The settings that remain; a setting that is not named is reset to its default."""

    # 2: flexible.

    resources: Sequence[AlterConfigsResource] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)


class AlterConfigsResourceResponse(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


class AlterConfigsResponse(Message, versions="0-2", flexible="2+"):
    """The outcome per resource."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    responses: Sequence[AlterConfigsResourceResponse] = wire(array(AlterConfigsResourceResponse))
