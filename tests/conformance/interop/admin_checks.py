"""What an administrator asks for beyond the everyday, whoever made the broker."""

import time
from collections.abc import Callable

from odradek import Admin
from odradek.client.admin import (
    ConfigResource,
    ConfigSource,
    GroupDescription,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from odradek.client.cluster import TopicView
from odradek.errors import ApiError, ErrorCode
from tests.conformance.interop.suite import Check
from tests.support.group_readers import (
    DEADLINE_S,
    OurReader,
    create_topic,
    new_name,
    poll_until,
)

__all__ = ["ADMIN_CHECKS"]


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


def check_settings_are_replaced_as_a_whole(bootstrap: str) -> None:
    """09:CL-31: AlterConfigs, the old one."""
    topic = ConfigResource(ResourceType.TOPIC, create_topic(bootstrap, 1))
    nowhere = ConfigResource(ResourceType.TOPIC, "nowhere")
    with Admin(bootstrap_servers=bootstrap) as admin:

        def own_settings() -> dict[str, str | None]:
            entries = admin.describe_configs([topic])[topic]
            if isinstance(entries, ApiError):
                return {}
            return {
                entry.name: entry.value
                for entry in entries
                if entry.source is ConfigSource.DYNAMIC_TOPIC
            }

        first = {"retention.ms": "1234567", "max.message.bytes": "65536"}
        results = admin.alter_configs({topic: first, nowhere: first})
        assert results[topic] is None
        refused = results[nowhere]
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        eventually(lambda: own_settings() == first, "both are set")
        second: dict[str, str | None] = {"retention.ms": "7654321"}
        assert admin.alter_configs({topic: second}, validate_only=True) == {topic: None}
        assert own_settings() == first
        assert admin.alter_configs({topic: second}) == {topic: None}
        eventually(lambda: own_settings() == second, "the other is its default again")


def check_replicas_are_where_they_were_wanted(bootstrap: str) -> None:
    """09:CL-31."""
    name, other = new_name("t"), new_name("t")
    with Admin(bootstrap_servers=bootstrap) as admin:
        (node,) = admin.describe_cluster().nodes
        wanted = NewTopic(name=name, assignments={0: [node.id], 1: [node.id]})
        nobody = NewTopic(name=other, assignments={0: [node.id + 1000]})
        results = admin.create_topics([wanted, nobody])
        assert not isinstance(results[name], ApiError), results[name]
        assert isinstance(error := results[other], ApiError)
        assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

        def replicas() -> list[list[int]]:
            told = admin.describe_topics([name])[name]
            parts = told.partitions if isinstance(told, TopicView) else ()
            return [list(one.replicas) for one in parts]

        eventually(lambda: replicas() == [[node.id]] * 2, "two partitions")
        more = {name: NewPartitions(3, [[node.id]])}
        assert admin.create_partitions(more, validate_only=True) == {name: 3}
        assert len(replicas()) == 2
        assert admin.create_partitions(more) == {name: 3}
        eventually(lambda: replicas() == [[node.id]] * 3, "three partitions")


def check_static_members_that_went_away_are_removed(bootstrap: str) -> None:
    """09:CL-31."""
    topic, group = create_topic(bootstrap, 2), new_name("g")
    # Nobody's session may end by itself, however slow this goes.
    patience = {"session_timeout_ms": 600_000}
    with OurReader(bootstrap, group, topic, group_instance_id="i-1", **patience) as reader:
        poll_until([reader], lambda: len(reader.partitions) == 2, "it has all")
    with Admin(bootstrap_servers=bootstrap) as admin:

        def members() -> list[str | None]:
            told = admin.describe_groups([group])[group]
            assert isinstance(told, GroupDescription)
            return [one.group_instance_id for one in told.members]

        assert members() == ["i-1"]
        results = admin.remove_group_members(group, ["i-1", "nobody"])
        assert results["i-1"] is None
        unknown = results["nobody"]
        assert unknown is not None
        assert unknown.code is ErrorCode.UNKNOWN_MEMBER_ID
        eventually(lambda: not members(), "nobody is left")
        assert admin.remove_group_members(group) == {}


ADMIN_CHECKS: tuple[Check, ...] = (
    check_settings_are_replaced_as_a_whole,
    check_replicas_are_where_they_were_wanted,
    check_static_members_that_went_away_are_removed,
)
