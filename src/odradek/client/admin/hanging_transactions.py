"""Transactions that no coordinator will ever end, and that hold readers of committed data up.

Kafka's rule. A transaction hangs in a partition if its producer has it open there, the producer's
last batch is older than any transaction may become, and one of these holds:

1. no transactional id has the producer's id;
2. no coordinator knows the transactional id any more;
3. the coordinator does not count the partition to the id's current transaction.

The partition is then looked at once more: the coordinator may have ended it between the two looks.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.client.admin.producers import describe_producers
from odradek.client.admin.transactions import (
    OpenTransaction,
    describe_transactions,
    list_transactions,
)
from odradek.client.client import Client
from odradek.client.cluster import TopicView
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition

__all__ = ["DEFAULT_MAX_TIMEOUT_MS", "find_hanging_transactions"]

# The default of transaction.max.timeout.ms.
DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
# Partitions, and producer ids, that one request names.
_BATCH: Final = 500


async def find_hanging_transactions(
    client: Client,
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[TopicPartition] = (),
    broker: int | None = None,
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
    deadline: Deadline,
) -> list[OpenTransaction]:
    """The hanging transactions of partitions, in their order.

    Args:
        topics: All partitions of these, besides the named ones; of all topics if neither is named.
        broker: Only partitions with a replica there, as that replica knows them.
        max_timeout_ms: The largest ``transaction.max.timeout.ms`` of the cluster.

    Raises:
        ApiError: A broker refuses or does not answer.
        ValueError: The timeout is negative.
    """
    if max_timeout_ms < 0:
        raise ValueError(f"max_timeout_ms={max_timeout_ms}: expected at least 0")
    wanted = await _partitions(client, topics, list(partitions), broker, deadline)
    before_ms = client.clock.now_ms() - max_timeout_ms
    candidates = [
        one
        for one in await _open_transactions(client, wanted, broker, deadline)
        if one.last_timestamp_ms < before_ms
    ]
    unknown = await _unknown_to_coordinators(client, candidates, deadline)
    places = list(dict.fromkeys(one.partition for one in unknown))
    still_open = {
        (one.partition, one.producer_id, one.start_offset)
        for one in await _open_transactions(client, places, broker, deadline)
    }
    return sorted(
        one for one in unknown if (one.partition, one.producer_id, one.start_offset) in still_open
    )


async def _partitions(
    client: Client,
    topics: Iterable[str] | None,
    partitions: list[TopicPartition],
    broker: int | None,
    deadline: Deadline,
) -> list[TopicPartition]:
    names = None if topics is None and not partitions else list(topics or ())
    found = set(partitions)
    # A request that names no topic would be for all of them.
    told = await client.topics(names, deadline) if names is None or names else {}
    for topic in told.values():
        if not isinstance(topic, TopicView):
            raise topic
        found |= {
            TopicPartition(topic.name, one.partition)
            for one in topic.partitions
            if broker is None or broker in one.replicas
        }
    return sorted(found)


async def _open_transactions(
    client: Client, partitions: Sequence[TopicPartition], broker: int | None, deadline: Deadline
) -> list[OpenTransaction]:
    found: list[OpenTransaction] = []
    for start in range(0, len(partitions), _BATCH):
        batch = partitions[start : start + _BATCH]
        told = await describe_producers(client, batch, broker=broker, deadline=deadline)
        for tp, producers in told.items():
            if isinstance(producers, ApiError):
                raise producers
            found += OpenTransaction.among(tp, producers)
    return found


async def _unknown_to_coordinators(
    client: Client, candidates: Sequence[OpenTransaction], deadline: Deadline
) -> list[OpenTransaction]:
    producer_ids = sorted({one.producer_id for one in candidates})
    names: dict[int, str] = {}
    for start in range(0, len(producer_ids), _BATCH):
        listed = await list_transactions(
            client, producer_ids=producer_ids[start : start + _BATCH], deadline=deadline
        )
        names |= {one.producer_id: one.transactional_id for one in listed}
    described = await describe_transactions(client, names.values(), deadline=deadline)
    known: set[tuple[int, TopicPartition]] = set()
    for producer_id, name in names.items():
        told = described[name]
        if not isinstance(told, ApiError):
            known |= {(producer_id, tp) for tp in told.partitions}
        elif told.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise told
    return [one for one in candidates if (one.producer_id, one.partition) not in known]
