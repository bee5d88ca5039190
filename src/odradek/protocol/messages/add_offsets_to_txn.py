"""AddOffsetsToTxn (key 25): a group's offsets join a transaction."""

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, wire

__all__ = ["AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]


class AddOffsetsToTxnRequest(Message, versions="0-4", flexible="3+"):
    """The group whose offsets will be committed."""

    # 2: may be answered PRODUCER_FENCED.
    # 3: flexible.
    # 4: or TRANSACTION_ABORTABLE (KIP-890).

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


class AddOffsetsToTxnResponse(Message, versions="0-4", flexible="3+"):
    """The outcome."""

    # 3: flexible.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
