"""The coordinator of a group: looked up, asked, and looked up again when it has moved.

Every method here tries once; the caller decides whether to try again. After an answer that says the
coordinator has moved, and after a lost connection, the next call looks it up again. Joins wait long
at the coordinator, so its requests have a connection of their own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from odradek.client.client import Client
from odradek.client.connections import wait_for_place
from odradek.client.consumer.commits import OffsetAndMetadata, OffsetCommitOutcome, decide_outcome
from odradek.client.consumer.membership import MemberIdentity
from odradek.client.errors import CallTimeoutError
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import (
    ApiError,
    DecodeError,
    DisconnectedError,
    ErrorCode,
    RequestTimedOutError,
)
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.enums import CoordinatorType
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

__all__ = ["GROUP_LANE", "Coordinator"]

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

GROUP_LANE: Final = "group"
# FindCoordinator, OffsetFetch: the first versions that name several groups.
_SEVERAL_KEYS: Final = 4
_SEVERAL_GROUPS: Final = 8
# OffsetCommit, OffsetFetch: later versions have the ids of topics, and a commit may be for a topic
# whose id this client does not know.
_BY_NAME: Final = VersionRange(0, 9)

_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Coordinator:
    """See the module's docstring."""

    def __init__(self, client: Client, group_id: str) -> None:
        self._client = client
        self.group_id = group_id
        self._node_id: int | None = None
        # Held by the call that looks it up; others wait for its result.
        self._finding = asyncio.Lock()

    @property
    def is_known(self) -> bool:
        return self._node_id is not None

    def forget(self, why: object) -> None:
        """Looks it up again before the next request."""
        if self._node_id is not None:
            logger.info("Group %s: coordinator %d: %s", self.group_id, self._node_id, why)
            self._node_id = None

    async def find(self, deadline: Deadline) -> int:
        """Its broker, looked up once if it is not known.

        Raises:
            ApiError: It cannot be found, for now or for good.
        """
        if self._node_id is not None:
            return self._node_id
        try:
            # The call that looks it up may have a later deadline than this one.
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await self._finding.acquire()
        except TimeoutError:
            raise CallTimeoutError(
                f"coordinator of group {self.group_id!r}: not found in {deadline.timeout_ms} ms"
            ) from None
        try:
            if self._node_id is None:
                self._node_id = await self._find(deadline)
            return self._node_id
        finally:
            self._finding.release()

    async def _find(self, deadline: Deadline) -> int:
        client = self._client
        connection = await client.any_connection(deadline)
        if connection.version_for(ApiKey.FIND_COORDINATOR) >= _SEVERAL_KEYS:
            request = FindCoordinatorRequest(
                key_type=CoordinatorType.GROUP, coordinator_keys=(self.group_id,)
            )
        else:
            request = FindCoordinatorRequest(key=self.group_id, key_type=CoordinatorType.GROUP)
        response = await client.ask(
            connection, ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, deadline
        )
        # One answer for the key, nested or not.
        answer = response.coordinators[0] if response.coordinators else response
        if answer.error_code != ErrorCode.NONE:
            what = f"coordinator of group {self.group_id!r}"
            raise api_error(answer.error_code, answer.error_message, what)
        if answer.node_id not in client.cluster.nodes:
            await client.refresh((), deadline)
        if answer.node_id not in client.cluster.nodes:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"coordinator of group {self.group_id!r}: broker {answer.node_id} is not there",
            )
        return answer.node_id

    async def connection(self, deadline: Deadline, *, lane: str = GROUP_LANE) -> OutboundConnection:
        """The connection to it.

        Raises:
            ApiError: It cannot be found or reached.
        """
        node_id = await self.find(deadline)
        try:
            return await self._client.connection_to(node_id, deadline, lane=lane)
        except ApiError as error:
            self.forget(error)
            raise

    def drop_connection(self) -> None:
        """Ends the connection, and with it the requests that wait there for an answer."""
        if self._node_id is not None:
            connection = self._client.opened_connection(self._node_id, lane=GROUP_LANE)
            if connection is not None:
                connection.close("the answers are no longer wanted")

    async def ask(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        timeout_ms: int | None = None,
        lane: str = GROUP_LANE,
        within: VersionRange | None = None,
    ) -> M:
        """Sends one request, once. The caller looks at errors inside of the answer.

        Args:
            timeout_ms: How long the answer may take; `request.timeout.ms` if not given.
            within: The versions that can carry the request; all if not given.

        Raises:
            ApiError: It cannot be found, the connection ended, or the time is over.
        """
        answer = await self.send(
            api_key, request, answer_type, deadline, timeout_ms=timeout_ms, lane=lane, within=within
        )
        return await answer

    async def send(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        timeout_ms: int | None = None,
        lane: str = GROUP_LANE,
        within: VersionRange | None = None,
    ) -> Coroutine[Any, Any, M]:
        """Sends a request; returns an awaitable of the answer as soon as it is sent.

        Requests of one lane are served in the order in which they are sent.

        Raises:
            ApiError: As `ask`.
        """
        connection = await self.connection(deadline, lane=lane)
        version = connection.version_for(api_key, within)
        if timeout_ms is None:
            timeout_ms = max(min(deadline.left_ms(), self._client.options.request_timeout_ms), 1)
        try:
            await wait_for_place(connection, deadline)
            answer = connection.send(
                api_key, version, encode_message_parts(request, version), timeout_ms=timeout_ms
            )
        except (DisconnectedError, RequestTimedOutError) as error:
            self.forget(error)
            raise
        return self._read(connection, api_key, version, answer, answer_type)

    async def _read(
        self,
        connection: OutboundConnection,
        api_key: ApiKey,
        version: int,
        answer: "asyncio.Future[memoryview]",
        answer_type: type[M],
    ) -> M:
        try:
            _, response = parse_response(await answer, api_key, version)
        except DecodeError as error:
            connection.close(f"a bad answer to {api_key.name} v{version}: {error}")
            self.forget(error)
            raise DisconnectedError(f"{connection} gave a bad answer: {error}") from error
        except (DisconnectedError, RequestTimedOutError) as error:
            self.forget(error)
            raise
        assert isinstance(response, answer_type), "the registry gave another class"
        return response

    def check(self, code: int, what: str) -> None:
        """Raises the error of an answer; a coordinator that has moved is forgotten.

        Raises:
            ApiError: The answer is an error.
        """
        if code == ErrorCode.NONE:
            return
        error = api_error(code, None, f"group {self.group_id!r}: {what}")
        if error.code in _MOVED:
            self.forget(error)
        raise error

    # Offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity,
        deadline: Deadline,
    ) -> OffsetCommitOutcome:
        """Commits, tried once; the outcome has the error, if any."""
        return await (await self.send_commit(offsets, member, deadline))

    async def send_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity,
        deadline: Deadline,
    ) -> Awaitable[OffsetCommitOutcome]:
        """The same; returns an awaitable of the outcome as soon as the request is sent."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for tp, value in offsets.items():
            topics.setdefault(tp.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=value.offset,
                    committed_leader_epoch=-1 if value.leader_epoch is None else value.leader_epoch,
                    committed_metadata=value.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        try:
            answer = await self.send(
                ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, deadline, within=_BY_NAME
            )
        except ApiError as error:
            return _known(OffsetCommitOutcome(error=error, is_retriable=error.code.retriable))
        return self._read_commit(answer)

    async def _read_commit(self, answer: Awaitable[OffsetCommitResponse]) -> OffsetCommitOutcome:
        try:
            response = await answer
        except ApiError as error:
            return OffsetCommitOutcome(error=error, is_retriable=error.code.retriable)
        outcome = decide_outcome(
            (TopicPartition(topic.name, one.partition_index), one.error_code)
            for topic in response.topics
            for one in topic.partitions
        )
        if outcome.forgets_coordinator:
            self.forget(outcome.error)
        return outcome

    async def fetch_offsets(
        self,
        partitions: Iterable[TopicPartition] | None,
        deadline: Deadline,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets that the group has committed, of all its partitions if none is named.

        Args:
            require_stable: Whether an offset that an open transaction is about to move is
                UNSTABLE_OFFSET_COMMIT, instead of its old value.

        Raises:
            ApiError: It cannot be found, for now or for good.
        """
        # On another connection: a join may take minutes.
        connection = await self.connection(deadline, lane="")
        version = connection.version_for(ApiKey.OFFSET_FETCH, _BY_NAME)
        wanted = None if partitions is None else _by_topic(partitions)
        request = _offset_fetch_request(
            self.group_id, wanted, version, require_stable=require_stable
        )
        response = await self.ask(
            ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, deadline, lane="", within=_BY_NAME
        )
        group = response.groups[0] if response.groups else response
        self.check(group.error_code, "OFFSET_FETCH")
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for topic in group.topics:
            for one in topic.partitions:
                tp = TopicPartition(topic.name, one.partition_index)
                self.check(one.error_code, f"OFFSET_FETCH of {tp}")
                if one.committed_offset < 0:
                    found[tp] = None
                    continue
                epoch = one.committed_leader_epoch
                found[tp] = OffsetAndMetadata(
                    one.committed_offset, one.metadata or "", None if epoch < 0 else epoch
                )
        return found


async def _known(outcome: OffsetCommitOutcome) -> OffsetCommitOutcome:
    return outcome


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _offset_fetch_request(
    group_id: str, wanted: dict[str, list[int]] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    if version < _SEVERAL_GROUPS:
        return OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if wanted is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in wanted.items()
            ],
            require_stable=require_stable and version >= 7,
        )
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in wanted.items()
        ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)
