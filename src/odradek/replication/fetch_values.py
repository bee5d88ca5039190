"""Parameters and results of a fetch: values shared by the read path and its callers."""

import uuid
from typing import NamedTuple, final

from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.segments.file_slice import FileSlice

__all__ = [
    "CONSUMER_ID",
    "FUTURE_REPLICA_ID",
    "ClientPlace",
    "FetchParams",
    "FetchPartition",
    "FetchResult",
    "FetchResults",
]

CONSUMER_ID = -1
FUTURE_REPLICA_ID = -3  # A replica of this very broker that moves to another directory.


class ClientPlace(NamedTuple):
    """Where a consumer is, as far as it tells."""

    rack: str
    listener: str  # By which it reaches brokers.


@final
class FetchParams:
    """One fetch as a whole."""

    __slots__ = (
        "has_client_metadata",
        "is_from_consumer",
        "is_from_follower",
        "is_hard_limit",
        "isolation",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "only_from_leader",
        "place",
        "read_committed",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        replica_id: int = CONSUMER_ID,
        is_hard_limit: bool = False,
        read_committed: bool = False,
        has_client_metadata: bool = False,
        replica_epoch: int = -1,
        place: ClientPlace | None = None,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch  # The broker epoch of a follower; -1 if not sent.
        # Never exceed `max_bytes`, not even for one batch (Fetch v2-).
        self.is_hard_limit = is_hard_limit
        self.read_committed = read_committed
        self.has_client_metadata = has_client_metadata  # The consumer may read from a follower.
        self.place = place  # Of a consumer that names its rack; it may be sent to a follower.
        self.is_from_follower = replica_id >= 0
        self.is_from_consumer = replica_id < 0 and replica_id != FUTURE_REPLICA_ID
        # Which records the reader may see, and on which replicas. Computed once, since a parked
        # fetch is checked many times.
        if not self.is_from_consumer:
            self.isolation = FetchIsolation.LOG_END
        elif read_committed:
            self.isolation = FetchIsolation.TXN_COMMITTED
        else:
            self.isolation = FetchIsolation.HIGH_WATERMARK
        self.only_from_leader = self.is_from_follower or (
            self.is_from_consumer and not has_client_metadata
        )


@final
class FetchPartition:
    """The request for one partition. Replaced, never edited."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: uuid.UUID | None,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        log_start_offset: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.log_start_offset = log_start_offset  # Of a follower.
        # Epoch of the record before the fetch offset; -1 if the reader does not send it.
        self.last_fetched_epoch = last_fetched_epoch

    def __repr__(self) -> str:
        return f"FetchPartition({self.tp}, offset {self.fetch_offset})"


@final
class EncodedResult:
    """The bytes of a result in the answers of one version that name its topic alike."""

    __slots__ = ("body", "topic", "version")

    def __init__(self, version: int, topic: str | bytes, body: bytes) -> None:
        self.version = version
        self.topic = topic
        self.body = body


@final
class FetchResult:
    """The result of reading one partition. Offsets are -1 on an error.

    Only the read that makes it edits it, since several answers may share one; the first of these
    leaves its bytes for the others.
    """

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "encoded",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "offset_metadata",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        error: ErrorCode,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: FileSlice | None = None,
        aborted_transactions: list[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        diverging_epoch: tuple[int, int] | None = None,
    ) -> None:
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted_transactions = aborted_transactions  # (producer id, first offset)
        self.preferred_read_replica = preferred_read_replica
        # (epoch, end offset) where the reader's log diverges from this one; no records then.
        self.diverging_epoch = diverging_epoch
        # Position of the fetch offset, for a fetch that has to wait.
        self.offset_metadata: LogOffsetMetadata | None = None
        # Of a result whose records are kept in memory: how the last answer named it.
        self.encoded: EncodedResult | None = None

    def __repr__(self) -> str:
        return (
            f"FetchResult({self.error!r}, {self.high_watermark}, {self.last_stable_offset},"
            f" {self.log_start_offset}, {self.records!r})"
        )


FetchResults = list[tuple[FetchPartition, FetchResult]]
