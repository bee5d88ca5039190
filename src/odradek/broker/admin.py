"""What the handlers of administrators' requests share: the controller's face, and waiting.

A change is made by the controller and seen by clients in the metadata of whichever broker they ask.
So a handler first has the controller decide and store, which takes a slot while it waits, then
parks the request until this broker's own metadata shows the change or the client's time is up.
A parked request takes no slot: administrators who wait for a dead broker stop nobody else.
"""

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from odradek.controller.results import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import ClusterImage
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.network.request import Request
from odradek.protocol.enums import ElectionType

__all__ = [
    "MAX_ALTERED",
    "MAX_NEW_PARTITIONS",
    "NOT_CONTROLLER_MESSAGE",
    "TIMED_OUT_MESSAGE",
    "ControllerApi",
    "find_excess",
    "find_repeated",
    "has_leaders",
    "is_gone",
    "refuse_excess",
    "write_in_portions",
]

NOT_CONTROLLER_MESSAGE: Final = "This broker is not the active controller."
# Partitions that one request may make, as Kafka has it: more would keep the controller from others.
MAX_NEW_PARTITIONS: Final = 10_000
# Resources or entities whose settings one request may change: what fits into a second of syncs.
MAX_ALTERED: Final = 1_000
# Of them in one transaction of the store: decided, rendered and applied within two milliseconds.
_ALTERED_PER_WRITE: Final = 20
TIMED_OUT_MESSAGE: Final = "The change is stored, but was not seen here before the time was up."


class ControllerApi(Protocol):
    """The controller of this broker, active or not, as administrators' requests need it.

    Every call raises `ApiError` with NOT_CONTROLLER if it is not active when its turn comes.
    """

    @property
    def is_active(self) -> bool:
        """Whether it is the cluster's controller now."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> Sequence[TopicResult]: ...

    async def delete_topics(self, topics: Sequence[str]) -> Sequence[DeletedTopic]: ...

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic's name is still taken by one that is about to be gone."""
        ...

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> Sequence[CreatePartitionsResult]: ...

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election_type: ElectionType
    ) -> Mapping[TopicPartition, ElectionOutcome]:
        """Elects; of all partitions, if None is given, only those in need are told about."""
        ...

    async def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Those of the partitions, or of all, whose replicas are being moved."""
        ...


def find_excess(partition_counts: Iterable[int]) -> ApiError | None:
    """Why nothing of a request is done: it would make too many partitions; None if it would not."""
    total = sum(partition_counts)
    if total <= MAX_NEW_PARTITIONS:
        return None
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"the request would make {total} partitions, {MAX_NEW_PARTITIONS} at most are allowed;"
        " split it",
    )


def refuse_excess(count: int) -> None:
    """Refuse a request that would change the settings of too many resources or entities.

    Raises:
        ApiError: POLICY_VIOLATION.
    """
    if count > MAX_ALTERED:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the request is about {count} resources or entities, {MAX_ALTERED} at most are"
            " allowed; split it",
        )


_C = TypeVar("_C")


async def write_in_portions(
    request: Request,
    changes: Sequence[_C],
    write: Callable[[Sequence[_C]], Awaitable[Sequence[ApiError | None]]],
) -> list[ApiError | None]:
    """Has changes written, many in one transaction, as long as the client is there.

    Returns:
        Of each change why it was not made, or None.
    """
    outcomes: list[ApiError | None] = []
    for start in range(0, len(changes), _ALTERED_PER_WRITE):
        if request.connection.is_closed:
            gone = ApiError(ErrorCode.NETWORK_EXCEPTION, "the client hung up before its turn came")
            return outcomes + [gone] * (len(changes) - start)
        outcomes += await write(changes[start : start + _ALTERED_PER_WRITE])
    return outcomes


def find_repeated(names: Iterable[str]) -> frozenset[str]:
    """The names that come more than once."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def has_leaders(
    image: ClusterImage, topic: str, partition_count: int, topic_id: uuid.UUID | None
) -> bool:
    """Whether the first `partition_count` partitions of the topic all have a leader that lives."""
    found = image.topics.get(topic)
    if found is None or (topic_id is not None and found.id not in (None, topic_id)):
        return False
    for number in range(partition_count):
        state = found.partitions.get(number)
        if state is None or state.leader not in image.brokers:
            return False
    return True


def is_gone(image: ClusterImage, topic: str, topic_id: uuid.UUID | None) -> bool:
    """Whether the topic is not there any more; one of its name with another id is another one."""
    found = image.topics.get(topic)
    return found is None or (topic_id is not None and found.id not in (None, topic_id))
