"""InitProducerId (key 22): a producer id and epoch; ends its predecessor's open transaction."""

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, wire

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


class InitProducerIdRequest(Message, versions="0-5", flexible="2+"):
    """A transactional id, or none for a producer that is only idempotent."""

    # 2: flexible.
    # 3: the id and epoch it had, to continue with them (KIP-360).
    # 4: may be answered PRODUCER_FENCED. 5: or TRANSACTION_ABORTABLE (KIP-890).

    transactional_id: str | None = wire(STRING, nullable="0+")
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)


class InitProducerIdResponse(Message, versions="0-5", flexible="2+"):
    """Id and epoch; -1 each on an error."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)
