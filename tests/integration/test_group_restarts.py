"""Groups over crashes, stops and damage: what was acknowledged stays, and nobody is misled."""

import os
import re
import signal
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinator.group.records import encode_offset_key
from odradek.coordinator.partitioning import partition_for
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.records.builder import build_batch
from tests.conformance.clients.raw import RawConnection
from tests.support.group_members import (
    GroupMember,
    commit,
    commit_request,
    committed,
    create_topic,
    describe,
    form_group,
    wait_for_coordinator,
    wait_until,
)
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.stopped_logs import append_while_stopped

pytestmark = pytest.mark.slow

_PARTITIONS = 4
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(_PARTITIONS),
}
_LONG_SESSION_MS = 1_800_000
_GROUPS = ("a", "b", "c")
_COMMITS_BEFORE_THE_CRASH = 200


class Committer(threading.Thread):
    """Commits higher and higher offsets of some groups until its broker is gone."""

    def __init__(self, port: int, first: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged = dict.fromkeys(_GROUPS, first)
        self.sent = dict.fromkeys(_GROUPS, first)
        self.count = 0
        self.failure: BaseException | None = None
        self._port = port

    def run(self) -> None:
        try:
            with RawConnection(self._port) as connection:
                while True:
                    for group_id in _GROUPS:
                        self._commit(connection, group_id)
        except (OSError, AssertionError) as error:  # The connection broke: the crash.
            self.failure = error

    def _commit(self, connection: RawConnection, group_id: str) -> None:
        offset = self.sent[group_id] + 1
        self.sent[group_id] = offset
        answer: Any = connection.call(
            ApiKey.OFFSET_COMMIT, 8, commit_request(group_id, {("t", 0): offset})
        )
        if answer.topics[0].partitions[0].error_code == 0:
            self.acknowledged[group_id] = offset
            self.count += 1


def test_a_crash_amid_commits_and_a_rebalance(tmp_path: Path) -> None:
    """No committed offset goes back, and groups resume where they were; 07 check 9."""
    generation_id = 0
    offset = 0
    with running_odradek(tmp_path, _SETTINGS) as broker:
        create_topic(broker.port, "t")
        wait_for_coordinator(broker.port, *_GROUPS, "members")
        with GroupMember(
            broker.port, "members", instance_id="m", session_timeout_ms=_LONG_SESSION_MS
        ) as member:
            form_group(member)
            assert member.commit({("t", 1): 42}) == {0}
            generation_id = member.generation_id
        committer = crash_amid_commits(broker, offset, with_rebalance=True)
    for _ in range(2):
        with running_odradek(tmp_path, _SETTINGS) as broker:
            wait_for_coordinator(broker.port, *_GROUPS, "members")
            for group_id in _GROUPS:
                found = committed(broker.port, group_id)["t", 0]
                assert committer.acknowledged[group_id] <= found <= committer.sent[group_id]
            assert committed(broker.port, "members") == {("t", 1): 42}
            with GroupMember(broker.port, "members", instance_id="m") as back:
                back.member_id, back.generation_id = member.member_id, generation_id
                assert back.heartbeat() is ErrorCode.NONE
                assert back.sync() == member.assignment
            offset = max(committer.sent.values())
            committer = crash_amid_commits(broker, offset, with_rebalance=False)


def crash_amid_commits(broker: OdradekBroker, first: int, *, with_rebalance: bool) -> Committer:
    """Kills the broker while commits are under way, and perhaps a member waits to join."""
    committer = Committer(broker.port, first)
    committer.start()
    try:
        if with_rebalance:
            joining = GroupMember(broker.port, "members")
            joining.send_join()  # Waits for the member that went away: the rebalance never ends.
            wait_until(
                lambda: describe(broker.port, "members").group_state == "PreparingRebalance",
                "a rebalance",
            )
        wait_until(
            lambda: committer.count >= _COMMITS_BEFORE_THE_CRASH or committer.failure, "commits"
        )
        assert committer.failure is None, "it ended before the crash"
    finally:
        broker.kill()
        committer.join(60)
    if with_rebalance:
        joining.close()
    assert not committer.is_alive()
    return committer


def test_a_stopped_process_expires_nobody_who_is_there(tmp_path: Path) -> None:
    """07:G-16: heartbeats lie unread meanwhile; who is really gone expires later."""
    session_timeout_ms, stop_s = 6_000, 9
    with running_odradek(tmp_path, _SETTINGS) as broker:
        create_topic(broker.port, "t")
        wait_for_coordinator(broker.port, "g")
        there = GroupMember(broker.port, "g", session_timeout_ms=session_timeout_ms)
        gone = GroupMember(broker.port, "g", session_timeout_ms=session_timeout_ms)
        with there, gone:
            form_group(there, gone)
            assert there.heartbeat() is ErrorCode.NONE
            assert gone.heartbeat() is ErrorCode.NONE
            os.kill(broker._process.pid, signal.SIGSTOP)
            try:
                there.send_heartbeat()
                time.sleep(stop_s)
            finally:
                os.kill(broker._process.pid, signal.SIGCONT)
            assert ErrorCode(there._receive().error_code) is ErrorCode.NONE
            # It goes on; the other one is heard no more, and leaves it alone in the end.
            wait_until(
                lambda: there.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS,
                "the end of the other one's session",
            )
            assert [row.member_id for row in there.join().members] == [there.member_id]


def offsets_partition(number: int) -> TopicPartition:
    return TopicPartition("__consumer_offsets", number)


def fetch_errors(port: int, *group_ids: str) -> dict[str, int]:
    """The error of each group of an OffsetFetch for several."""
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in group_ids]
    with RawConnection(port) as connection:
        answer: Any = connection.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
    return {row.group_id: row.error_code for row in answer.groups}


def name_in(partition: int, prefix: str) -> str:
    """A group that lives in the partition."""
    numbers = iter(range(1_000))
    return next(
        name
        for name in (f"{prefix}-{number}" for number in numbers)
        if partition_for(name, _PARTITIONS) == partition
    )


def test_records_that_cannot_be_read_keep_nobody_from_being_served(tmp_path: Path) -> None:
    """07:G-11: keys of unknown versions, unknown values and one byte are skipped and told of."""
    names = [name_in(partition, "g") for partition in range(_PARTITIONS)]
    with running_odradek(tmp_path, _SETTINGS) as broker:
        create_topic(broker.port, "t")
        wait_for_coordinator(broker.port, *names)
        for name in names:
            assert commit(broker.port, name, {("t", 0): 5}) == {("t", 0): 0}
    unknown_keys = [(0, struct.pack(">h", version) + b"x", b"y", ()) for version in range(3, 16)]
    append_while_stopped(broker.log_dir, offsets_partition(1), bytes(build_batch(unknown_keys)))
    unknown_value = struct.pack(">h", 9) + bytes(40)
    key = encode_offset_key(names[2], "t", 0)
    append_while_stopped(
        broker.log_dir, offsets_partition(2), bytes(build_batch([(0, key, unknown_value, ())]))
    )
    append_while_stopped(
        broker.log_dir, offsets_partition(3), bytes(build_batch([(0, b"x", b"x", ())]))
    )
    with running_odradek(tmp_path, _SETTINGS) as broker:
        wait_for_coordinator(broker.port, *names)
        for name in names:
            assert committed(broker.port, name) == {("t", 0): 5}
        assert commit(broker.port, names[3], {("t", 0): 6}) == {("t", 0): 0}
        log = broker.log()
    assert re.search(r"offsets-2: the record at offset \d+ cannot be read .*version 9", log)
    assert re.search(r"offsets-3: the record at offset \d+ cannot be read .*key of 1 bytes", log)
    assert all(f"keys of version {version}" in log for version in range(3, 16))


def test_groups_of_a_partition_that_loads_do_not_spoil_others(tmp_path: Path) -> None:
    """07:G-12: OffsetFetch for three groups, one of them in a partition that is being loaded."""
    slow, quick, quicker = (name_in(partition, "g") for partition in range(3))
    with running_odradek(tmp_path, _SETTINGS) as broker:
        create_topic(broker.port, "t")
        wait_for_coordinator(broker.port, slow, quick, quicker)
        for name in (slow, quick, quicker):
            assert commit(broker.port, name, {("t", 0): 5}) == {("t", 0): 0}
    # Records that take their time to be read: 10,000 in each of 20 batches.
    key = encode_offset_key(slow, "t", 1)
    value = struct.pack(">hqihq", 3, 1, -1, 0, 0)
    batch = bytes(build_batch([(0, key, value, ())] * 10_000))
    append_while_stopped(broker.log_dir, offsets_partition(0), *[batch] * 20)
    loading = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    wanted = {slow: loading, quick: 0, quicker: 0}
    for _ in range(5):  # A busy machine may let the load end before anybody can ask.
        with running_odradek(tmp_path, _SETTINGS) as broker:
            seen = fetch_errors_until_loaded(broker.port, slow, quick, quicker)
            assert all(set(errors.values()) <= {0, loading} for errors in seen)
            assert committed(broker.port, slow) == {("t", 0): 5, ("t", 1): 1}
        if wanted in seen:
            break
    assert wanted in seen


def fetch_errors_until_loaded(port: int, *group_ids: str) -> list[dict[str, int]]:
    """What OffsetFetch says of the groups until it has no errors any more."""
    seen: list[dict[str, int]] = []

    def is_loaded() -> bool:
        seen.append(fetch_errors(port, *group_ids))
        return not any(seen[-1].values())

    wait_until(is_loaded, "the end of the load")
    return seen
