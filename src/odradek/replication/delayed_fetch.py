"""A fetch, parked until there is enough to read.

It ends as soon as one of these holds for any of its partitions:

| case                                                                   | why                     |
|------------------------------------------------------------------------|-------------------------|
| it cannot be read any more: gone, not led here, offline, another epoch | the answer is an error  |
| the readable end lies on another segment than the fetch offset         | bytes cannot be counted |
| the reader is a follower that knows a lower high watermark             | commits depend on it    |

or when the bytes between fetch offsets and readable ends add up to `min_bytes`. A reader ahead of
the readable end, as after a change of leader, waits until the end reaches it. Bytes that a follower
may not have now (`throttles`) do not count. The logs are read again for the answer. A fetch of more
than `MANY_PARTITIONS` ends at the first change.
"""

from collections.abc import Callable, Generator, Sequence
from typing import final

from odradek.errors import ApiError, StorageError
from odradek.purgatory import DelayedOperation
from odradek.replication.fetch_values import FetchParams, FetchPartition, FetchResults
from odradek.replication.hosted import HostedPartitions
from odradek.replication.throttles import ReplicationThrottle
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation

__all__ = ["MANY_PARTITIONS", "DelayedFetch", "Resumption"]

# A fetch of more partitions is read in steps, and ends as soon as one of them changes: to count the
# bytes of all of them at each append would delay the producers.
MANY_PARTITIONS = 200

_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK
_LOG_END = FetchIsolation.LOG_END


@final
class Resumption:
    """What becomes of a fetch that was parked before it read: it is read again at a change.

    Not a nested function: compiled, that would be in a cycle with its variables, and the collector
    would have to free the whole request.

    Args:
        resume: Runs steps.
        steps: Makes those that read again.
    """

    __slots__ = ("_resume", "_steps", "is_reading")

    def __init__(
        self,
        resume: Callable[[Generator[None, None, None]], None],
        steps: Callable[[], Generator[None, None, None]],
    ) -> None:
        self._resume = resume
        self._steps = steps
        self.is_reading = True  # For the first time: changes are looked at when that has ended.

    def on_change(self, _operation: "DelayedFetch") -> None:
        """A partition has changed."""
        if not self.is_reading:
            self._resume(self._steps())


class DelayedFetch(DelayedOperation):
    """One parked fetch.

    Args:
        params: The fetch as a whole.
        partitions: The partitions to read, and from which offsets.
        places: The position of each fetch offset that was found in a log.
        hosted: The partitions here.
        respond: Gets the results.
        read_and_respond: Reads the logs again and answers.
        on_expired: Called when the time ran out, with whether the reader is a follower.
        throttle: Holds back the records of followers.
    """

    __slots__ = (
        "_hosted",
        "_on_expired",
        "_places",
        "_read_and_respond",
        "_throttle",
        "params",
        "partitions",
        "respond",
    )

    def __init__(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        places: Sequence[tuple[FetchPartition, LogOffsetMetadata]],
        *,
        hosted: HostedPartitions,
        respond: Callable[[FetchResults], None],
        read_and_respond: Callable[["DelayedFetch"], None],
        on_expired: Callable[[bool], None],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.partitions = partitions
        self.respond = respond
        self._places = places
        self._hosted = hosted
        self._read_and_respond = read_and_respond
        self._on_expired = on_expired
        self._throttle = throttle

    def try_complete(self) -> bool:
        if len(self.partitions) > MANY_PARTITIONS:
            return self.force_complete()
        params = self.params
        isolation, only_leader = params.isolation, params.only_from_leader
        accumulated = 0
        for wanted, place in self._places:
            try:
                partition = self._hosted.find_wanted(wanted)
                log = partition.log_for(wanted.current_leader_epoch, only_leader=only_leader)
                end = _visible_end(log, isolation)
            except (ApiError, StorageError):
                return self.force_complete()
            if params.replica_id >= 0 and partition.is_high_watermark_news_to(params.replica_id):
                return self.force_complete()
            if end.message_offset == place.message_offset:
                continue  # Nothing new; the segment may have rolled below the same offset.
            if (
                params.replica_id >= 0
                and self._throttle is not None
                and self._throttle.holds_back(
                    wanted.tp, is_in_sync=params.replica_id in partition.isr
                )
            ):
                continue
            if not end.is_on_same_segment(place):
                return self.force_complete()
            if end.message_offset > place.message_offset:
                accumulated += min(end.position_difference(place), wanted.max_bytes)
        return accumulated >= params.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        self._read_and_respond(self)

    def on_expiration(self) -> None:
        self._on_expired(self.params.is_from_follower)


def _visible_end(log: Log, isolation: FetchIsolation) -> LogOffsetMetadata:
    if isolation is _HIGH_WATERMARK:
        return log.fetch_high_watermark_metadata()
    if isolation is _LOG_END:
        return log.log_end_offset_metadata
    return log.fetch_last_stable_offset_metadata()
