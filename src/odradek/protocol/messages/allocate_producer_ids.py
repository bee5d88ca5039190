"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids."""

from odradek.protocol.primitives import INT16, INT32, INT64
from odradek.protocol.schema import Message, wire

__all__ = ["AllocateProducerIdsRequest", "AllocateProducerIdsResponse"]


class AllocateProducerIdsRequest(Message, versions="0", flexible="0+"):
    """The broker that needs ids."""

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)


class AllocateProducerIdsResponse(Message, versions="0", flexible="0+"):
    """A block of ids."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id_start: int = wire(INT64)
    producer_id_len: int = wire(INT32)
