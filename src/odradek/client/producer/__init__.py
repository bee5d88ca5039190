"""The producer: batches per partition, idempotent, in order; awaited and blocking."""

from odradek.client.producer.delivery import Delivery, RecordMetadata
from odradek.client.producer.partitioning import Partitioner, RoundRobinPartitioner
from odradek.client.producer.producer import FailedRecords, Interceptor, Producer, ProducerRecord

__all__ = [
    "Delivery",
    "FailedRecords",
    "Interceptor",
    "Partitioner",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "RoundRobinPartitioner",
]
