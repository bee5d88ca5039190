"""What an administrator asks for beyond the everyday, whoever made the broker."""

import time
from collections.abc import Callable

import pytest

from odradek import Admin
from odradek.client.admin import (
    AclOperation,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    GroupDescription,
    LogDir,
    NewPartitions,
    NewTopic,
    TopicDescription,
)
from odradek.client.cluster import TopicView
from odradek.client.consumer import OffsetAndMetadata
from odradek.errors import ApiError, ErrorCode, UnsupportedVersionError
from odradek.model import TopicPartition
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
    topic = ConfigResource(ConfigResourceType.TOPIC, create_topic(bootstrap, 1))
    nowhere = ConfigResource(ConfigResourceType.TOPIC, "nowhere")
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


def check_topics_are_described_and_deleted_by_id(bootstrap: str) -> None:
    """09:CL-31: a topic that has taken the name of a deleted one is another topic."""
    name = create_topic(bootstrap, 2)
    nobody = b"\x01" * 16
    with Admin(bootstrap_servers=bootstrap) as admin:

        def described(topic_id: bytes) -> TopicView | ApiError:
            return admin.describe_topics_by_id([topic_id])[topic_id]

        def is_unknown(topic_id: bytes) -> bool:
            told = described(topic_id)
            return isinstance(told, ApiError) and told.code is ErrorCode.UNKNOWN_TOPIC_ID

        def by_name() -> TopicView | ApiError:
            return admin.describe_topics([name])[name]

        eventually(lambda: isinstance(by_name(), TopicView), "the topic is there")
        topic = by_name()
        assert isinstance(topic, TopicView)
        first = topic.topic_id
        assert described(first) == topic
        assert is_unknown(nobody)
        results = admin.delete_topics_by_id([first, nobody])
        assert results[first] is None
        refused = results[nobody]
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_ID
        eventually(lambda: is_unknown(first), "the topic is gone")
        created = admin.create_topics([NewTopic(name=name, partition_count=1)])[name]
        assert not isinstance(created, ApiError), created
        assert created.topic_id not in (first, bytes(16))
        eventually(lambda: isinstance(described(created.topic_id), TopicView), "another is there")
        again = admin.delete_topics_by_id([first])[first]
        assert again is not None
        assert again.code is ErrorCode.UNKNOWN_TOPIC_ID
        assert isinstance(described(created.topic_id), TopicView)


def check_topics_come_page_by_page(bootstrap: str) -> None:
    """09:CL-31: DescribeTopicPartitions."""
    prefix = new_name("paged")
    names = [create_topic(bootstrap, 3, f"{prefix}-{letter}") for letter in "ab"]
    wanted = [TopicPartition(name, number) for name in names for number in range(3)]
    with Admin(bootstrap_servers=bootstrap) as admin:

        def are_led() -> bool:
            told = admin.describe_topics(names).values()
            return all(
                isinstance(one, TopicView) and all(part.leader >= 0 for part in one.partitions)
                for one in told
            )

        eventually(are_led, "all have a leader")
        (node,) = admin.describe_cluster().nodes
        found: list[TopicPartition] = []
        start: TopicPartition | None = None
        sizes: list[int] = []
        while start is not None or not sizes:
            page = admin.describe_topic_partitions(names, start=start, limit=2)
            told = list(page.topics.values())
            parts = [
                (one.name, part)
                for one in told
                if isinstance(one, TopicDescription)
                for part in one.partitions
            ]
            sizes.append(len(parts))
            found += [TopicPartition(topic, part.partition) for topic, part in parts]
            assert all(part.leader == node.id for _, part in parts)
            assert all(part.replicas == part.isr == (node.id,) for _, part in parts)
            start = page.next
            assert len(sizes) <= len(wanted), page
        assert found == wanted
        assert sizes == [2, 2, 2]
        whole = admin.describe_topic_partitions()
        assert set(names) <= set(whole.topics)
        topic, nowhere = names[0], new_name("nowhere")
        mixed = admin.describe_topic_partitions([topic, nowhere])
        described = mixed.topics[topic]
        assert isinstance(described, TopicDescription)
        assert described.authorized_operations is not None
        assert AclOperation.DESCRIBE in described.authorized_operations
        missing = mixed.topics[nowhere]
        assert isinstance(missing, ApiError)
        assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert admin.describe_topic_partitions([]).topics == {}


def check_settings_tell_where_they_come_from_and_what_they_are_for(bootstrap: str) -> None:
    """09:CL-31: names, synonyms, types and documentation of settings."""
    topic = ConfigResource(ConfigResourceType.TOPIC, create_topic(bootstrap, 1))
    names = ["retention.ms", "cleanup.policy"]
    with Admin(bootstrap_servers=bootstrap) as admin:

        def settings(**options: bool) -> dict[str, ConfigEntry]:
            told = admin.describe_configs([topic], names=names, **options)[topic]
            return {} if isinstance(told, ApiError) else {entry.name: entry for entry in told}

        change = [ConfigOperation.set("retention.ms", "1234567")]
        assert admin.incremental_alter_configs({topic: change}) == {topic: None}
        eventually(lambda: settings().get("retention.ms", (None,) * 2)[1] == "1234567", "it is set")
        bare = settings()
        assert sorted(bare) == sorted(names)
        assert all(not entry.synonyms and not entry.documentation for entry in bare.values())
        full = settings(include_synonyms=True, include_documentation=True)
        retention = full["retention.ms"]
        assert retention.type is ConfigType.LONG
        assert retention.source is ConfigSource.DYNAMIC_TOPIC
        own = ("retention.ms", "1234567", ConfigSource.DYNAMIC_TOPIC)
        assert retention.synonyms[0] == own
        policy = full["cleanup.policy"]
        assert policy.type is ConfigType.LIST
        assert policy.synonyms == (("log.cleanup.policy", "delete", ConfigSource.DEFAULT),)
        assert all(entry.documentation for entry in full.values())


def check_what_may_be_done_is_told_to_those_who_ask(bootstrap: str) -> None:
    """09:CL-31: authorised operations of the cluster and of groups (KIP-430)."""
    topic, group = create_topic(bootstrap, 2), new_name("g")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert admin.describe_cluster().authorized_operations is None
        allowed = admin.describe_cluster(include_authorized_operations=True).authorized_operations
        assert allowed is not None
        assert {AclOperation.ALTER, AclOperation.CREATE, AclOperation.DESCRIBE} <= allowed
        offsets = {first: OffsetAndMetadata(3), second: OffsetAndMetadata(4)}
        admin.alter_group_offsets(group, offsets)
        bare = admin.describe_groups([group])[group]
        told = admin.describe_groups([group], include_authorized_operations=True)[group]
        assert isinstance(bare, GroupDescription)
        assert isinstance(told, GroupDescription)
        assert bare.authorized_operations is None
        assert told.authorized_operations is not None
        assert {AclOperation.READ, AclOperation.DELETE} <= told.authorized_operations
        some = admin.list_group_offsets({group: [second], "nobody": None})
        committed = some[group]
        assert not isinstance(committed, ApiError)
        assert {tp: one.offset for tp, one in committed.items()} == {second: 4}
        stable = admin.list_group_offsets([group], require_stable=True)[group]
        assert not isinstance(stable, ApiError)
        assert set(stable) == {first, second}


def check_resources_with_settings_are_listed(bootstrap: str) -> None:
    """09:CL-31: ListConfigResources; brokers before 4.1 can tell of client metrics alone."""
    topic = create_topic(bootstrap, 1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        (broker,) = admin.describe_api_versions()
        tells_all = any(
            row.name == "LIST_CONFIG_RESOURCES" and row.versions.last >= 1 for row in broker.apis
        )
        assert admin.list_config_resources([ConfigResourceType.CLIENT_METRICS]) == []
        if not tells_all:
            with pytest.raises(UnsupportedVersionError):
                admin.list_config_resources()
            return
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        eventually(lambda: wanted in admin.list_config_resources(), "the topic is listed")
        topics = admin.list_config_resources([ConfigResourceType.TOPIC])
        assert wanted in topics
        assert {one.type for one in topics} == {ConfigResourceType.TOPIC}


def check_directories_tell_of_single_partitions(bootstrap: str) -> None:
    """09:CL-31."""
    topic = create_topic(bootstrap, 3)
    wanted = TopicPartition(topic, 1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        (node,) = admin.describe_cluster().nodes

        def replicas() -> list[TopicPartition]:
            dirs = admin.describe_log_dirs([node.id], partitions=[wanted])[node.id]
            assert not isinstance(dirs, ApiError)
            return [tp for one in dirs.values() if isinstance(one, LogDir) for tp in one.replicas]

        eventually(lambda: replicas() == [wanted], "one replica is told of")


ADMIN_CHECKS: tuple[Check, ...] = (
    check_settings_are_replaced_as_a_whole,
    check_replicas_are_where_they_were_wanted,
    check_static_members_that_went_away_are_removed,
    check_topics_are_described_and_deleted_by_id,
    check_topics_come_page_by_page,
    check_settings_tell_where_they_come_from_and_what_they_are_for,
    check_what_may_be_done_is_told_to_those_who_ask,
    check_resources_with_settings_are_listed,
    check_directories_tell_of_single_partitions,
)
