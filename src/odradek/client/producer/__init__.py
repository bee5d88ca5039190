"""The producer: batches per partition, idempotent, in order; awaited and blocking."""

from odradek.client.producer.delivery import Delivery, RecordMetadata
from odradek.client.producer.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
    RetriableTransactionError,
    TransactionAbortedError,
    TransactionStateError,
)
from odradek.client.producer.partitioning import Partitioner, RoundRobinPartitioner
from odradek.client.producer.producer import FailedRecords, Interceptor, Producer, ProducerRecord
from odradek.client.producer.rows_delivery import OffsetRange, RowsDelivery, RowsMetadata
from odradek.client.producer.ticket import TransactionTicket

__all__ = [
    "AbortableTransactionError",
    "Delivery",
    "FailedRecords",
    "FatalTransactionError",
    "Interceptor",
    "OffsetRange",
    "Partitioner",
    "Producer",
    "ProducerFencedError",
    "ProducerRecord",
    "RecordMetadata",
    "RetriableTransactionError",
    "RoundRobinPartitioner",
    "RowsDelivery",
    "RowsMetadata",
    "TransactionAbortedError",
    "TransactionStateError",
    "TransactionTicket",
]
