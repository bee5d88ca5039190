"""ListTransactions (key 66): transactions a broker coordinates. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["ListTransactionsRequest", "ListTransactionsResponse", "TransactionState"]


class ListTransactionsRequest(Message, versions="0-2", flexible="0+"):
    """Filters; an empty one matches everything."""

    # 1: at least this old, -1 for any (KIP-994).
    # 2: a regular expression for the id, empty or null for any (KIP-1152).

    state_filters: Sequence[str] = wire(array(STRING))
    producer_id_filters: Sequence[int] = wire(array(INT64))
    duration_filter: int = wire(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = wire(STRING, "2+", nullable="2+", default=None)


class TransactionState(Message):
    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


class ListTransactionsResponse(Message, versions="0-2", flexible="0+"):
    """Transactions of this broker alone."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    unknown_state_filters: Sequence[str] = wire(array(STRING))
    transaction_states: Sequence[TransactionState] = wire(array(TransactionState))
