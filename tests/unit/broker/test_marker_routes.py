"""The way of markers to the leaders of other brokers (10 section 9.7)."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from odradek.broker.peers.connections import PeerConnections
from odradek.broker.transactions.marker_routes import MarkerRoutes
from odradek.errors import ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.model import TopicPartition, TransactionMarker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.versions import VersionRange

LOCAL, REMOTE = 1, 2


class Leader:
    """The connection to another broker, which answers each marker by a row of its own."""

    async def open(self) -> "Leader":
        return self

    def versions(self, _api_key: ApiKey) -> VersionRange:
        return VersionRange(0, 2)

    async def request(
        self, _api_key: ApiKey, message: WriteTxnMarkersRequest, _version: int
    ) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=number, error_code=ErrorCode.NONE
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in message.markers
            ]
        )


class Leaders:
    def to_broker(self, _broker_id: int, _purpose: str, *, timeout_ms: int) -> Leader:
        assert timeout_ms > 0
        return Leader()


class Nowhere:
    async def write(self, markers: Sequence[TransactionMarker]) -> Any:
        raise AssertionError(f"no marker is for this broker: {markers}")

    def try_write(self, marker: TransactionMarker) -> Any:
        raise AssertionError(f"no marker is for this broker: {marker}")


def test_the_parts_of_one_transaction_have_their_own_answers() -> None:
    """A large transaction comes in portions; what is not told as written is written again."""
    portions = [(TopicPartition("t", 0),), (TopicPartition("t", 1), TopicPartition("u", 0))]
    markers = [
        TransactionMarker(
            producer_id=7,
            producer_epoch=1,
            coordinator_epoch=0,
            is_commit=True,
            transaction_version=2,
            partitions=portion,
        )
        for portion in portions
    ]
    routes = MarkerRoutes(LOCAL, MetadataCache(LOCAL), Nowhere())
    routes.use_peers(cast("PeerConnections", Leaders()))

    answers = asyncio.run(routes.send(REMOTE, markers))

    for portion, answer in zip(portions, answers, strict=True):
        assert [answer[tp] for tp in portion] == [ErrorCode.NONE] * len(portion)
