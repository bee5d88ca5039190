"""ISR changes of this broker's partitions, sent to the controller together.

One request is in flight. Changes that partitions propose meanwhile wait, one per partition, and
travel with the next request; so a broker that many leaders lose at once costs few requests. Each
change gets the outcome of its own partition:

| answer                                       | outcome                                       |
|----------------------------------------------|-----------------------------------------------|
| the wanted ISR, in our leader epoch          | altered, with the new version                 |
| INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED, | refused: nothing was stored, the old ISR is   |
| INVALID_REQUEST                              | in force                                      |
| STALE_BROKER_EPOCH, or no controller reached | not asked: it is sent again                   |
| FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, | conflict: newer state is on its way           |
| NEW_LEADER_ELECTED, 3, UNKNOWN_TOPIC_ID      |                                               |
| anything else, or no answer                  | unknown: it is asked again                    |
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from odradek.broker.peers.controller_services import (
    FIRST_ALTER_PARTITION_BY_ID,
    FIRST_ALTER_PARTITION_WITH_EPOCHS,
)
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.ports import (
    AlterIsrOutcome,
    IsrAltered,
    IsrConflict,
    IsrNotAsked,
    IsrOutcomeUnknown,
    IsrRefused,
)
from odradek.model import LeaderAndIsr, TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.inter_broker import InterBrokerVersions
from odradek.protocol.messages.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionPartition,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.tasks import Tasks

__all__ = ["MAX_CHANGES", "IsrLink", "IsrRequests"]

logger = logging.getLogger(__name__)

# Changes of one request: the controller stores them before it handles another event.
MAX_CHANGES: Final = 1_000

_REFUSED: Final = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INVALID_REQUEST,
    }
)
_CONFLICTS: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class IsrLink(Protocol):
    """The way to the controller; `ControllerLink` is one."""

    @property
    def versions(self) -> InterBrokerVersions:
        """The versions that brokers of this cluster speak."""
        ...

    async def reach(self, api_key: ApiKey) -> None:
        """Connects to the controller, for one kind of request.

        Raises:
            ApiError: It cannot be reached now.
        """
        ...

    async def alter_partition(
        self, message: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Requests other ISRs.

        Raises:
            ApiError: The controller was not reached, or its answer is lost.
        """
        ...


class _Waiting(NamedTuple):
    state: LeaderAndIsr
    broker_epochs: Mapping[int, int]
    outcome: asyncio.Future[AlterIsrOutcome]


class IsrRequests:
    """Asks the controller for other ISRs.

    Args:
        broker_id: This broker.
        link: The way to the controller.
        broker_epoch: The epoch of this broker's registration.
        topic_id: The id of a topic.
        tasks: Runs the requests.
    """

    def __init__(
        self,
        broker_id: int,
        link: IsrLink,
        *,
        broker_epoch: Callable[[], int],
        topic_id: Callable[[str], uuid.UUID | None],
        tasks: Tasks,
    ) -> None:
        self._broker_id = broker_id
        self._link = link
        self._broker_epoch = broker_epoch
        self._topic_id = topic_id
        self._tasks = tasks
        # Bounded by the partitions: each has at most one change in flight.
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._is_sending = False

    async def alter(
        self, tp: TopicPartition, state: LeaderAndIsr, broker_epochs: Mapping[int, int]
    ) -> AlterIsrOutcome:
        """Asks for an ISR, with the next request."""
        outcome: asyncio.Future[AlterIsrOutcome] = asyncio.get_running_loop().create_future()
        former = self._waiting.pop(tp, None)
        if former is not None and not former.outcome.done():
            former.outcome.set_result(IsrOutcomeUnknown())  # Of an earlier role of this broker.
        self._waiting[tp] = _Waiting(state, broker_epochs, outcome)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.spawn(self._send_all())
        return await outcome

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                taken = dict(list(self._waiting.items())[:MAX_CHANGES])
                for tp in taken:
                    del self._waiting[tp]
                await self._send(taken)
        finally:
            self._is_sending = False

    async def _send(self, changes: Mapping[TopicPartition, _Waiting]) -> None:
        version = self._link.versions.alter_partition
        assert version is not None, "an older protocol writes the store"
        outcomes: Mapping[TopicPartition, AlterIsrOutcome] = {}
        otherwise: AlterIsrOutcome = IsrNotAsked()
        try:
            await self._link.reach(ApiKey.ALTER_PARTITION)
            otherwise = IsrOutcomeUnknown()
            answer = await self._link.alter_partition(self._request(changes, version), version)
            if answer.error_code == ErrorCode.NONE:
                outcomes = self._outcomes(changes, answer, version)
            else:
                code = ErrorCode(answer.error_code)
                if code is ErrorCode.STALE_BROKER_EPOCH:
                    otherwise = IsrNotAsked()
                logger.info("%d ISR changes are requested again: %s", len(changes), code.name)
        except ApiError as error:
            logger.info("%d ISR changes are requested again: %s", len(changes), error)
        finally:
            for tp, change in changes.items():
                if not change.outcome.done():
                    change.outcome.set_result(outcomes.get(tp, otherwise))

    def _request(
        self, changes: Mapping[TopicPartition, _Waiting], version: int
    ) -> AlterPartitionRequest:
        by_topic: dict[str, list[AlterPartitionPartition]] = {}
        for tp, change in changes.items():
            by_topic.setdefault(tp.topic, []).append(self._row(tp, change, version))
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                AlterPartitionTopic(
                    topic_name=topic, topic_id=self._id_bytes(topic), partitions=rows
                )
                for topic, rows in by_topic.items()
            ],
        )

    def _row(self, tp: TopicPartition, change: _Waiting, version: int) -> AlterPartitionPartition:
        state = change.state
        has_epochs = version >= FIRST_ALTER_PARTITION_WITH_EPOCHS
        epochs = {**change.broker_epochs, self._broker_id: self._broker_epoch()}
        members = [
            AlterPartitionBrokerState(broker_id=member, broker_epoch=epochs.get(member, -1))
            for member in state.isr
        ]
        return AlterPartitionPartition(
            partition_index=tp.partition,
            leader_epoch=state.leader_epoch,
            new_isr=() if has_epochs else state.isr,
            new_isr_with_epochs=members if has_epochs else (),
            partition_epoch=state.partition_version,
        )

    def _id_bytes(self, topic: str) -> bytes:
        topic_id = self._topic_id(topic)
        return ZERO_UUID if topic_id is None else topic_id.bytes

    def _outcomes(
        self,
        changes: Mapping[TopicPartition, _Waiting],
        answer: AlterPartitionResponse,
        version: int,
    ) -> dict[TopicPartition, AlterIsrOutcome]:
        names = {self._id_bytes(tp.topic): tp.topic for tp in changes}
        outcomes: dict[TopicPartition, AlterIsrOutcome] = {}
        for topic in answer.topics:
            is_by_id = version >= FIRST_ALTER_PARTITION_BY_ID
            name = names.get(topic.topic_id) if is_by_id else topic.topic_name
            for row in topic.partitions:
                tp = TopicPartition(name or "", row.partition_index)
                if tp in changes:
                    outcomes[tp] = _outcome(tp, changes[tp].state, row, version)
        return outcomes


def _outcome(
    tp: TopicPartition, wanted: LeaderAndIsr, row: AlterPartitionPartitionResult, version: int
) -> AlterIsrOutcome:
    code = ErrorCode(row.error_code)
    if code is ErrorCode.NONE:
        found = (row.leader_id, row.leader_epoch, set(row.isr))
        if found == (wanted.leader, wanted.leader_epoch, set(wanted.isr)):
            return IsrAltered(row.partition_epoch)
        return IsrConflict()
    if code in _REFUSED:
        logger.info("%s: the controller refused ISR %s: %s", tp, wanted.isr, code.name)
        is_compared = version >= FIRST_ALTER_PARTITION_WITH_EPOCHS
        return IsrRefused(is_compared and code is ErrorCode.INELIGIBLE_REPLICA)
    return IsrConflict() if code in _CONFLICTS else IsrOutcomeUnknown()
