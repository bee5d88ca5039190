"""Reading the partitions of a fetch from local logs.

They are read in the order of the request, which is its order of priority, under one byte budget.
Until something was found, the next batch comes whole even if it exceeds the limits: a reader that
asks for less than one batch would otherwise never get on. Example with a budget of 100 and batches
of 80 bytes in three partitions: 80 bytes of the first, nothing of the others, since 20 bytes hold
no batch. Read again with the first one drained: 80 bytes of the second.

The pieces of one answer are limited, too. Each is read, or keeps a descriptor until it is sent, so
many partitions of little data would cost the others more than one of much. Partitions beyond the
limit have no records in this answer; a session puts them in front of the next one.
"""

import logging
from collections.abc import Sequence
from typing import final

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.replication.fetching import FetchParams, FetchPartition, FetchResult, FetchResults
from odradek.replication.hosted import HostedPartitions
from odradek.replication.partition import Partition
from odradek.replication.stats import TopicStats

__all__ = ["MAX_PIECES", "SharedRead", "find_wanted", "read_partitions"]

logger = logging.getLogger(__name__)

# Pieces of files in one answer. With the usual megabyte of each partition, fetch.max.bytes is used
# up before.
MAX_PIECES = 100


def find_wanted(
    hosted: HostedPartitions, wanted: FetchPartition, *, only_leader: bool
) -> Partition:
    """The partition that a fetch means.

    Raises:
        ApiError: It is not here, or another topic has its name.
    """
    partition = hosted.get(wanted.tp) or hosted.find(wanted.tp, expect_leader=only_leader)
    topic_id = wanted.topic_id
    if topic_id is not None and partition.topic_id is not None and topic_id != partition.topic_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{wanted.tp} has topic id {partition.topic_id}, asked for {topic_id}",
        )
    return partition


def read_partitions(
    hosted: HostedPartitions,
    params: FetchParams,
    partitions: Sequence[FetchPartition],
    all_topics: TopicStats,
) -> FetchResults:
    """Reads what there is now; the result of each partition, in order."""
    results: FetchResults = []
    budget = params.max_bytes
    piece_count = 0
    is_soft_limit = not params.is_hard_limit
    min_one_message = is_soft_limit
    isolation, only_leader = params.isolation, params.only_from_leader
    for wanted in partitions:
        stats = all_topics
        try:
            partition = find_wanted(hosted, wanted, only_leader=only_leader)
            stats = partition.stats
            result = partition.read(
                wanted.fetch_offset,
                max(0, min(wanted.max_bytes, budget)),
                isolation,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                only_leader=only_leader,
                min_one_message=min_one_message,
                allows_part_of_batch=not is_soft_limit,
            )
        except ApiError as error:
            result = FetchResult(error.code)
        except StorageError:
            result = FetchResult(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:  # One partition never fails its neighbours.
            logger.exception("%s: read at offset %d failed", wanted.tp, wanted.fetch_offset)
            stats.count_failed_fetch()
            result = FetchResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            if params.replica_id >= 0 and params.replica_id not in partition.followers:
                logger.warning(
                    "%s: broker %d fetches, but is not among the replicas %s",
                    wanted.tp, params.replica_id, partition.replicas,
                )  # fmt: skip
                result.records = None
            if result.records is not None:
                budget -= result.records.length
                min_one_message = False
                piece_count += 1
                if piece_count == MAX_PIECES:
                    budget = 0
        stats.count_fetch()
        results.append((wanted, result))
    return results


@final
class SharedRead:
    """What a woken fetch of one partition read, for others that want the same.

    Consumers that wait at the end of a partition all ask for the same offset. They are woken
    together, before anything else can happen to the partition: one read is that of all.

    Args:
        params: The fetch as a whole.
        wanted: Its partition.
        result: What was found there.
        stats: Of the topic, to count each fetch.
    """

    __slots__ = ("_params", "_result", "_stats", "_wanted")

    def __init__(
        self, params: FetchParams, wanted: FetchPartition, result: FetchResult, stats: TopicStats
    ) -> None:
        self._params = params
        self._wanted = wanted
        self._result = result
        self._stats = stats

    def suits(self, params: FetchParams, wanted: FetchPartition) -> bool:
        """Whether another consumer's fetch would read the same."""
        read, mine = self._params, self._wanted
        return (
            wanted.fetch_offset == mine.fetch_offset
            and wanted.max_bytes == mine.max_bytes
            and params.max_bytes == read.max_bytes
            and params.isolation is read.isolation
            and params.only_from_leader == read.only_from_leader
            and params.is_hard_limit == read.is_hard_limit
            and wanted.current_leader_epoch == mine.current_leader_epoch
            and wanted.last_fetched_epoch == mine.last_fetched_epoch
            and wanted.topic_id == mine.topic_id
            and wanted.tp == mine.tp
        )

    def take(self) -> FetchResult:
        """The result once more, its bytes in memory if they are few."""
        self._stats.count_fetch()
        records = self._result.records
        if records is not None:
            records.keep_bytes()
        return self._result
