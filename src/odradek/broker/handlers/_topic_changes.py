"""Shared by the handlers of requests that change topics: limits, and the wait for a change.

The controller makes a change, and clients see it in the metadata of the broker they are connected
to. So a handler first has the controller decide and store, which takes a slot while it waits, then
parks the request until this broker's own metadata shows the change or the client's timeout passes.
A parked request takes no slot: one that waits for a dead broker does not block others.
"""

import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Final

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import ClusterImage

__all__ = [
    "MAX_NEW_PARTITIONS",
    "NOT_CONTROLLER_MESSAGE",
    "TIMED_OUT_MESSAGE",
    "find_excess",
    "find_repeated",
    "has_leaders",
    "is_gone",
]

NOT_CONTROLLER_MESSAGE: Final = "This broker is not the active controller."
# Partitions that one request may create, as in Kafka: more would block the controller for others.
MAX_NEW_PARTITIONS: Final = 10_000
TIMED_OUT_MESSAGE: Final = "The change is stored, but was not seen here before the time was up."


def find_excess(partition_counts: Iterable[int]) -> ApiError | None:
    """The error of a request that would create too many partitions; None if it would not."""
    total = sum(partition_counts)
    if total <= MAX_NEW_PARTITIONS:
        return None
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"the request would make {total} partitions, {MAX_NEW_PARTITIONS} at most are allowed;"
        " split it",
    )


def find_repeated(names: Iterable[str]) -> frozenset[str]:
    """The names that occur more than once."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def has_leaders(
    image: ClusterImage, topic: str, partition_count: int, topic_id: uuid.UUID | None
) -> bool:
    """Whether the first `partition_count` partitions of the topic all have a live leader."""
    found = image.topics.get(topic)
    if found is None or (topic_id is not None and found.id not in (None, topic_id)):
        return False
    for number in range(partition_count):
        state = found.partitions.get(number)
        if state is None or state.leader not in image.brokers:
            return False
    return True


def is_gone(image: ClusterImage, topic: str, topic_id: uuid.UUID | None) -> bool:
    """Whether the topic no longer exists; one of the same name with another id does not count."""
    found = image.topics.get(topic)
    return found is None or (topic_id is not None and found.id not in (None, topic_id))
