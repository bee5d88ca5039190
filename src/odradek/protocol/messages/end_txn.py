"""EndTxn (key 26): commit or abort a transaction."""

from odradek.protocol.primitives import BOOL, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, wire

__all__ = ["EndTxnRequest", "EndTxnResponse"]


class EndTxnRequest(Message, versions="0-5", flexible="3+"):
    """The transaction and its end."""

    # 2: may be answered PRODUCER_FENCED.
    # 3: flexible.
    # 4: or TRANSACTION_ABORTABLE.
    # 5: the epoch goes up with every transaction (KIP-890).

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


class EndTxnResponse(Message, versions="0-5", flexible="3+"):
    """The outcome."""

    # 3: flexible.
    # 5: id and epoch for the next transaction.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)
