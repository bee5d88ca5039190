"""DescribeCluster (key 60): cluster id, controller, brokers. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["DescribeClusterBroker", "DescribeClusterRequest", "DescribeClusterResponse"]


class DescribeClusterRequest(Message, versions="0-2", flexible="0+"):
    """Whether authorised operations are wanted."""

    # 1: endpoint type, 1 brokers and 2 controllers (KIP-919). 2: fenced brokers (KIP-1073).

    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, "1+", default=1)
    include_fenced_brokers: bool = wire(BOOL, "2+")


class DescribeClusterBroker(Message):
    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable="0+", default=None)
    is_fenced: bool = wire(BOOL, "2+")


class DescribeClusterResponse(Message, versions="0-2", flexible="0+"):
    """The cluster as seen through the listener that was asked."""

    # 1: endpoint type. 2: whether a broker is fenced.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    endpoint_type: int = wire(INT8, "1+", default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: Sequence[DescribeClusterBroker] = wire(array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(INT32, default=-2147483648)
