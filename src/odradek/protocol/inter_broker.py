"""The versions that brokers speak with each other, by `inter.broker.protocol.version`. Pure.

Versions between brokers are not negotiated: during a rolling upgrade every broker sends what the
oldest of them understands, until the operator raises the key on all of them.
"""

from typing import Final

from odradek.lazy_dataclass import dataclass

__all__ = [
    "INTER_BROKER_VERSIONS",
    "NEWEST_INTER_BROKER_VERSION",
    "NEWEST_NODE_FORMS",
    "InterBrokerVersions",
    "NodeForms",
]


@dataclass(frozen=True, slots=True)
class NodeForms:
    """The forms of the store's nodes that depend on the release."""

    registration: int  # Version of a broker's node; from 5 on it has the broker's features.
    feature: int  # Version of /feature.
    has_features: bool  # Whether finalized features count, so that /feature keeps them.


_BEFORE_FEATURES: Final = NodeForms(registration=4, feature=1, has_features=False)
_FIRST_FEATURES: Final = NodeForms(registration=5, feature=1, has_features=True)
NEWEST_NODE_FORMS: Final = NodeForms(registration=5, feature=2, has_features=True)


@dataclass(frozen=True, slots=True)
class InterBrokerVersions:
    """The version of each request that a broker sends to another, and the forms of nodes."""

    leader_and_isr: int
    stop_replica: int
    update_metadata: int
    fetch: int
    offset_for_leader_epoch: int
    list_offsets: int
    # None: leaders write the ISR to the store themselves.
    alter_partition: int | None
    # None: brokers take producer ids from the store themselves.
    allocate_producer_ids: int | None
    nodes: NodeForms
    controlled_shutdown: int = 3


# The columns are the fields above, in their order.
INTER_BROKER_VERSIONS: Final = {
    "2.4": InterBrokerVersions(4, 2, 6, 11, 3, 5, None, None, _BEFORE_FEATURES),
    "2.5": InterBrokerVersions(4, 2, 6, 11, 3, 5, None, None, _BEFORE_FEATURES),
    "2.6": InterBrokerVersions(4, 3, 6, 11, 3, 5, None, None, _BEFORE_FEATURES),
    "2.7": InterBrokerVersions(4, 3, 6, 12, 3, 5, 0, None, _FIRST_FEATURES),
    "2.8": InterBrokerVersions(5, 3, 7, 12, 4, 6, 0, None, _FIRST_FEATURES),
    "3.0": InterBrokerVersions(5, 3, 7, 12, 4, 7, 0, 0, _FIRST_FEATURES),
    "3.1": InterBrokerVersions(5, 3, 7, 12, 4, 7, 0, 0, _FIRST_FEATURES),
    "3.2": InterBrokerVersions(6, 3, 7, 13, 4, 7, 1, 0, _FIRST_FEATURES),
    "3.3": InterBrokerVersions(6, 3, 7, 13, 4, 7, 2, 0, NEWEST_NODE_FORMS),
    "3.4": InterBrokerVersions(7, 4, 8, 13, 4, 7, 2, 0, NEWEST_NODE_FORMS),
    "3.5": InterBrokerVersions(7, 4, 8, 15, 4, 8, 3, 0, NEWEST_NODE_FORMS),
    "3.6": InterBrokerVersions(7, 4, 8, 15, 4, 8, 3, 0, NEWEST_NODE_FORMS),
    "3.7": InterBrokerVersions(7, 4, 8, 15, 4, 8, 3, 0, NEWEST_NODE_FORMS),
    "3.8": InterBrokerVersions(7, 4, 8, 15, 4, 8, 3, 0, NEWEST_NODE_FORMS),
    "3.9": InterBrokerVersions(7, 4, 8, 17, 4, 8, 3, 0, NEWEST_NODE_FORMS),
}
NEWEST_INTER_BROKER_VERSION: Final = "3.9"
