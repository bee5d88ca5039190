"""The coordinator of a group: its offsets, committed and fetched.

Every method here tries once; the caller decides whether to try again. Joins wait long at the
coordinator, so its requests have a connection of their own.
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final

from odradek.client.consumer.commits import OffsetAndMetadata, OffsetCommitOutcome, decide_outcome
from odradek.client.consumer.membership import MemberIdentity
from odradek.client.coordinators import CoordinatorLink
from odradek.client.retry import Deadline
from odradek.errors import (
    ApiError,
)
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import CoordinatorType
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
from odradek.protocol.versions import VersionRange

__all__ = ["GROUP_LANE", "Coordinator"]

GROUP_LANE: Final = "group"
# OffsetFetch: the first version that names several groups.
_SEVERAL_GROUPS: Final = 8
# OffsetCommit, OffsetFetch: later versions have the ids of topics, and a commit may be for a topic
# whose id this client does not know.
_BY_NAME: Final = VersionRange(0, 9)


class Coordinator(CoordinatorLink):
    """See the module's docstring."""

    _type = CoordinatorType.GROUP
    _lane = GROUP_LANE

    @property
    def group_id(self) -> str:
        return self.key

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
