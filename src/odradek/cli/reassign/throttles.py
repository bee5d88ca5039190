"""Sets and removes the throttles of reassignments, for `odradek reassign`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import ConfigOperation, ConfigResource
    from odradek.client.admin.admin import Admin

__all__ = ["limit_directory_moves", "limit_moves", "remove_throttles"]


async def limit_moves(
    admin: "Admin",
    targets: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Limits the copying between brokers, before it begins.

    Raises:
        ApiError: A broker refused a setting.
    """
    from odradek.client.admin.reassignment_throttles import moves_of, throttles

    running = await admin.list_partition_reassignments()
    await _change(admin, throttles(moves_of(targets, current, running), bytes_per_second))


async def limit_directory_moves(
    admin: "Admin", brokers: Iterable[int], bytes_per_second: int
) -> None:
    """Limits the copying between the directories of brokers.

    Raises:
        ApiError: A broker refused the setting.
    """
    from odradek.client.admin.reassignment_throttles import directory_throttles

    await _change(admin, directory_throttles(brokers, bytes_per_second))


async def remove_throttles(admin: "Admin", topics: Iterable[str]) -> list[str]:
    """Removes the throttles of topics and of all brokers, if no replica moves between brokers.

    Returns the topics and brokers that had some.

    Raises:
        ApiError: A broker refused.
    """
    from odradek.client.admin import ConfigResource, ConfigResourceType
    from odradek.client.admin.reassignment_throttles import (
        BROKER_THROTTLES,
        TOPIC_THROTTLES,
        removals,
    )
    from odradek.errors import ApiError

    if await admin.list_partition_reassignments():
        return []
    brokers = [str(node.id) for node in (await admin.describe_cluster()).nodes]
    told = {
        **await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in sorted(set(topics))],
            names=TOPIC_THROTTLES,
        ),
        **await admin.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, broker) for broker in brokers],
            names=BROKER_THROTTLES,
        ),
    }
    # A topic that is gone has no settings.
    found = {one: entries for one, entries in told.items() if not isinstance(entries, ApiError)}
    changes = removals(found)
    await _change(admin, changes)
    return [str(resource) for resource in changes]


async def _change(
    admin: "Admin", changes: "Mapping[ConfigResource, Sequence[ConfigOperation]]"
) -> None:
    for error in (await admin.incremental_alter_configs(changes)).values():
        if error is not None:
            raise error
