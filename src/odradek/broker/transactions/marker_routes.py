"""The ways of markers from this broker's transaction coordinator to the leaders of partitions.

The coordinator has one queue for each broker; here its markers leave the coordinator: to the
partitions of this broker directly, to those of others as WriteTxnMarkers by their inter-broker
listener, over a connection of its own for each.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from odradek.broker.peers.connections import PeerConnection, PeerConnections
from odradek.coordinator.transaction.ports import NO_LEADER_NOW, MarkerResults
from odradek.errors import DisconnectedError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.model import TopicPartition, TransactionMarker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["LocalMarkerWriter", "MarkerRoutes"]

_NEWEST_VERSION: Final = 2
# How long the answer of another broker may take: its leaders wait 30 s for their replicas.
_TIMEOUT_MS: Final = 40_000


class LocalMarkerWriter(Protocol):
    """Appends markers to the leaders of this broker; `LocalMarkers`."""

    async def write(self, markers: Sequence[TransactionMarker]) -> Sequence[MarkerResults]: ...

    def try_write(self, marker: TransactionMarker) -> MarkerResults | None: ...


class MarkerRoutes:
    """Has the brokers that lead write markers; `odradek.coordinator.transaction.ports`.

    Args:
        broker_id: This broker.
        cache: Knows the leaders.
        local: Writes to partitions that this broker leads.
    """

    def __init__(self, broker_id: int, cache: MetadataCache, local: LocalMarkerWriter) -> None:
        self._broker_id = broker_id
        self._cache = cache
        self._local = local
        self._peers: PeerConnections | None = None
        self._connections: dict[int, PeerConnection] = {}

    def use_peers(self, peers: PeerConnections) -> None:
        """Sends to other brokers from now on."""
        self._peers = peers

    def leader_of(self, tp: TopicPartition) -> int | None:
        """The live leader of a partition; `NO_LEADER_NOW`, or None if it is not known."""
        image = self._cache.image
        state = image.partition(tp.topic, tp.partition)
        if state is None:
            return None
        return state.leader if state.leader in image.brokers else NO_LEADER_NOW

    async def send(
        self, broker_id: int, markers: Sequence[TransactionMarker]
    ) -> Sequence[MarkerResults]:
        """Has a broker write markers; those of one producer are for different partitions.

        Raises:
            ApiError: There was no answer, or the broker does not serve the request.
        """
        if broker_id == self._broker_id:
            return await self._local.write(markers)
        connection = self._connection(broker_id)
        served = (await connection.open()).versions(ApiKey.WRITE_TXN_MARKERS)
        version = min(served.last, _NEWEST_VERSION)
        request = WriteTxnMarkersRequest(markers=[_wire(marker) for marker in markers])
        response = await connection.request(ApiKey.WRITE_TXN_MARKERS, request, version)
        assert isinstance(response, WriteTxnMarkersResponse), "the registry gave another class"
        # The partitions of one transaction may be those of several markers.
        by_producer: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for row in response.markers:
            by_producer.setdefault(row.producer_id, {}).update(
                (TopicPartition(topic.name, one.partition_index), _code(one.error_code))
                for topic in row.topics
                for one in topic.partitions
            )
        return [by_producer.get(marker.producer_id, {}) for marker in markers]

    def try_write(self, marker: TransactionMarker) -> MarkerResults | None:
        """Writes a marker at once; None, and nothing is written, if there is something to wait for.

        That is another broker that leads one of the partitions, or has a replica of it.
        """
        return self._local.try_write(marker)

    def _connection(self, broker_id: int) -> PeerConnection:
        if self._peers is None:
            raise DisconnectedError("this broker is still starting")
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._peers.to_broker(broker_id, "transactions", timeout_ms=_TIMEOUT_MS)
            self._connections[broker_id] = connection
        return connection


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:  # Of a later release.
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _wire(marker: TransactionMarker) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=_by_topic(marker.partitions),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return [
        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in numbers.items()
    ]
