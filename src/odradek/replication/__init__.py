"""Replicas on this broker: roles, appends, reads, in-sync replicas."""

from odradek.replication.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult
from odradek.replication.delayed_fetch import DelayedFetch
from odradek.replication.delayed_produce import DelayedProduce, ProduceResult
from odradek.replication.fetch_values import (
    CONSUMER_ID,
    FetchParams,
    FetchPartition,
    FetchResult,
    FetchResults,
)
from odradek.replication.gauges import register_fetch_session_metrics
from odradek.replication.isr_updates import IsrUpdates
from odradek.replication.partition import Partition
from odradek.replication.replica_manager import Purgatories, ReplicaManager, ReplicaManagerConfig
from odradek.replication.stats import ReplicationStats

__all__ = [
    "CONSUMER_ID",
    "DelayedDeleteRecords",
    "DelayedFetch",
    "DelayedProduce",
    "DeleteRecordsResult",
    "FetchParams",
    "FetchPartition",
    "FetchResult",
    "FetchResults",
    "IsrUpdates",
    "Partition",
    "ProduceResult",
    "Purgatories",
    "ReplicaManager",
    "ReplicaManagerConfig",
    "ReplicationStats",
    "register_fetch_session_metrics",
]
