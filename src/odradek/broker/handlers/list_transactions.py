"""ListTransactions: the transactional ids that this broker coordinates."""

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.broker.transactions.patterns import Pattern, PatternError, compile_pattern
from odradek.coordinator.transaction.records import TransactionRecord
from odradek.coordinator.transaction.state import TransactionState
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.messages.list_transactions import TransactionState as Row
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_list_transactions"]

_IDS_PER_STEP: Final = 50  # Between two readings of the clock.
_STATES: Final = {state.title: state for state in TransactionState}


@in_slices
def handle_list_transactions(request: Request, context: BrokerContext) -> Steps:
    """Lists the ids that pass all filters, and that the client may describe."""
    message = body_of(ListTransactionsRequest, request)
    transactions = context.transactions
    assert transactions is not None, "given to every broker that serves requests"
    unknown = sorted(set(message.state_filters) - _STATES.keys())
    error = transactions.check_all()
    pattern: Pattern | None = None
    if message.transactional_id_pattern:
        try:
            pattern = compile_pattern(message.transactional_id_pattern)
        except PatternError:
            error = ErrorCode.INVALID_REGULAR_EXPRESSION
    if error is not ErrorCode.NONE:
        response = ListTransactionsResponse(error_code=error)
        return (yield from reply_in_slices(request, response, context))
    passes = _filter(message, context.clock.now_ms())
    may = partial(is_allowed, context.authorizer, request, Operation.DESCRIBE)
    rows = []
    for count, (transactional_id, record) in enumerate(transactions.list_transactions()):
        if count % _IDS_PER_STEP == 0:
            yield
        if (
            passes(record)
            and (pattern is None or (yield from pattern.steps(transactional_id)))
            and may(ResourceType.TRANSACTIONAL_ID, transactional_id)
        ):
            rows.append(
                Row(
                    transactional_id=transactional_id,
                    producer_id=record.producer_id,
                    transaction_state=record.state.title,
                )
            )
    response = ListTransactionsResponse(
        error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=rows
    )
    return (yield from reply_in_slices(request, response, context))


def _filter(message: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionRecord], bool]:
    """Whether a transaction passes the filters; one of unknown states alone lets none pass."""
    states = {_STATES[name] for name in message.state_filters if name in _STATES}
    producers = frozenset(message.producer_id_filters)
    duration_ms = message.duration_filter

    def passes(record: TransactionRecord) -> bool:
        return (
            (not message.state_filters or record.state in states)
            and (not producers or record.producer_id in producers)
            and (
                duration_ms < 0 or (record.start_ms >= 0 and now_ms - record.start_ms > duration_ms)
            )
        )

    return passes
