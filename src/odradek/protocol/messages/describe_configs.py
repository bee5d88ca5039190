"""DescribeConfigs (key 32): settings of topics, brokers and loggers, and where they come from."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
]


class DescribeConfigsResource(Message):
    # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: Sequence[str] | None = wire(array(STRING), nullable="0+")


class DescribeConfigsRequest(Message, versions="1-4", flexible="4+"):
    """Resources, and keys of each; null is all keys."""

    # 1: synonyms on request (KIP-226). 3: documentation on request (KIP-569).
    # 4: flexible.

    resources: Sequence[DescribeConfigsResource] = wire(array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL)
    include_documentation: bool = wire(BOOL, "3+")


class DescribeConfigsSynonym(Message):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    source: int = wire(INT8)


class DescribeConfigsResourceResult(Message):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    read_only: bool = wire(BOOL)
    # 1 topic, 2 broker, 3 dynamic default, 4 file, 5 default, 6 logger.
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: Sequence[DescribeConfigsSynonym] = wire(array(DescribeConfigsSynonym))
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(STRING, "3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: Sequence[DescribeConfigsResourceResult] = wire(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Message, versions="1-4", flexible="4+"):
    """Settings with source and synonyms."""

    # 1: source and synonyms. 3: type and documentation.
    # 4: flexible.

    throttle_time_ms: int = wire(INT32)
    results: Sequence[DescribeConfigsResult] = wire(array(DescribeConfigsResult))
