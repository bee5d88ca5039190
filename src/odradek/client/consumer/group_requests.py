"""The requests of a group's member to its coordinator: join, sync, heartbeat and leave."""

import logging
from collections.abc import Mapping
from typing import Final

from odradek.client.client import Client
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.membership import Membership
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

__all__ = ["GroupRequests"]

logger = logging.getLogger(__name__)

_PROTOCOL_TYPE: Final = "consumer"
# A join is answered when all members have joined, within the time they are given for it; the
# coordinator may need a moment more.
_JOIN_GRACE_MS: Final = 5_000
# LeaveGroup: the first version with a list of members.
_SEVERAL_MEMBERS: Final = 3


class GroupRequests:
    """Sends requests as the member that `membership` describes at that moment."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        coordinator: Coordinator,
        membership: Membership,
    ) -> None:
        self._client = client
        self._config = config
        self._coordinator = coordinator
        self._membership = membership

    async def join(self, subscriptions: Mapping[str, bytes]) -> JoinGroupResponse:
        """Joins; remembers the member id that the coordinator wants the next attempt to have.

        Args:
            subscriptions: Encoded, by the name of the strategy.

        Raises:
            ApiError: The coordinator refused, or gave no answer in time.
        """
        membership = self._membership
        request = JoinGroupRequest(
            group_id=self._coordinator.group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in subscriptions.items()
            ],
        )
        answer = await self._coordinator.ask(
            ApiKey.JOIN_GROUP,
            request,
            JoinGroupResponse,
            self._client.deadline(),
            timeout_ms=self._rebalance_timeout_ms(),
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            membership.member_id = answer.member_id
        self._coordinator.check(answer.error_code, "JOIN_GROUP")
        return answer

    async def sync(self, strategy: str, assignments: Mapping[str, bytes]) -> SyncGroupResponse:
        """Asks for the assignment of this member.

        Args:
            strategy: The name of the one that the group chose.
            assignments: Of all members, if this one leads the group; else empty.

        Raises:
            ApiError: The coordinator refused, or gave no answer in time.
        """
        membership = self._membership
        request = SyncGroupRequest(
            group_id=self._coordinator.group_id,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=strategy,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        answer = await self._coordinator.ask(
            ApiKey.SYNC_GROUP,
            request,
            SyncGroupResponse,
            self._client.deadline(),
            timeout_ms=self._rebalance_timeout_ms(),
        )
        self._coordinator.check(answer.error_code, "SYNC_GROUP")
        return answer

    def _rebalance_timeout_ms(self) -> int:
        return max(
            self._config.max_poll_interval_ms + _JOIN_GRACE_MS,
            self._client.options.request_timeout_ms,
        )

    async def heartbeat(self) -> HeartbeatResponse:
        """Sends a heartbeat; the answer may carry an error.

        Raises:
            ApiError: The coordinator gave no answer in time.
        """
        membership = self._membership
        return await self._coordinator.ask(
            ApiKey.HEARTBEAT,
            HeartbeatRequest(
                group_id=self._coordinator.group_id,
                generation_id=membership.generation,
                member_id=membership.member_id,
                group_instance_id=membership.instance_id,
            ),
            HeartbeatResponse,
            # An answer after the end of the session is of no use.
            self._client.deadline(self._config.session_timeout_ms),
        )

    async def leave(self, member_id: str, reason: str, deadline: Deadline) -> None:
        """Leaves; a failure is logged, since the coordinator removes a silent member by itself."""
        try:
            connection = await self._coordinator.connection(deadline)
            group_id = self._coordinator.group_id
            if connection.version_for(ApiKey.LEAVE_GROUP) < _SEVERAL_MEMBERS:
                request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
            else:
                member = MemberIdentity(member_id=member_id, reason=reason)
                request = LeaveGroupRequest(group_id=group_id, members=(member,))
            answer = await self._coordinator.ask(
                ApiKey.LEAVE_GROUP, request, LeaveGroupResponse, deadline
            )
            codes = [answer.error_code, *(member.error_code for member in answer.members)]
            for code in codes:
                if code != ErrorCode.NONE:
                    raise api_error(code, None, "LEAVE_GROUP")
        except ApiError as error:
            logger.info("Group %s: leaving: %s", self._coordinator.group_id, error)
