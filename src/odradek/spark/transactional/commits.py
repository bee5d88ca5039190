"""The topic of markers: made, checked and read.

Markers are read up to the high watermark, not to the last stable offset, so that an open
transaction of another query blocks no start. Whether a marker counts is then decided here, by the
control batch of its own producer behind it; or, if compaction has removed that one, by the last
stable offset: what lies below it, and is still there, was committed.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek import Admin
from odradek.client.admin import ConfigResource, ConfigResourceType, NewTopic
from odradek.client.config import ClientConfig
from odradek.client.offsets import EARLIEST, LATEST, find_offsets
from odradek.client.range_reader import FetchedBatches, read_range
from odradek.config import Definition
from odradek.errors import ApiError, CorruptRecordError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.enums import IsolationLevel
from odradek.records.batch import is_crc_valid, iter_headers
from odradek.records.control import parse_end_transaction_marker
from odradek.records.record import read_records
from odradek.spark.datasource.connections import CONNECTIONS, ClusterConnection
from odradek.spark.transactional.errors import ExactlyOnceError
from odradek.spark.transactional.marker import COMMITS_TOPIC, Marker

__all__ = ["COMMITS", "KnownMarkers", "last_marker", "prepare_commits_topic", "read_markers"]

# All markers lie in one partition: a query has one record there, compaction removes the others.
COMMITS: Final = TopicPartition(COMMITS_TOPIC, 0)

_COMPACT: Final = "compact"
# Small segments, since the active one is not compacted: a start reads all that is left.
_CONFIGS: Final = {
    "cleanup.policy": _COMPACT,
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_FETCH_BYTES: Final = 2 << 20
_TIMEOUT_MS: Final = 60_000
_SHORT_TIMEOUT_MS: Final = 5_000


class KnownMarkers(NamedTuple):
    """The markers of one query."""

    # Of the last batch that was committed.
    committed: Marker | None
    # Of a transaction that is neither committed nor aborted yet.
    undecided: Marker | None


def _client_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a producer's settings that every client has."""
    names = Definition(ClientConfig).keys
    return {name: value for name, value in settings.items() if name in names}


def prepare_commits_topic(settings: Mapping[str, str]) -> None:
    """Creates the topic if it does not exist, and checks that it keeps markers.

    Raises:
        ExactlyOnceError: It is not compacted, or removes records by age or size.
        ApiError: Brokers do not answer, or refuse.
    """
    with Admin(_client_settings(settings)) as admin:
        policy = _policy(admin)
        if policy is None:
            wanted = NewTopic(name=COMMITS_TOPIC, partition_count=1, configs=_CONFIGS)
            made = admin.create_topics([wanted])[COMMITS_TOPIC]
            # Another query may have created it meanwhile.
            if isinstance(made, ApiError) and made.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise made
            policy = _policy(admin) or _COMPACT
    if {part.strip() for part in policy.split(",")} != {_COMPACT}:
        raise ExactlyOnceError(
            f"the topic {COMMITS_TOPIC}, which has the marker of the last batch of every query, "
            f"needs cleanup.policy=compact, found {policy}: it would lose markers. Alter the "
            "topic, and restore the records it has lost"
        )


def _policy(admin: Admin) -> str | None:
    """The cleanup policy; None if there is no such topic."""
    resource = ConfigResource(ConfigResourceType.TOPIC, COMMITS_TOPIC)
    found = admin.describe_configs([resource], names=["cleanup.policy"])[resource]
    if isinstance(found, ApiError):
        if found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise found
    return next((one.value for one in found if one.name == "cleanup.policy"), None)


def last_marker(settings: Mapping[str, str], key: bytes) -> Marker | None:
    """The last committed marker with a key, without waiting long; None also without the topic.

    Raises:
        ExactlyOnceError, ApiError: As `read_markers`.
    """
    with Admin(_client_settings(settings)) as admin:
        if _policy(admin) is None:
            return None
    return read_markers(settings, key, timeout_ms=_SHORT_TIMEOUT_MS).committed


def read_markers(
    settings: Mapping[str, str], key: bytes, *, timeout_ms: int = _TIMEOUT_MS
) -> KnownMarkers:
    """Reads the markers with a key.

    Raises:
        ExactlyOnceError: A record with that key is no marker.
        ApiError: Brokers do not answer, or refuse.
    """
    with CONNECTIONS.lease(_client_settings(settings)) as connection:
        ends = {
            level: connection.run(
                find_offsets(
                    connection.client,
                    {COMMITS: LATEST},
                    connection.client.deadline(timeout_ms),
                    isolation_level=level,
                )
            )[COMMITS].offset
            # In this order: what is below the last stable offset is then read.
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        }
        reading = _Reading(key)
        end = ends[IsolationLevel.READ_UNCOMMITTED]
        connection.run(_read_all(connection, reading, end, timeout_ms))
        return reading.end(ends[IsolationLevel.READ_COMMITTED])


async def _read_all(
    connection: ClusterConnection, reading: "_Reading", end: int, timeout_ms: int
) -> None:
    client = connection.client
    start = await find_offsets(
        client,
        {COMMITS: EARLIEST},
        client.deadline(timeout_ms),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
    )
    fetched = read_range(
        client,
        connection.config,
        COMMITS,
        offset=start[COMMITS].offset,
        end=end,
        max_bytes=_FETCH_BYTES,
        timeout_ms=timeout_ms,
    )
    async for some in fetched:
        reading.take(some)


class _Reading:
    """What the batches of the topic say about one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._committed: tuple[int, bytes | None] | None = None
        # Records of transactions without an end so far, by producer id.
        self._open: dict[int, tuple[int, bytes | None]] = {}

    def take(self, fetched: FetchedBatches) -> None:
        data = fetched.records
        for position, header in iter_headers(data):
            if not is_crc_valid(data, position, header.size):
                raise CorruptRecordError(f"{COMMITS}: a batch at {header.base_offset} is damaged")
            if header.is_control:
                self._on_end(header.producer_id, data, position)
                continue
            for record in read_records(data, position=position, header=header):
                if record.key != self._key:
                    continue
                if header.is_transactional:
                    self._open[header.producer_id] = (record.offset, record.value)
                else:  # Of an operator, or a copy of another cluster's topic.
                    self._committed = (record.offset, record.value)

    def _on_end(self, producer_id: int, data: memoryview, position: int) -> None:
        marker = parse_end_transaction_marker(data, position=position)
        if marker is None:
            return
        found = self._open.pop(producer_id, None)
        if found is not None and marker.is_commit:
            self._committed = found

    def end(self, last_stable_offset: int) -> KnownMarkers:
        """The result; all batches up to the high watermark were taken."""
        undecided: tuple[int, bytes | None] | None = None
        for found in sorted(self._open.values()):
            if found[0] >= last_stable_offset:
                undecided = found
            elif self._committed is None or found[0] > self._committed[0]:
                self._committed = found
        return KnownMarkers(_parse(self._committed), _parse(undecided))


def _parse(found: tuple[int, bytes | None] | None) -> Marker | None:
    return None if found is None or found[1] is None else Marker.parse(found[1])
