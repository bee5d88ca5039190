"""Transactional batches of a Produce: appended once their coordinator has verified them.

Only the first batch of a transaction in a partition is verified. The batches of a request are
appended together, when all of them may be. A batch beside them that is not transactional is
appended like any other (KAFKA-14916), and the log refuses it if its producer has a transaction
open.
"""

from collections.abc import Callable, Generator, Mapping
from struct import Struct
from typing import Final

from odradek.broker.context import BrokerContext
from odradek.broker.handlers.produce import problem_with_transaction
from odradek.broker.transactions.verification import (
    Support,
    VerificationErrors,
    produce_error,
)
from odradek.model import AppendOrigin, TopicPartition
from odradek.protocol.hot.produce import ProduceView
from odradek.records.batch import CURRENT_MAGIC, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader
from odradek.replication import ProduceResult

__all__ = ["append_transactional", "find_denial"]

_FIRST_ABORTABLE_VERSION: Final = 11
_FIRST_ADDING_VERSION: Final = 12

# Of a batch: the magic at 16, the attributes at 21, producer id and epoch at 43.
_IDENTITY: Final = Struct(">16xB4xh20xqh").unpack_from


def find_denial(view: ProduceView) -> Generator[None, None, ProduceResult | None]:
    """The refusal of a long request for its transactional batches; yields after each batch."""
    producers = set()
    for _, partitions in view.topics:
        for _, records in partitions:
            if records is not None and len(records) >= HEADER_SIZE:
                magic, attributes, producer_id, producer_epoch = _IDENTITY(records)
                if magic == CURRENT_MAGIC and attributes & TRANSACTIONAL_MASK:
                    producers.add((producer_id, producer_epoch))
            yield
    return problem_with_transaction(view.transactional_id, producers) if producers else None


def append_transactional(
    view: ProduceView,
    entries: Mapping[TopicPartition, memoryview],
    transactional: Mapping[TopicPartition, BatchHeader],
    version: int,
    respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    context: BrokerContext,
) -> None:
    """Appends the batches, the transactional ones perhaps after their coordinator has answered.

    Args:
        view: The request.
        entries: All batches.
        transactional: The headers of the transactional ones, which are of one producer.
        version: Of the request.
        respond: Takes the results of all batches.
        context: The parts of the broker.
    """

    def append(
        batches: Mapping[TopicPartition, memoryview],
        on_appended: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    ) -> None:
        context.replicas.appends.append_records(
            timeout_ms=view.timeout_ms,
            required_acks=view.acks,
            internal_topics_allowed=False,
            origin=AppendOrigin.CLIENT,
            entries=batches,
            respond=on_appended,
        )

    verification = context.verification
    allowed = {
        tp: header
        for tp, header in transactional.items()
        if tp.topic not in context.internal_topics
    }
    support = _support(version)
    needed = {} if verification is None else verification.needed(allowed, support)
    if verification is None or not needed or view.acks not in (-1, 0, 1):
        append(entries, respond)
        return

    def on_verified(errors: VerificationErrors) -> None:
        if not errors:
            append(entries, respond)
            return
        refused = {
            tp: ProduceResult(
                error=produce_error(error, support),
                error_message=f"the coordinator of {view.transactional_id!r} does not confirm its"
                f" transaction here: {error.name}",
            )
            for tp, error in errors.items()
        }
        verified = {tp: records for tp, records in entries.items() if tp not in refused}
        append(verified, lambda appended: respond({**refused, **appended}))

    assert view.transactional_id, "checked with the batches"
    verification.start(view.transactional_id, needed, support, on_verified)


def _support(version: int) -> Support:
    if version >= _FIRST_ADDING_VERSION:
        return Support.ADDED
    return Support.ABORTABLE if version >= _FIRST_ABORTABLE_VERSION else Support.VERIFIED
