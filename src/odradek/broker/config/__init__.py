"""The broker's configuration: Kafka's keys, the sources of values, and the parts' settings."""

from odradek.broker.config.broker import (
    BROKER_DEFINITION,
    BrokerSettings,
    load_broker_settings,
    unknown_settings,
)
from odradek.broker.config.components import (
    InternalTopicsSettings,
    LogSettings,
    NodeSettings,
    ObservabilitySettings,
    QuotaSettings,
    ReplicationSettings,
    RequestSettings,
    TopicSettings,
)
from odradek.broker.config.describe import ConfigRow, ConfigSynonym
from odradek.broker.config.kafka_keys import KAFKA_KEYS
from odradek.broker.config.tls import TlsSettings
from odradek.broker.config.topic import TOPIC_DEFINITION, TopicConfig, TopicDefaults
from odradek.broker.config.topic_configs import EffectiveTopicConfig, TopicConfigs

__all__ = [
    "BROKER_DEFINITION",
    "KAFKA_KEYS",
    "TOPIC_DEFINITION",
    "BrokerSettings",
    "ConfigRow",
    "ConfigSynonym",
    "EffectiveTopicConfig",
    "InternalTopicsSettings",
    "LogSettings",
    "NodeSettings",
    "ObservabilitySettings",
    "QuotaSettings",
    "ReplicationSettings",
    "RequestSettings",
    "TlsSettings",
    "TopicConfig",
    "TopicConfigs",
    "TopicDefaults",
    "TopicSettings",
    "load_broker_settings",
    "unknown_settings",
]
