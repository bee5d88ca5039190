"""Settings for several brokers on a broker that is a cluster of its own.

Such a broker would start, and refuse what its settings ask of brokers that do not exist: topics of
three replicas, or records that two replicas must have. Pure.
"""

from collections.abc import Iterator
from typing import Final

from odradek.config import Settings, SettingSource

__all__ = ["more_brokers_needed"]

# Key -> what the broker refuses if more than one broker is asked for.
_REFUSED: Final = {
    "default.replication.factor": "topics that are created without a number of replicas",
    "min.insync.replicas": "records that are sent with acks=all, the default of every client",
    "offsets.topic.replication.factor": "consumer groups",
    "transaction.state.log.replication.factor": "transactions",
    "transaction.state.log.min.isr": "transactions",
}


def more_brokers_needed(settings: Settings) -> Iterator[tuple[str, str]]:
    """The keys that one broker alone cannot satisfy, each with the consequence and the remedy."""
    for name, refused in _REFUSED.items():
        setting = settings.get(name)
        # The defaults of internal topics are lowered to the number of brokers.
        if setting.source is SettingSource.DEFAULT or not isinstance(setting.value, int):
            continue
        if setting.value > 1:
            yield (
                name,
                f"{name}={setting.value}: this broker is alone, and refuses {refused}; set"
                f" {name}=1, or make it a broker of a cluster with zookeeper.connect",
            )
