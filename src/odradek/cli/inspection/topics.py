"""`odradek topics describe`: topics, their settings, and the state and size of their partitions."""

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cli.connecting import add_connection_arguments, add_json_argument, report_errors
from odradek.cli.output import (
    bad,
    counted,
    print_json,
    print_table,
    sized,
    strong,
    styled,
    warn,
)

if TYPE_CHECKING:
    from odradek.client import PartitionView, TopicView
    from odradek.client.admin import ConfigEntry
    from odradek.client.admin.admin import Admin
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

__all__ = ["add_describe", "id_text", "show_topics"]

_DESCRIPTION = """\
Shows the settings that are not at their default, and for each partition its replicas, its first
offset, the one that the next message will have, and the size of the leader's replica.
"""
_HEADINGS = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE")
_CONTENT_HEADINGS = ("EARLIEST", "LATEST", "SIZE")
# Offsets and sizes are left out if brokers do not tell them soon: the rest is still of use.
_CONTENT_TIMEOUT_S = 5.0


class _Content(NamedTuple):
    """What a partition holds; None is unknown."""

    earliest: int | None = None
    latest: int | None = None
    size: int | None = None


def add_describe(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="default: all topics")
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--under-replicated",
        action="store_true",
        help="only partitions with replicas that are not in sync",
    )
    only.add_argument("--unavailable", action="store_true", help="only partitions without a leader")
    only.add_argument(
        "--under-min-isr",
        action="store_true",
        help="only partitions with fewer replicas in sync than min.insync.replicas",
    )
    add_json_argument(parser)
    add_connection_arguments(parser)


async def show_topics(admin: "Admin", arguments: argparse.Namespace) -> int:
    """Prints the topics; returns 1 if one could not be described."""
    from odradek.client.admin import ConfigResource, ConfigResourceType
    from odradek.errors import ApiError

    if arguments.under_replicated or arguments.unavailable or arguments.under_min_isr:
        return await _show_some(admin, arguments)
    found = await admin.describe_topics(arguments.names or None)
    topics = [topic for topic in found.values() if not isinstance(topic, ApiError)]
    resources = {
        topic.name: ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics
    }
    configs = await admin.describe_configs(list(resources.values())) if topics else {}
    contents = await _contents(admin, topics)
    errors = [topic for topic in found.values() if isinstance(topic, ApiError)]
    described = []
    for topic in topics:
        entries = configs[resources[topic.name]]
        if isinstance(entries, ApiError):
            errors.append(entries)
        else:
            described.append((topic, entries))
    if arguments.json:
        print_json([_topic_json(topic, entries, contents) for topic, entries in described])
    else:
        for number, (topic, entries) in enumerate(described):
            if number:
                print()
            _print_topic(topic, entries, contents)
    return report_errors("topics describe", errors)


async def _show_some(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    found = await admin.describe_topics(arguments.names or None)
    topics = [topic for topic in found.values() if not isinstance(topic, ApiError)]
    errors = [topic for topic in found.values() if isinstance(topic, ApiError)]
    if arguments.under_replicated:
        adding = await _replicas_being_added(admin)
        rows = [
            (topic, one)
            for topic in topics
            for one in topic.partitions
            if set(one.replicas) - adding.get((topic.name, one.partition), set()) - set(one.isr)
        ]
    elif arguments.unavailable:
        rows = [(topic, one) for topic in topics for one in topic.partitions if one.leader < 0]
    else:
        least = await _min_isr(admin, topics, errors)
        rows = [
            (topic, one)
            for topic in topics
            for one in topic.partitions
            if topic.name in least and len(one.isr) < least[topic.name]
        ]
    if arguments.json:
        print_json([{"topic": topic.name, **_partition_json(one)} for topic, one in rows])
    else:
        print_table(
            ("TOPIC", *_HEADINGS),
            [(topic.name, *_partition_row(one)) for topic, one in rows],
            nothing="no such partitions",
        )
    return report_errors("topics describe", errors)


async def _replicas_being_added(admin: "Admin") -> dict[tuple[str, int], set[int]]:
    """Replicas that are not expected to be in sync yet; none if the caller may not see that."""
    from odradek.errors import ApiError, ErrorCode

    try:
        moving = await admin.list_partition_reassignments()
    except ApiError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}
    return {(tp.topic, tp.partition): set(move.adding) for tp, move in moving.items()}


async def _min_isr(
    admin: "Admin", topics: "list[TopicView]", errors: "list[ApiError]"
) -> dict[str, int]:
    """The setting `min.insync.replicas` of topics; adds the errors of those that have none."""
    from odradek.client.admin import ConfigResource, ConfigResourceType
    from odradek.errors import ApiError

    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    found = await admin.describe_configs(resources, names=["min.insync.replicas"]) if topics else {}
    least = {}
    for resource, entries in found.items():
        if isinstance(entries, ApiError):
            errors.append(entries)
        else:
            for entry in entries:
                least[resource.name] = int(entry.value or 1)
    return least


async def _contents(admin: "Admin", topics: "list[TopicView]") -> "dict[TopicPartition, _Content]":
    """Offsets and sizes of the partitions that have a leader, as far as brokers tell them."""
    from odradek.client import EARLIEST, LATEST
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

    leaders = {
        TopicPartition(topic.name, one.partition): one.leader
        for topic in topics
        for one in topic.partitions
        if one.leader >= 0
    }
    if not leaders:
        return {}
    ends: list[dict[TopicPartition, int]] = []
    for place in (EARLIEST, LATEST):
        asked = dict.fromkeys(leaders, place)
        told = await admin.list_offsets(asked, timeout=_CONTENT_TIMEOUT_S)
        ends.append({tp: one.offset for tp, one in told.items() if not isinstance(one, ApiError)})
    sizes = await _sizes(admin, leaders)
    return {tp: _Content(ends[0].get(tp), ends[1].get(tp), sizes.get(tp)) for tp in leaders}


async def _sizes(
    admin: "Admin", leaders: "dict[TopicPartition, int]"
) -> "dict[TopicPartition, int]":
    from odradek.errors import ApiError

    brokers = sorted(set(leaders.values()))
    told = await admin.describe_log_dirs(
        brokers, partitions=list(leaders), timeout=_CONTENT_TIMEOUT_S
    )
    return {
        tp: replica.size
        for broker, directories in told.items()
        if not isinstance(directories, ApiError)
        for directory in directories.values()
        if not isinstance(directory, ApiError)
        for tp, replica in directory.replicas.items()
        if leaders.get(tp) == broker and not replica.is_future
    }


def _settings(
    entries: "list[ConfigEntry]",
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The settings of the topic itself, and those that brokers set for all topics."""
    from odradek.client.admin import ConfigSource

    of_brokers = (
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
    )
    own = {one.name: one.value for one in entries if one.source is ConfigSource.DYNAMIC_TOPIC}
    inherited = {one.name: one.value for one in entries if one.source in of_brokers}
    return own, inherited


def _topic_json(
    topic: "TopicView",
    entries: "list[ConfigEntry]",
    contents: "dict[TopicPartition, _Content]",
) -> dict[str, object]:
    own, inherited = _settings(entries)
    return {
        "topic": topic.name,
        "topic_id": id_text(topic.topic_id),
        "internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "configs": own,
        "broker_configs": inherited,
        "partitions": [
            {**_partition_json(one), **_content(topic, one, contents)._asdict()}
            for one in topic.partitions
        ],
    }


def _content(
    topic: "TopicView", one: "PartitionView", contents: "dict[TopicPartition, _Content]"
) -> _Content:
    from odradek.model import TopicPartition

    return contents.get(TopicPartition(topic.name, one.partition), _Content())


def _partition_json(one: "PartitionView") -> dict[str, Any]:
    return {
        "partition": one.partition,
        "leader": one.leader,
        "leader_epoch": one.leader_epoch,
        "replicas": one.replicas,
        "isr": one.isr,
        "offline_replicas": one.offline_replicas,
    }


def _partition_row(one: "PartitionView") -> tuple[object, ...]:
    isr: object = ",".join(map(str, one.isr))
    offline: object = ",".join(map(str, one.offline_replicas))
    return (
        one.partition,
        one.leader if one.leader >= 0 else bad("none"),
        one.leader_epoch,
        ",".join(map(str, one.replicas)),
        isr if len(one.isr) == len(one.replicas) else warn(isr),
        bad(offline) if offline else "",
    )


def _print_topic(
    topic: "TopicView",
    entries: "list[ConfigEntry]",
    contents: "dict[TopicPartition, _Content]",
) -> None:
    own, inherited = _settings(entries)
    print(
        f"{styled(strong(topic.name))}: {counted(len(topic.partitions), 'partition')}, "
        f"{counted(topic.replication_factor, 'replica')}, id {id_text(topic.topic_id)}"
    )
    for key, value in own.items():
        print(f"{key}={value}")
    for key, value in inherited.items():
        print(f"{key}={value} (set for the brokers)")
    rows = []
    for one in topic.partitions:
        content = _content(topic, one, contents)
        ends = ("-" if offset is None else offset for offset in content[:2])
        rows.append((*_partition_row(one), *ends, sized(content.size)))
    print_table((*_HEADINGS, *_CONTENT_HEADINGS), rows)


def id_text(topic_id: bytes) -> str:
    """The id of a topic as Kafka writes it."""
    from uuid import UUID

    from odradek.model import uuid_text

    return uuid_text(UUID(bytes=topic_id))
