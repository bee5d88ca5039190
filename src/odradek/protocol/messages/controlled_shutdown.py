"""ControlledShutdown (key 7): a broker asks the controller to move its leaderships away."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["ControlledShutdownRequest", "ControlledShutdownResponse", "RemainingPartition"]


class ControlledShutdownRequest(Message, versions="0-3", flexible="3+"):
    """The broker that wants to stop."""

    # 0: its request header has no client id, alone among all requests.
    # 2: broker epoch (KIP-380).
    # 3: flexible.

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, "2+", default=-1, ignorable=True)


class RemainingPartition(Message):
    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


class ControlledShutdownResponse(Message, versions="0-3", flexible="3+"):
    """Partitions it still leads."""

    # 3: flexible.

    error_code: int = wire(INT16)
    remaining_partitions: Sequence[RemainingPartition] = wire(array(RemainingPartition))
