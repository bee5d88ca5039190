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

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.replication.fetching import FetchParams, FetchPartition, FetchResult, FetchResults
from odradek.replication.hosted import HostedPartitions
from odradek.replication.partition import Partition, ReadOutcome
from odradek.replication.stats import TopicStats

__all__ = ["MAX_PIECES", "find_wanted", "read_partitions"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE

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
            outcome = partition.read(
                wanted.fetch_offset,
                max(0, min(wanted.max_bytes, budget)),
                isolation,
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                only_leader=only_leader,
                min_one_message=min_one_message,
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
            result = _result_of(outcome, allows_part_of_batch=not is_soft_limit)
            if params.replica_id >= 0 and params.replica_id not in partition.followers:
                logger.warning(
                    "%s: broker %d fetches, but is not among the replicas %s",
                    wanted.tp, params.replica_id, partition.replicas,
                )  # fmt: skip
                result = result._replace(records=None)
            if result.records is not None:
                budget -= result.records.length
                min_one_message = False
                piece_count += 1
                if piece_count == MAX_PIECES:
                    budget = 0
        stats.count_fetch()
        results.append((wanted, result))
    return results


def _result_of(outcome: ReadOutcome, *, allows_part_of_batch: bool) -> FetchResult:
    data, offsets, diverging_epoch = outcome
    records = data.records
    if records is not None and (
        records.length == 0 or (data.first_entry_incomplete and not allows_part_of_batch)
    ):
        # Part of a batch is of no use to a reader that is given a whole one sooner or later.
        records = None
    aborted = data.aborted_transactions
    return FetchResult(
        _NONE,
        offsets.high_watermark,
        offsets.last_stable_offset,
        offsets.log_start_offset,
        records,
        None if aborted is None else [(a.producer_id, a.first_offset) for a in aborted],
        -1,
        data.offset_metadata,
        diverging_epoch,
    )
