"""WriteTxnMarkers (key 27): a transaction coordinator has partition leaders write its end."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class WritableTxnMarkerTopic(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


class WritableTxnMarker(Message):
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)
    topics: Sequence[WritableTxnMarkerTopic] = wire(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(INT32)
    transaction_version: int = wire(INT8, "2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, versions="0-2", flexible="1+"):
    """Markers to append."""

    # 1: flexible.
    # 2: the transaction.version of each transaction, which decides about its epoch.

    markers: Sequence[WritableTxnMarker] = wire(array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class WritableTxnMarkerTopicResult(Message):
    name: str = wire(STRING)
    partitions: Sequence[WritableTxnMarkerPartitionResult] = wire(
        array(WritableTxnMarkerPartitionResult)
    )


class WritableTxnMarkerResult(Message):
    producer_id: int = wire(INT64)
    topics: Sequence[WritableTxnMarkerTopicResult] = wire(array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Message, versions="0-2", flexible="1+"):
    """An error per marker and partition."""

    # 1: flexible.

    markers: Sequence[WritableTxnMarkerResult] = wire(array(WritableTxnMarkerResult))
