"""What an administrator asks of a cluster. Results are per item: one failure spares the others."""

from odradek.client.admin.api_versions import BrokerVersions, describe_api_versions
from odradek.client.admin.configs import (
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from odradek.client.admin.records import HIGH_WATERMARK, delete_records
from odradek.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
)

__all__ = [
    "HIGH_WATERMARK",
    "BrokerVersions",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "CreatedTopic",
    "NewTopic",
    "ResourceType",
    "alter_configs",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_api_versions",
    "describe_configs",
]
