"""The group coordinator over a topic in memory: writes that fail, moves, ages."""

import logging
from typing import Any

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.decisions import JoinReply, JoinRequest, SyncReply, SyncRequest
from odradek.errors import ConfigError, ErrorCode
from odradek.metrics import render_prometheus
from odradek.protocol.hot.offset_commit import OffsetCommitView
from tests.unit.coordinator.coordinator_fakes import Coordination

NO_DELAY = GroupCoordinatorConfig(initial_rebalance_delay_ms=0)
DAY_MS = 86_400_000


def join(made: Coordination, member_id: str = "", **fields: Any) -> list[JoinReply]:
    """The answers to a JoinGroup, filled as they come."""
    answers: list[JoinReply] = []
    request = {
        "group_id": "g",
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")],
        "version": 3,
        **fields,
    }
    made.groups.join(JoinRequest(**request), answers.append)
    made.timer.advance_clock(0)
    return answers


def sync(
    made: Coordination, member_id: str, generation_id: int, assignment: bytes | None = b"a"
) -> list[SyncReply]:
    answers: list[SyncReply] = []
    assignments = {} if assignment is None else {member_id: assignment}
    request = SyncRequest(generation_id, member_id, None, None, None, assignments)
    made.groups.sync("g", request, answers.append)
    return answers


def commit(made: Coordination, topic: str, offset: int, group_id: str = "g") -> ErrorCode:
    view = OffsetCommitView(group_id, -1, "", None, -1, [(topic, [(0, offset, -1, None)])])
    outcome = made.groups.commit(view, 8, lambda _error, _rejected: None)
    assert outcome is not None
    return outcome[0]


def stable(made: Coordination, **fields: Any) -> str:
    """Makes the group Stable with one member; its id."""
    [joined] = join(made, **fields)
    assert joined.error is ErrorCode.NONE
    [synced] = sync(made, joined.member_id, joined.generation_id)
    assert synced == SyncReply(ErrorCode.NONE, "consumer", "range", b"a")
    return joined.member_id


def committed(made: Coordination, group_id: str = "g") -> dict[tuple[str, int], int]:
    return made.committed(group_id)


def test_another_coordinator_finds_what_this_one_wrote() -> None:
    """07 check 9: groups, generations, assignments and offsets are those of before."""
    made = Coordination(NO_DELAY)
    made.lead_all()
    member_id = stable(made)
    assert commit(made, "t", 5, "simple") is ErrorCode.NONE
    made.restart(NO_DELAY)
    made.lead_all(1)
    assert committed(made, "simple") == {("t", 0): 5}
    service = made.groups
    assert service.heartbeat("g", 1, member_id, None) is ErrorCode.NONE
    [synced] = sync(made, member_id, 1, None)
    assert synced.assignment == b"a"


def test_a_static_member_whose_return_is_not_written_keeps_its_old_id() -> None:
    """07:G-6."""
    made = Coordination(NO_DELAY)
    made.lead_all()
    old_id = stable(made, instance_id="i", version=5)
    made.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    [refused] = join(made, instance_id="i", version=5)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refused.member_id == ""
    made.topic.error = ErrorCode.NONE
    assert made.groups.heartbeat("g", 1, old_id, "i") is ErrorCode.NONE
    assert list(made.registry.groups["g"].members) == [old_id]


def test_a_partition_that_moves_tells_whoever_waits() -> None:
    """07 check 18: NOT_COORDINATOR; groups of other partitions go on."""
    made = Coordination(NO_DELAY)
    made.lead_all()
    stable(made)
    waiting = join(made)
    assert not waiting
    assert commit(made, "t", 5, "test") is ErrorCode.NONE
    partition = made.groups.partition_of("g")
    assert partition != made.groups.partition_of("test")
    made.loader.resign(partition, 1)
    assert [reply.error for reply in waiting] == [ErrorCode.NOT_COORDINATOR]
    assert "g" not in made.registry.groups
    assert committed(made, "test") == {("t", 0): 5}
    assert made.groups.heartbeat("g", 1, "m", None) is ErrorCode.NOT_COORDINATOR


def test_an_answer_that_fails_leaves_others_theirs() -> None:
    made = Coordination(NO_DELAY)
    made.lead_all()
    stable(made)
    joined: list[JoinReply] = []

    def fail(reply: JoinReply) -> None:
        joined.append(reply)
        raise RuntimeError("the connection is in a state that nobody thought of")

    protocols = [("range", b"")]
    for client, answer in (("broken", fail), ("whole", joined.append)):
        request = JoinRequest(
            "g", "", None, client, "/h", 10_000, 60_000, "consumer", protocols, version=3
        )
        made.groups.join(request, answer)
    made.loader.resign(made.groups.partition_of("g"), 1)
    assert [reply.error for reply in joined] == [ErrorCode.NOT_COORDINATOR] * 2


def test_requests_while_a_partition_is_loaded() -> None:
    """07 check 17: members are told to begin again, or that all is well."""
    made = Coordination(NO_DELAY)
    partition = made.groups.partition_of("g")
    made.topic.lead(partition, 0)
    made.loader.lead(partition, 0)
    assert [reply.error for reply in sync(made, "m", 1)] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert [r.error for r in join(made)] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert made.groups.heartbeat("g", 1, "m", None) is ErrorCode.NONE
    assert commit(made, "t", 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    made.tasks.run()
    assert commit(made, "t", 1) is ErrorCode.NONE


def test_a_member_that_is_silent_is_removed() -> None:
    """07 check 19."""
    made = Coordination(NO_DELAY)
    made.lead_all()
    member_id = stable(made)
    made.advance(9_900)
    assert made.groups.heartbeat("g", 1, member_id, None) is ErrorCode.NONE
    made.advance(9_900)
    assert member_id in made.registry.groups["g"].members
    made.advance(300)
    assert not made.registry.groups["g"].members


def test_offsets_that_are_old_go_and_the_group_with_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """07 check 20."""
    made = Coordination(GroupCoordinatorConfig(retention_minutes=1_440))
    made.lead_all()
    assert commit(made, "t", 5) is ErrorCode.NONE
    made.clock.advance(DAY_MS - 1)
    made.groups.expire()
    made.tasks.run()
    assert committed(made) == {("t", 0): 5}
    made.clock.advance(1)
    with caplog.at_level(logging.INFO):
        made.groups.expire()
        made.groups.expire()
        made.tasks.run()
    assert caplog.text.count("Removed 1 expired offsets in 0 milliseconds.") == 1
    assert "g" not in made.registry.groups
    made.restart(GroupCoordinatorConfig())
    made.lead_all(1)
    assert not made.registry.groups, "its end is in the log"


def test_offsets_of_a_deleted_topic_go_at_once() -> None:
    made = Coordination()
    made.lead_all()
    for topic in ("t", "u"):
        commit(made, topic, 5)
    made.groups.forget_topics(["u"])
    assert commit(made, "u", 1) is ErrorCode.NONE, "the topic was made again"
    made.tasks.run()
    assert committed(made)["t", 0] == 5


def test_offsets_of_a_topic_that_is_missing_go_in_the_second_round() -> None:
    """It was deleted while nobody coordinated the group; or is not known yet, which is no end."""
    made = Coordination()
    made.lead_all()
    for topic in ("t", "u"):
        commit(made, topic, 5)

    def run_round() -> None:
        made.groups.expire()
        made.tasks.run()

    made.topics.remove("u")
    run_round()
    assert ("u", 0) in committed(made)
    made.topics.add("u")
    run_round()
    made.topics.remove("u")
    run_round()
    assert ("u", 0) in committed(made), "it was there in the round before"
    run_round()
    assert committed(made) == {("t", 0): 5}


def test_commits_can_be_compressed() -> None:
    made = Coordination(GroupCoordinatorConfig(compression_codec=4))
    made.lead_all()
    answers: list[ErrorCode] = []
    view = OffsetCommitView("g", -1, "", None, -1, [("t", [(0, 5, -1, "x" * 1_000)])])
    outcome = made.groups.commit(view, 8, lambda error, _rejected: answers.append(error))
    assert outcome is None
    assert answers == [ErrorCode.NONE]
    made.restart(GroupCoordinatorConfig())
    made.lead_all(1)
    assert committed(made) == {("t", 0): 5}


def test_a_stopped_coordinator_serves_nobody() -> None:
    made = Coordination()
    made.lead_all()
    commit(made, "t", 5)
    made.groups.stop()
    assert commit(made, "t", 6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    error, offsets = made.groups.find_offsets("g")
    assert (error, offsets) == (ErrorCode.NOT_COORDINATOR, None)


def test_session_timeouts_must_leave_room() -> None:
    with pytest.raises(ConfigError, match=r"group\.min\.session\.timeout\.ms"):
        GroupCoordinatorConfig(min_session_timeout_ms=2, max_session_timeout_ms=1)


def test_the_lag_is_told_of_partitions_that_are_led_here() -> None:
    made = Coordination(NO_DELAY)
    made.lead_all()
    made.high_watermarks = {("t", 0): 9}
    assert commit(made, "t", 5) is ErrorCode.NONE
    assert commit(made, "u", 5) is ErrorCode.NONE
    assert commit(made, "t", 12, "ahead") is ErrorCode.NONE

    def lags() -> set[str]:
        lines = render_prometheus(made.metrics).splitlines()
        return {line for line in lines if line.startswith("kafka_consumergroup_lag{")}

    of_g = 'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 4'
    of_ahead = 'kafka_consumergroup_lag{consumergroup="ahead",topic="t",partition="0"} 0'
    assert lags() == {of_g, of_ahead}
    made.loader.resign(made.groups.partition_of("ahead"), 1)
    assert lags() == {of_g}
    made.high_watermarks.clear()
    assert lags() == set()


def told(made: Coordination, prefix: str) -> dict[str, float]:
    """What the metrics with a prefix say, by the rest of their names."""
    lines = [line.split() for line in render_prometheus(made.metrics).splitlines()]
    return {
        words[0].removeprefix(prefix): float(words[1])
        for words in lines
        if words[0].startswith(prefix)
    }


def test_groups_are_counted_by_their_states() -> None:
    made = Coordination(NO_DELAY)
    made.lead_all()
    of_state = dict.fromkeys(
        ["completingrebalance", "dead", "empty", "preparingrebalance", "stable"], 0
    )

    def counts() -> dict[str, float]:
        prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        return told(made, prefix)

    assert counts() == {"": 0} | of_state
    [joined] = join(made)
    assert counts() == {"": 1} | of_state | {"completingrebalance": 1}
    sync(made, joined.member_id, joined.generation_id)
    assert counts() == {"": 1} | of_state | {"stable": 1}
    waiting = join(made)
    assert counts() == {"": 1} | of_state | {"preparingrebalance": 1}
    made.advance(10_000)  # The first one is silent; the second one is alone.
    assert [reply.error for reply in waiting] == [ErrorCode.NONE]
    assert counts() == {"": 1} | of_state | {"completingrebalance": 1}
    made.advance(60_000)
    assert counts() == {"": 1} | of_state | {"empty": 1}
    made.groups.expire()
    made.tasks.run()
    assert counts() == {"": 0} | of_state, "who is dead is not kept"


def test_removals_and_loads_are_counted() -> None:
    config = GroupCoordinatorConfig(retention_minutes=1_440)
    made = Coordination(config, partition_count=1)
    made.lead_all()
    for topic in ("t", "u"):
        assert commit(made, topic, 5) is ErrorCode.NONE

    def counts() -> dict[str, float]:
        return told(made, "kafka_server_group_coordinator_metrics_")

    before = counts()
    assert before["offset_deletion_total"] == before["offset_expiration_total"] == 0
    deleted: list[ErrorCode] = []
    made.groups.delete_offsets("g", [("u", 0)], lambda error, _: deleted.append(error))
    assert deleted == [ErrorCode.NONE]
    assert counts() == before | {"offset_deletion_total": 1}

    made.restart(config)
    made.topic.on_read = lambda: made.clock.advance(7)
    made.topic.read_error = OSError("planted")

    def mend(_seconds: float) -> None:
        made.topic.read_error = None

    made.tasks.on_sleep = mend
    made.lead_all(1)
    now = counts()
    assert now["partition_load_failed_total"] == 1
    assert now["partition_load_time_count"] == 2, "the one that failed is not among them"
    assert now["partition_load_time_sum"] == 7

    made.clock.advance(DAY_MS)
    made.groups.expire()
    made.tasks.run()
    assert counts() == now | {"offset_expiration_total": 1}
