"""ListConfigResources (key 74): the resources that have settings. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["ConfigResource", "ListConfigResourcesRequest", "ListConfigResourcesResponse"]


class ListConfigResourcesRequest(Message, versions="0-1", flexible="0+"):
    """Resource types, none for all."""

    # 0: client metrics only. 1: any type (KIP-1142).

    resource_types: Sequence[int] = wire(array(INT8), "1+")


class ConfigResource(Message):
    resource_name: str = wire(STRING)
    resource_type: int = wire(INT8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, versions="0-1", flexible="0+"):
    """Names and, from 1 on, types."""

    # 1: the type.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    config_resources: Sequence[ConfigResource] = wire(array(ConfigResource))
