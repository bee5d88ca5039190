"""Members of groups as raw requests, against any broker that speaks the protocol.

A member has a connection of its own, so that a request of it may be parked while others go on:
`send_join`, then `joined`. Errors that say "not now" are waited out where a client would do so
before it begins: `wait_for_coordinator`.
"""

import itertools
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.schema import Message
from tests.conformance.clients.raw import RawConnection

__all__ = [
    "GroupMember",
    "commit",
    "committed",
    "create_topic",
    "describe",
    "form_group",
    "subscription",
    "wait_for_coordinator",
    "wait_until",
]

DEADLINE_S = 90
_BUSY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def wait_until(condition: Any, what: str) -> Any:
    """The first true answer of `condition`."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.02)


def create_topic(port: int, name: str, partitions: int = 2) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    with RawConnection(port) as connection:
        answer: Any = connection.call(
            ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        )
    assert [row.error_code for row in answer.topics] == [0]


def wait_for_coordinator(port: int, *group_ids: str) -> None:
    """Until the groups' coordinator answers for them."""

    def is_there() -> bool:
        with RawConnection(port) as connection:
            found: Any = connection.call(
                ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=group_ids)
            )
            if any(row.error_code for row in found.coordinators):
                return False
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in group_ids]
            fetched: Any = connection.call(
                ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups)
            )
            return not any(row.error_code in _BUSY for row in fetched.groups)

    wait_until(is_there, f"a coordinator for {group_ids}")


def commit(
    port: int,
    group_id: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    member_id: str = "",
    generation_id: int = -1,
    version: int = 8,
) -> dict[tuple[str, int], int]:
    """The errors of a commit, by partition."""
    with RawConnection(port) as connection:
        answer: Any = connection.call(
            ApiKey.OFFSET_COMMIT,
            version,
            commit_request(group_id, offsets, member_id=member_id, generation_id=generation_id),
        )
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


def commit_request(
    group_id: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    member_id: str = "",
    generation_id: int = -1,
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=n, partitions=rows) for n, rows in topics.items()],
    )


def committed(port: int, group_id: str) -> dict[tuple[str, int], int]:
    """All offsets of a group."""
    with RawConnection(port) as connection:
        answer: Any = connection.call(
            ApiKey.OFFSET_FETCH,
            8,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]),
        )
    [group] = answer.groups
    assert group.error_code == 0, ErrorCode(group.error_code)
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in group.topics
        for row in topic.partitions
    }


def describe(port: int, group_id: str) -> Any:
    """State and members of a group."""
    with RawConnection(port) as connection:
        answer: Any = connection.call(
            ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[group_id])
        )
    [group] = answer.groups
    return group


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    rows = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + rows + b"\xff\xff\xff\xff"


class GroupMember:
    """One member. Keyword arguments are those of JoinGroup that most tests leave alone."""

    def __init__(
        self,
        port: int,
        group_id: str,
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = 30_000,
        rebalance_timeout_ms: int = 60_000,
        protocol_type: str = "consumer",
        metadata: bytes | None = None,
        version: int = 9,
    ) -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.metadata = subscription("t") if metadata is None else metadata
        self.version = version
        self.assignment = b""
        self._connection = RawConnection(port)
        self._connection._socket.settimeout(DEADLINE_S)
        self._ids = itertools.count(1)
        self._sent: tuple[ApiKey, int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and says nothing to the group."""
        self._connection.__exit__(None, None, None)

    # Joining

    def send_join(self) -> None:
        """Sends JoinGroup; from version 4 on gets an id first, as a member without one must."""
        if self.version >= 4 and not self.member_id and self.instance_id is None:
            answer = self._call(ApiKey.JOIN_GROUP, self.version, self._join_request())
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(answer.error_code)
            self.member_id = answer.member_id
        self._send(ApiKey.JOIN_GROUP, self.version, self._join_request())

    def joined(self, expected: ErrorCode = ErrorCode.NONE) -> Any:
        """The answer to `send_join`."""
        answer = self._receive()
        assert answer.error_code == expected, ErrorCode(answer.error_code)
        if expected is ErrorCode.NONE:
            self.member_id = answer.member_id
            self.generation_id = answer.generation_id
        return answer

    def join(self) -> Any:
        self.send_join()
        return self.joined()

    def _join_request(self) -> Message:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
        )

    # Assignments

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 3) -> None:
        self._send(
            ApiKey.SYNC_GROUP,
            version,
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id if version >= 3 else None,
                assignments=[
                    SyncGroupRequestAssignment(member_id=name, assignment=data)
                    for name, data in (assignments or {}).items()
                ],
            ),
        )

    def synced(self, expected: ErrorCode = ErrorCode.NONE) -> bytes:
        """The answer to `send_sync`: the assignment."""
        answer = self._receive()
        assert answer.error_code == expected, ErrorCode(answer.error_code)
        if expected is ErrorCode.NONE:
            self.assignment = bytes(answer.assignment)
        return bytes(answer.assignment)

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> bytes:
        self.send_sync(assignments)
        return self.synced()

    # Being there

    def send_heartbeat(self, version: int = 3) -> None:
        self._send(
            ApiKey.HEARTBEAT,
            version,
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id if version >= 3 else None,
            ),
        )

    def heartbeat(self, version: int = 3) -> ErrorCode:
        self.send_heartbeat(version)
        return ErrorCode(self._receive().error_code)

    def commit(self, offsets: Mapping[tuple[str, int], int], version: int = 7) -> set[int]:
        """The errors of a commit as this member."""
        request = commit_request(
            self.group_id,
            offsets,
            member_id=self.member_id,
            generation_id=self.generation_id,
        )
        answer = self._call(ApiKey.OFFSET_COMMIT, version, request)
        return {row.error_code for topic in answer.topics for row in topic.partitions}

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        """Leaves, or has others leave; the error of each."""
        rows = members or ((self.member_id, self.instance_id),)
        answer = self._call(
            ApiKey.LEAVE_GROUP,
            4,
            LeaveGroupRequest(
                group_id=self.group_id,
                members=[
                    MemberIdentity(member_id=name, group_instance_id=instance)
                    for name, instance in rows
                ],
            ),
        )
        assert answer.error_code == 0
        return [row.error_code for row in answer.members]

    # Requests

    def _call(self, key: ApiKey, version: int, request: Message) -> Any:
        self._send(key, version, request)
        return self._receive()

    def _send(self, key: ApiKey, version: int, request: Message) -> None:
        assert self._sent is None, "one request at a time"
        correlation_id = next(self._ids)
        self._connection.send_request(key, version, correlation_id, request)
        self._sent = (key, version, correlation_id)

    def _receive(self) -> Any:
        assert self._sent is not None
        key, version, expected_id = self._sent
        correlation_id, answer = parse_response(self._connection.receive_frame(), key, version)
        assert correlation_id == expected_id
        self._sent = None
        return answer


def form_group(*members: GroupMember) -> GroupMember:
    """Has all of them in one Stable generation, each with its own name assigned; the leader.

    They join one after another: whoever is in is told so by a heartbeat, and joins again.
    """
    joined: list[GroupMember] = []
    for member in members:
        member.send_join()
        for other in joined:
            wait_until(
                lambda other=other: other.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS,
                "a member hears of the rebalance",
            )
            other.send_join()
        joined.append(member)
        answers = [one.joined() for one in joined]
        [leader] = [
            one for one, a in zip(joined, answers, strict=True) if a.leader == one.member_id
        ]
        others = [one for one in joined if one is not leader]
        for one in others:
            one.send_sync()
        leader.sync({one.member_id: assignment_for(one) for one in joined})
        for one in others:
            one.synced()
    assert all(one.assignment == assignment_for(one) for one in joined)
    return leader


def assignment_for(member: GroupMember) -> bytes:
    return b"of " + member.member_id.encode()
