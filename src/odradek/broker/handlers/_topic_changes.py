"""Shared by the handlers of requests that change topics: limits, and the wait for a change.

The controller makes a change, and clients see it in the metadata of the broker they are connected
to. So a handler first has the controller decide and store, which takes a slot while it waits, then
parks the request until this broker's own metadata shows the change or the client's timeout passes.
A parked request takes no slot: one that waits for a dead broker does not block others.
"""

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from odradek.broker.slices import portions
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import ClusterImage
from odradek.network.request import Request

__all__ = [
    "MAX_NEW_PARTITIONS",
    "NOT_CONTROLLER_MESSAGE",
    "TIMED_OUT_MESSAGE",
    "change_in_portions",
    "find_excess",
    "find_repeated",
    "has_leaders",
    "is_gone",
]

NOT_CONTROLLER_MESSAGE: Final = "This broker is not the active controller."
# Partitions that one request may create, as in Kafka: more would block the controller for others.
MAX_NEW_PARTITIONS: Final = 10_000
# Topics or partitions that the controller decides on in one turn of the loop.
CHANGED_AT_ONCE: Final = 50
TIMED_OUT_MESSAGE: Final = "The change is stored, but was not seen here before the time was up."

_E = TypeVar("_E")
_R = TypeVar("_R")


async def change_in_portions(
    request: Request,
    elements: Iterable[_E],
    change: Callable[[list[_E]], Awaitable[Iterable[_R]]],
    refuse: Callable[[_E, ApiError], _R],
) -> list[_R]:
    """Asks the controller for changes, some at a time, as long as the client is connected.

    Each portion is one event of the controller: it decides on it in one turn of the loop.

    Args:
        request: The request of the client.
        elements: What is to be changed.
        change: The controller's part; returns the results.
        refuse: The result of an element that is not changed.
    """
    results: list[_R] = []
    for portion in portions(elements, CHANGED_AT_ONCE):
        try:
            if request.connection.is_closed:
                raise ApiError(
                    ErrorCode.NETWORK_EXCEPTION, "the client hung up before its turn came"
                )
            results += await change(portion)
        except ApiError as error:
            results += [refuse(element, error) for element in portion]
    return results


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
