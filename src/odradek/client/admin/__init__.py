"""The requests of an administrator. Results are per item: one failure affects no other item."""

from odradek.client.admin.api_versions import BrokerVersions, describe_api_versions
from odradek.client.admin.cluster import ClusterDescription, LogDir, Replica
from odradek.client.admin.configs import (
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSynonym,
    alter_configs,
    describe_configs,
)
from odradek.client.admin.features import FeatureDescription
from odradek.client.admin.groups import GroupDescription, GroupListing, GroupMember
from odradek.client.admin.producers import ProducerState
from odradek.client.admin.quotas import ANY_NAME, QuotaEntity
from odradek.client.admin.reassignments import Reassignment
from odradek.client.admin.records import HIGH_WATERMARK, delete_records
from odradek.client.admin.topic_descriptions import (
    PartitionDescription,
    TopicDescription,
    TopicPage,
)
from odradek.client.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek.client.admin.transactions import (
    TRANSACTION_STATES,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from odradek.model import ReplicaId
from odradek.protocol.enums import (
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    ElectionType,
    FeatureUpgrade,
)
from odradek.security.operations import Operation as AclOperation

__all__ = [
    "ANY_NAME",
    "HIGH_WATERMARK",
    "TRANSACTION_STATES",
    "AclOperation",
    "BrokerVersions",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "ElectionType",
    "FeatureDescription",
    "FeatureUpgrade",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LogDir",
    "NewPartitions",
    "NewTopic",
    "OpenTransaction",
    "PartitionDescription",
    "ProducerState",
    "QuotaEntity",
    "Reassignment",
    "Replica",
    "ReplicaId",
    "TopicDescription",
    "TopicPage",
    "TransactionDescription",
    "TransactionListing",
    "alter_configs",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_api_versions",
    "describe_configs",
]
