"""TxnOffsetCommit: a group's positions, stored when the producer's transaction is committed.

A long request is committed in portions. The first one alone asks the coordinator of the transaction
whether it includes the group's offsets; the rest follows when it has been answered.
"""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.handlers.offset_commit import find_refused
from odradek.broker.slices import (
    Gathering,
    Steps,
    StepsOrNone,
    body_of,
    in_slices,
    portions,
    reply_in_slices,
    start_in_slices,
)
from odradek.coordinator.group.coordinator import Rejected
from odradek.coordinator.group.transactional_commits import TransactionalCommit
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.hot.offset_commit import CommittedPartition
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_txn_offset_commit"]

# Partitions of a portion: a few microseconds each.
_COMMITTED_AT_ONCE: Final = 100
_FIRST_VERSION_THAT_KNOWS_LOADS: Final = 2


class _Row(NamedTuple):
    """A partition of the request."""

    place: int  # In the answer.
    topic: str
    committed: CommittedPartition


class _Outcome(NamedTuple):
    """What became of a portion."""

    refused: Mapping[tuple[str, int], ErrorCode]
    error: ErrorCode  # Of all others but those whose metadata is too large.
    too_large: Rejected

    def error_of(self, key: tuple[str, int]) -> ErrorCode:
        code = self.refused.get(key)
        if code is not None:
            return code
        is_too_large = self.too_large is not None and key in self.too_large
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else self.error


@in_slices
def handle_txn_offset_commit(request: Request, context: BrokerContext) -> StepsOrNone:
    """Answers when the offsets are on every replica in sync, staged until the transaction ends."""
    message = body_of(TxnOffsetCommitRequest, request)
    rows = yield from _rows(message)
    denial = _denial(request, message, context)
    errors = [denial] * len(rows)
    if denial is not ErrorCode.NONE or not rows:
        return (yield from _answer(request, message, errors, context))
    first, *rest = portions(rows, _COMMITTED_AT_ONCE)
    gathering = Gathering(
        lambda: start_in_slices(request, _answer(request, message, errors, context), context)
    )

    def settle(portion: list[_Row], outcome: _Outcome) -> None:
        for place, topic, committed in portion:
            errors[place] = outcome.error_of((topic, committed[0]))
        gathering.end()

    def commit_rest() -> StepsOrNone:
        for portion in rest:
            gathering.begin()
            _commit(message, portion, partial(settle, portion), request, context)
            yield
        gathering.end()
        return None

    def on_first(outcome: _Outcome) -> None:
        gathering.begin()
        settle(first, outcome)
        start_in_slices(request, commit_rest(), context, outlives_client=True)

    _commit(message, first, on_first, request, context)
    return None


def _denial(request: Request, message: TxnOffsetCommitRequest, context: BrokerContext) -> ErrorCode:
    """The error of the whole request."""
    if not is_allowed(
        context.authorizer,
        request,
        Operation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        message.transactional_id,
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not is_allowed(
        context.authorizer, request, Operation.READ, ResourceType.GROUP, message.group_id
    ):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not message.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if message.producer_id < 0 or message.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE


def _rows(message: TxnOffsetCommitRequest) -> Generator[None, None, list[_Row]]:
    rows: list[_Row] = []
    for topic in message.topics:
        for row in topic.partitions:
            committed = (
                row.partition_index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.committed_metadata,
            )
            rows.append(_Row(len(rows), topic.name, committed))
            yield
        yield
    return rows


def _commit(
    message: TxnOffsetCommitRequest,
    portion: list[_Row],
    respond: Callable[[_Outcome], None],
    request: Request,
    context: BrokerContext,
) -> None:
    version = request.header.api_version
    topics: dict[str, list[CommittedPartition]] = {}
    for row in portion:
        topics.setdefault(row.topic, []).append(row.committed)
    refused = find_refused(request, list(topics.items()), context, by_id=False) or {}
    kept = {
        topic: [row for row in rows if (topic, row[0]) not in refused]
        for topic, rows in topics.items()
    }
    wanted = [(topic, rows) for topic, rows in kept.items() if rows]
    if not wanted:
        respond(_Outcome(refused, ErrorCode.NONE, None))
        return

    def answer(error: ErrorCode, too_large: Rejected) -> None:
        if (
            error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and version < _FIRST_VERSION_THAT_KNOWS_LOADS
        ):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        respond(_Outcome(refused, error, too_large))

    context.groups.commit_in_transaction(
        TransactionalCommit(
            transactional_id=message.transactional_id,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            group_id=message.group_id,
            generation_id=message.generation_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=wanted,
            version=version,
        ),
        answer,
    )


def _answer(
    request: Request,
    message: TxnOffsetCommitRequest,
    errors: list[ErrorCode],
    context: BrokerContext,
) -> Steps:
    remaining = iter(errors)
    topics = []
    for topic in message.topics:
        rows = []
        for row in topic.partitions:
            rows.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=row.partition_index, error_code=next(remaining)
                )
            )
            yield
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        yield
    return (yield from reply_in_slices(request, TxnOffsetCommitResponse(topics=topics), context))
