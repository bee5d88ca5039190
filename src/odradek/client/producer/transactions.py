"""The transactions of one producer: begun, filled, committed or aborted.

One call at a time; the others wait. `transaction_states` has the states, `transaction_identity` the
numbers and the partitions, `transaction_requests` the requests.

The end of a transaction has two steps, each repeated by the same call until it has succeeded:

1. EndTxn, unless nothing can be in the transaction. Once EndTxn with a commit was sent, nothing but
   the coordinator's answer tells the outcome: it can only be asked again.
2. InitProducerId with the present numbers, if the next transaction needs others and the answer to
   EndTxn has none: below transaction.version 2, after a batch of unknown outcome or a ticket, and
   when the cluster has gone over to version 2.
"""

# ruff: noqa: ASYNC109 - the calls take their timeouts as those of the producer do

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from odradek.client.client import Client
from odradek.client.consumer.commits import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    check_offsets,
)
from odradek.client.errors import CallTimeoutError
from odradek.client.producer.config import ProducerOptions
from odradek.client.producer.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    RetriableTransactionError,
    TransactionStateError,
)
from odradek.client.producer.sender import Sender
from odradek.client.producer.ticket import TransactionTicket
from odradek.client.producer.transaction_identity import TransactionIdentity
from odradek.client.producer.transaction_requests import NO_NUMBERS, Numbers
from odradek.client.producer.transaction_states import Step, TransactionStage
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode, OdradekError

__all__ = ["Transactions"]

logger = logging.getLogger(__name__)

_FEATURE: Final = "transaction.version"
_V2: Final = 2
_CAN_BE_ABORTED: Final = (
    TransactionStage.OPEN,
    TransactionStage.FLUSHING,
    TransactionStage.ABORTABLE,
    TransactionStage.ABORTING,
)


class Transactions:
    """See the module's docstring. All methods are called on the loop."""

    def __init__(self, client: Client, options: ProducerOptions, sender: Sender) -> None:
        assert sender.transaction is not None, "the caller has looked"
        self._client = client
        self._options = options
        self._sender = sender
        self._identity: TransactionIdentity = sender.transaction
        self._state = self._identity.state
        self._turn = asyncio.Lock()
        # Whether an earlier transaction has used the present numbers.
        self._is_used = False
        # Whether other producers may write in the transaction.
        self._has_ticket = False
        # Of the end that is under way: whether step 1 is done, and the numbers it has led to.
        self._is_ended = False
        self._next_numbers = NO_NUMBERS
        sender.hold()

    def _deadline(self, timeout: float | None) -> Deadline:
        if timeout is None:
            return self._client.deadline(self._options.max_block_ms)
        return self._client.deadline_after(timeout)

    async def init(self, timeout: float | None) -> None:
        """See `Producer.init_transactions`."""
        async with self._turn:
            self._state.take(Step.INIT)
            try:
                self._identity.numbers = await self._identity.requests.init(
                    NO_NUMBERS, self._options.transaction_timeout_ms, self._deadline(timeout)
                )
            except CallTimeoutError as error:
                raise RetriableTransactionError(str(error), error) from error
            except ApiError as error:
                raise self._fail_for_good(error) from error
            self._state.take(Step.INITIALIZED)
            logger.info("%s begins with %s", self._identity.transactional_id, self._numbers)

    async def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        async with self._turn:
            self._state.check(Step.BEGIN)
            identity = self._identity
            is_v2 = self._client.feature(_FEATURE) >= _V2
            if is_v2 and not identity.is_v2 and self._is_used:
                # What is left on its way of older transactions must not get into new ones.
                await self._renew(self._deadline(None))
            self._has_ticket = False
            self._is_ended = False
            identity.begin(is_v2=is_v2)
            self._state.take(Step.BEGIN)
            self._sender.take_records()

    async def send_offsets(
        self, offsets: Mapping[Any, Any], group: ConsumerGroupMetadata, timeout: float | None
    ) -> None:
        """See `Producer.send_offsets`."""
        checked: dict[Any, OffsetAndMetadata] = check_offsets(offsets)
        async with self._turn:
            self._state.take(Step.SEND_OFFSETS)
            if not checked:
                return
            identity, numbers = self._identity, self._numbers
            deadline = self._deadline(timeout)
            identity.is_maybe_begun = True
            try:
                if not identity.is_v2:
                    await identity.requests.add_offsets(numbers, group.group_id, deadline)
                    identity.is_begun = True
                await identity.requests.commit_offsets(
                    numbers, checked, group, deadline, adds_them=identity.is_v2
                )
            except ApiError as error:
                identity.needs_new_epoch = True  # An attempt may be served late.
                raise identity.fail(error, is_from_coordinator=True) from error
            except asyncio.CancelledError:
                identity.needs_new_epoch = True
                identity.fail(
                    ApiError(ErrorCode.REQUEST_TIMED_OUT, "send_offsets was interrupted"),
                    is_from_coordinator=True,
                )
                raise
            identity.is_begun = True

    async def ticket(self) -> TransactionTicket:
        """See `Producer.ticket`."""
        async with self._turn:
            self._state.take(Step.TICKET)
            identity = self._identity
            if not identity.is_v2:
                if self._is_used:
                    if identity.is_maybe_begun or identity.is_adding:
                        raise TransactionStateError(
                            "ticket", "in a transaction that has records: take the ticket first"
                        )
                    await self._renew(self._deadline(None))
                identity.needs_new_epoch = True
            self._has_ticket = True
            return TransactionTicket(
                transactional_id=identity.transactional_id,
                producer_id=self._numbers.producer_id,
                producer_epoch=self._numbers.producer_epoch,
                transaction_version=_V2 if identity.is_v2 else 0,
            )

    async def commit(self, timeout: float | None) -> None:
        """See `Producer.commit_transaction`."""
        async with self._turn:
            self._state.take(Step.COMMIT)
            if self._state.now is TransactionStage.FLUSHING:
                self._sender.hold()
                longest_s = self._options.delivery_timeout_ms / 1000 + 1
                deadline = self._client.deadline_after(longest_s if timeout is None else timeout)
                try:
                    await self._sender.flush(deadline)
                except CallTimeoutError as error:
                    what = f"commit_transaction: {error}"
                    raise RetriableTransactionError(what, error) from error
                self._state.raise_failure()
            await self._end(self._deadline(timeout), is_commit=True)

    async def abort(self, timeout: float | None, reason: object) -> None:
        """See `Producer.abort_transaction`."""
        async with self._turn:
            self._state.take(Step.ABORT)
            deadline = self._deadline(timeout)
            self._identity.refuse(reason)
            self._sender.hold()
            await self._identity.stop_adding()
            try:
                await self._sender.until_quiet(deadline)
            except CallTimeoutError as error:
                raise RetriableTransactionError(f"abort_transaction: {error}", error) from error
            if self._state.now is TransactionStage.FATAL:
                self._state.raise_failure()
            await self._end(deadline, is_commit=False)

    async def close(self, timeout: float | None) -> None:
        """Aborts what is open; a failure is logged, for the coordinator aborts it in time."""
        if self._state.now is TransactionStage.DECIDED:
            logger.warning("closed before the outcome of a commit was known")
        if not self.can_be_aborted:
            return
        try:
            # Another call may be under way.
            async with asyncio.timeout(timeout):
                await self.abort(timeout, "the producer is closed")
        except (OdradekError, TimeoutError) as error:
            logger.warning("closed in a transaction that could not be aborted: %s", error)

    @property
    def can_be_aborted(self) -> bool:
        """Whether a transaction is open, and its commit was not sent."""
        return self._state.now in _CAN_BE_ABORTED

    @property
    def stage(self) -> str:
        """What the producer is in, for messages."""
        return f"the producer is {self._state.now.value}"

    # The end of a transaction

    async def _end(self, deadline: Deadline, *, is_commit: bool) -> None:
        identity = self._identity
        try:
            if not self._is_ended:
                before = self._numbers
                self._next_numbers = await self._end_at_coordinator(deadline, is_commit=is_commit)
                self._is_ended = True
                self._is_used = identity.is_maybe_begun or self._has_ticket or self._is_used
                if self._next_numbers != before:
                    self._take_numbers(self._next_numbers)
                    identity.needs_new_epoch = False
            if identity.needs_new_epoch:
                await self._renew(deadline)
        except CallTimeoutError as error:
            raise RetriableTransactionError(str(error), error) from error
        except ApiError as error:
            if isinstance(error, FatalTransactionError | AbortableTransactionError):
                raise
            failure = identity.fail(error, is_from_coordinator=True)
            if not is_commit and not isinstance(failure, FatalTransactionError):
                failure = self._fail_for_good(error)
            raise failure from error
        self._state.take(Step.ENDED)

    async def _end_at_coordinator(self, deadline: Deadline, *, is_commit: bool) -> Numbers:
        """Step 1; returns the numbers that are to be used next."""
        identity = self._identity
        if not (identity.is_maybe_begun or self._has_ticket):
            return self._numbers
        if is_commit:
            self._state.take(Step.DECIDE)
        elif _code(self._state.failure) is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            # The coordinator has forgotten the id, and with it the transaction.
            identity.needs_new_epoch = True
            return self._numbers
        try:
            return await identity.requests.end(
                self._numbers, deadline, is_commit=is_commit, raises_epoch=identity.is_v2
            )
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE or identity.is_begun:
                raise
            # Nothing is in it: no writer with a ticket has written, or a request was lost. One that
            # is still on its way must find other numbers.
            identity.needs_new_epoch = True
            return self._numbers

    async def _renew(self, deadline: Deadline) -> None:
        """Step 2."""
        self._identity.is_changing = True
        try:
            numbers = await self._identity.requests.init(
                self._numbers, self._options.transaction_timeout_ms, deadline
            )
        except CallTimeoutError as error:
            raise RetriableTransactionError(str(error), error) from error
        except ApiError as error:
            raise self._fail_for_good(error) from error
        finally:
            self._identity.is_changing = False
            self._sender.look_soon()
        self._take_numbers(numbers)
        self._identity.needs_new_epoch = False

    def _take_numbers(self, numbers: Numbers) -> None:
        self._identity.numbers = numbers
        self._is_used = False

    def _fail_for_good(self, error: ApiError) -> ApiError:
        if isinstance(error, FatalTransactionError):
            return error
        failure = self._identity.fail(error, is_from_coordinator=True)
        if not isinstance(failure, FatalTransactionError):
            failure = FatalTransactionError(error.code, f"this producer cannot go on: {error}")
            self._identity.fail(failure)
        return failure

    @property
    def _numbers(self) -> Numbers:
        return self._identity.numbers


def _code(failure: ApiError | None) -> ErrorCode | None:
    return None if failure is None else failure.code
