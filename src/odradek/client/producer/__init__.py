"""The producer: batches per partition, idempotent, in order; awaited and blocking."""

from odradek.client.producer.delivery import Delivery, RecordMetadata
from odradek.client.producer.partitioning import Partitioner, RoundRobinPartitioner
from odradek.client.producer.producer import FailedRecords, Interceptor, Producer, ProducerRecord
from odradek.client.producer.rows_delivery import OffsetRange, RowsDelivery, RowsMetadata

__all__ = [
    "Delivery",
    "FailedRecords",
    "Interceptor",
    "OffsetRange",
    "Partitioner",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "RoundRobinPartitioner",
    "RowsDelivery",
    "RowsMetadata",
]
