"""Finds where to begin: the group's offset, then the policy; and whether a position still holds.

One round of `update` looks at every partition that waits for something and asks all brokers at
once. The partitions of a broker continue as soon as it has answered, independent of the others, and
a failed look-up waits for the next round: a partition without a leader delays no other. A partition
that the application sought meanwhile keeps that position (CL-24). Validation: when the leader epoch
of a partition has changed, its leader is asked where the epoch of the last record that was read
ends; if that is below the position, the log was truncated and holds other records there now.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from odradek.client.client import Client
from odradek.client.cluster import Cluster
from odradek.client.consumer.config import ResetPolicy
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.errors import LogTruncationError, NoOffsetForPartitionError
from odradek.client.consumer.partition_state import NO_EPOCH, AssignedPartition, Partitions, Stage
from odradek.client.leaders import LeaderCall, api_error, ask_leaders, by_topic
from odradek.client.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import IsolationLevel
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

__all__ = ["PositionFinder"]

logger = logging.getLogger(__name__)

_EpochEnd = tuple[int, int]  # Epoch and end offset; -1 each if unknown.


class PositionFinder:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        partitions: Partitions,
        policy: ResetPolicy,
        coordinator: Coordinator | None,
        *,
        isolation: IsolationLevel,
        on_found: Callable[[], None],
    ) -> None:
        """`on_found` is called when partitions may have become ready."""
        self._client = client
        self._partitions = partitions
        self._policy = policy
        self._coordinator = coordinator
        self._isolation_level = isolation
        self._on_found = on_found
        # Whether a look-up failed since the last round began: the leader may have changed.
        self.met_trouble = False

    def mark_changed_leaders(self) -> None:
        """Marks positions for validation whose partition has a new leader epoch."""
        for state in self._partitions:
            known = self._client.cluster.partition(state.tp)
            if state.stage is not Stage.READY or known is None:
                continue
            if known.leader_epoch <= state.leader_epoch:
                continue
            if state.position_epoch != NO_EPOCH:
                state.await_validation()
            else:
                state.leader_epoch = known.leader_epoch

    def next_due_ms(self) -> int | None:
        """When the next round makes sense (monotonic ms); None if nothing waits."""
        return min(
            (state.retry_at_ms for state in self._partitions if state.stage is not Stage.READY),
            default=None,
        )

    async def update(self) -> list[Exception]:
        """Does one round; returns the failures for the application."""
        failures: list[Exception] = []
        self.met_trouble = False
        # In this order: a partition without a committed offset is reset, one with it is validated.
        if committed := self._waiting_for(Stage.AWAIT_COMMITTED):
            failures += await self._use_committed(committed)
        if resets := self._waiting_for(Stage.AWAIT_RESET):
            failures += await self._reset(resets)
        if validations := self._waiting_for(Stage.AWAIT_VALIDATION):
            failures += await self._ask_each(validations, self._validate)
        return failures

    async def _ask_each(
        self,
        states: list[AssignedPartition],
        ask: Callable[[list[AssignedPartition]], Awaitable[list[Exception]]],
    ) -> list[Exception]:
        """Asks every leader for its own partitions; no leader waits for another."""
        by_leader: dict[int | None, list[AssignedPartition]] = {}
        for state in states:
            leader = self._client.cluster.leader(state.tp)
            by_leader.setdefault(None if leader is None else leader.id, []).append(state)

        async def ask_one(part: list[AssignedPartition]) -> list[Exception]:
            try:
                return await ask(part)
            except ApiError as error:
                self._note_trouble(part)
                return [] if error.code.retriable else [error]
            finally:
                self._on_found()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask_one(part)) for part in by_leader.values()]
        return [failure for task in tasks for failure in task.result()]

    def _waiting_for(self, stage: Stage) -> list[AssignedPartition]:
        now_ms = self._client.clock.monotonic_ms()
        return [
            state
            for state in self._partitions
            if state.stage is stage and state.retry_at_ms <= now_ms
        ]

    async def _use_committed(self, states: list[AssignedPartition]) -> list[Exception]:
        if self._coordinator is None:
            for state in states:
                state.stage = Stage.AWAIT_RESET
            return []
        versions = {state.tp: state.version for state in states}
        try:
            found = await self._coordinator.fetch_offsets(versions, self._deadline())
        except ApiError as error:
            self._retry_later(states)
            if error.code.retriable:
                logger.info("Committed offsets: %s; trying again", error)
                return []
            return [error]
        for state in states:
            if not self._still_waits(state, versions, Stage.AWAIT_COMMITTED):
                continue
            committed = found.get(state.tp)
            if committed is None:
                state.stage = Stage.AWAIT_RESET
            else:
                epoch = NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch
                state.seek(committed.offset, epoch)
        # Before the first fetch: the log may have been truncated since the commit.
        self.mark_changed_leaders()
        return []

    async def _reset(self, states: list[AssignedPartition]) -> list[Exception]:
        by_policy = [state for state in states if state.reset_timestamp is None]
        failures: list[Exception] = []
        if self._policy.kind == "none" and by_policy:
            # Raised again at every poll until the application seeks, but not more often than that.
            self._retry_later(by_policy)
            failures.append(NoOffsetForPartitionError(state.tp for state in by_policy))
            states = [state for state in states if state.reset_timestamp is not None]
        if states:
            failures += await self._ask_each(states, self._look_up)
        return failures

    async def _look_up(self, states: list[AssignedPartition]) -> list[Exception]:
        versions = {state.tp: state.version for state in states}
        failures: list[Exception] = []
        times = {
            state.tp: self._policy_time()
            if state.reset_timestamp is None
            else state.reset_timestamp
            for state in states
        }
        found = await self._list_offsets(times)
        # A time that no record has reached yet is the end.
        late = [
            tp
            for tp, one in found.items()
            if times[tp] >= 0 and not isinstance(one, ApiError) and one.offset < 0
        ]
        if late:
            found |= await self._list_offsets(dict.fromkeys(late, LATEST))
        for state in states:
            if not self._still_waits(state, versions, Stage.AWAIT_RESET):
                continue
            answer = found[state.tp]
            if not isinstance(answer, ApiError):
                logger.info("Position of %s is reset to %d", state.tp, answer.offset)
                state.seek(answer.offset, answer.leader_epoch)
                self._accept(state, self._client.cluster)  # Its leader has just reported it.
                continue
            self._note_trouble([state])
            if not answer.code.retriable:
                failures.append(answer)
        return failures

    async def _list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | ApiError]:
        return await list_offsets(
            self._client,
            times,
            self._deadline(),
            isolation_level=self._isolation_level,
            repeats=False,
        )

    def _policy_time(self) -> int:
        match self._policy.kind:
            case "earliest":
                return EARLIEST
            case "by_duration":
                return max(self._client.clock.now_ms() - self._policy.duration_ms, 0)
            case _:
                return LATEST

    async def _validate(self, states: list[AssignedPartition]) -> list[Exception]:
        versions = {state.tp: state.version for state in states}
        positions = {state.tp: (state.position, state.position_epoch) for state in states}
        epochs = {tp: epoch for tp, (_, epoch) in positions.items()}
        cluster = self._client.cluster
        call: LeaderCall[int, _EpochEnd] = LeaderCall(
            api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
            answer_type=OffsetForLeaderEpochResponse,
            build=_build_validation,
            read=_read_validation,
            # Below 3 only brokers may send it.
            versions=lambda _partitions, _cluster: VersionRange(3, 32767),
        )
        found = await ask_leaders(self._client, call, epochs, self._deadline(), repeats=False)
        truncated: dict[TopicPartition, int] = {}
        failures: list[Exception] = []
        for state in states:
            if not self._still_waits(state, versions, Stage.AWAIT_VALIDATION):
                continue
            answer = found[state.tp]
            if isinstance(answer, ApiError):
                if answer.code is ErrorCode.UNSUPPORTED_VERSION:
                    self._accept(state, cluster)
                    continue
                self._note_trouble([state])
                if not answer.code.retriable:
                    failures.append(answer)
                continue
            end = answer[1]
            assert state.position is not None, "a partition that is validated has a position"
            if (state.position, state.position_epoch) != positions[state.tp]:
                continue  # A call took records meanwhile: the next round asks again.
            if end < 0 or end >= state.position:
                self._accept(state, cluster)
            elif self._policy.kind == "none":
                truncated[state.tp] = end
                self._retry_later([state])
            else:
                logger.warning(
                    "%s was cut at %d, below the position %d", state.tp, end, state.position
                )
                state.seek(end, answer[0])
        if truncated:
            failures.append(LogTruncationError(truncated))
        return failures

    def _accept(self, state: AssignedPartition, cluster: Cluster) -> None:
        known = cluster.partition(state.tp)
        state.leader_epoch = NO_EPOCH if known is None else known.leader_epoch
        state.stage = Stage.READY

    def _still_waits(
        self, state: AssignedPartition, versions: Mapping[TopicPartition, int], stage: Stage
    ) -> bool:
        return state.stage is stage and self._partitions.is_current(state, versions[state.tp])

    def _note_trouble(self, states: Iterable[AssignedPartition]) -> None:
        self.met_trouble = True
        self._retry_later(states)

    def _retry_later(self, states: Iterable[AssignedPartition]) -> None:
        at_ms = self._client.clock.monotonic_ms() + self._client.options.retry_backoff_ms
        for state in states:
            state.retry_at_ms = at_ms

    def _deadline(self) -> Deadline:
        return self._client.deadline(self._client.options.request_timeout_ms)


def _build_validation(epochs: Mapping[TopicPartition, int], cluster: Cluster) -> Message:
    def leader_epoch(name: str, index: int) -> int:
        known = cluster.partition(TopicPartition(name, index))
        return NO_EPOCH if known is None else known.leader_epoch

    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=index,
                        current_leader_epoch=leader_epoch(name, index),
                        leader_epoch=epoch,
                    )
                    for index, epoch in partitions.items()
                ],
            )
            for name, partitions in by_topic(epochs).items()
        ],
    )


def _read_validation(
    response: Message, _cluster: Cluster
) -> Iterator[tuple[TopicPartition, _EpochEnd | ApiError]]:
    assert isinstance(response, OffsetForLeaderEpochResponse)
    for topic in response.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.topic, answer.partition)
            if answer.error_code != ErrorCode.NONE:
                yield tp, api_error(answer.error_code, None, tp)
            else:
                yield tp, (answer.leader_epoch, answer.end_offset)
