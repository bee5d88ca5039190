"""Logs that other coordinators could not load, and groups that met in one turn."""

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.decisions import JoinReply, JoinRequest, SyncReply, SyncRequest
from odradek.coordinator.group.offsets import fetch_offset
from odradek.coordinator.group.records import (
    GroupValue,
    MemberValue,
    OffsetAndMetadata,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.errors import ErrorCode
from odradek.records.builder import build_batch
from tests.unit.coordinator.coordinator_fakes import Coordination

NOW = 1_580_000_000_000


def refuse_to_wait(seconds: float) -> None:
    """What a load does before it is tried again."""
    assert not seconds, "the load failed"


def write(made: Coordination, group_id: str, key: bytes, value: bytes | None) -> int:
    """Puts a record into the group's partition, as an earlier coordinator did."""
    partition = made.groups.partition_of(group_id)
    made.topic.store(partition, build_batch([(NOW, key, value, ())]))
    return partition


def committed(offset: int) -> bytes:
    return encode_offset_value(OffsetAndMetadata(offset, -1, "", NOW))


def test_a_compacted_tail_does_not_hold_up_a_load() -> None:
    """15:KAFKA-9065: the log ends behind its last batch, for tombstones there were cleaned away."""
    made = Coordination()
    partition = write(made, "g", encode_offset_key("g", "t", 0), committed(42))
    made.topic.ends[partition] += 7
    empty = (partition + 1) % made.partition_count
    made.topic.ends[empty] = 3  # Nothing is left at all.
    made.tasks.on_sleep = refuse_to_wait
    made.lead_all()
    check = made.loader.check_active
    assert (check(partition), check(empty)) == (ErrorCode.NONE, ErrorCode.NONE)
    offsets = made.registry.offsets.of("g")
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (42, -1, "", 0)


def test_half_a_batch_at_the_end_still_fails_the_load() -> None:
    made = Coordination()
    partition = write(made, "g", encode_offset_key("g", "t", 0), committed(42))
    made.topic.batches[partition][0] = made.topic.batches[partition][0][:-1]
    made.topic.lead(partition, 0)
    made.loader.lead(partition, 0)

    def resign(_seconds: float) -> None:
        made.loader.resign(partition, 1)

    made.tasks.on_sleep = resign
    made.tasks.run()
    assert "g" not in made.registry.groups


def test_a_registration_larger_than_the_load_buffer(caplog: pytest.LogCaptureFixture) -> None:
    """15:KAFKA-7286."""
    config = GroupCoordinatorConfig(load_buffer_bytes=1_000)
    made = Coordination(config)
    members = [
        MemberValue(f"m-{n}", None, "c", "/h", 60_000, 10_000, bytes(200), bytes(200))
        for n in range(2_000)
    ]
    value = GroupValue("consumer", 3, "range", "m-0", NOW, members)
    write(made, "big", encode_group_key("big"), encode_group_value(value))
    write(made, "big", encode_offset_key("big", "t", 0), committed(42))
    made.tasks.on_sleep = refuse_to_wait
    made.lead_all()
    group = made.registry.groups["big"]
    assert (len(group.members), group.generation_id) == (2_000, 3)
    offsets = made.registry.offsets.of("big")
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (42, -1, "", 0)
    assert "offsets.load.buffer.size" in caplog.text


def test_an_answer_of_one_group_may_work_on_another() -> None:
    """15:KAFKA-6042: groups that set each other in motion from within their answers all end."""
    made = Coordination(GroupCoordinatorConfig(initial_rebalance_delay_ms=0))
    made.lead_all()
    service = made.groups
    asked = {"one": 0, "two": 0}
    joined: dict[str, list[JoinReply]] = {"one": [], "two": []}
    synced: list[SyncReply] = []

    def join(group_id: str, other_id: str) -> None:
        def answer(reply: JoinReply) -> None:
            joined[group_id].append(reply)
            # Still within the answer the other group is given a member, and this one its leader's
            # assignment, which writes.
            if asked[other_id] < 3:
                join(other_id, group_id)
            request = SyncRequest(
                reply.generation_id, reply.member_id, None, None, None, {reply.member_id: b"x"}
            )
            service.sync(group_id, request, synced.append)

        asked[group_id] += 1
        protocols = (("range", b""),)
        request = JoinRequest(
            group_id, "", None, "c", "/h", 10_000, 30_000, "consumer", protocols, 3
        )
        service.join(request, answer)

    join("one", "two")
    made.advance(45_000)  # Nobody rejoins or sends heartbeats: rebalances and sessions time out.
    assert asked == {"one": 3, "two": 3}
    assert [len(replies) for replies in joined.values()] == [3, 3]
    assert len(synced) == 6
    assert ErrorCode.NONE in {reply.error for reply in synced}
