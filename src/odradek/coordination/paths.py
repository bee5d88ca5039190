"""The paths of the store's nodes; `nodes` has their content. Pure.

The layout is Kafka's, so that its tools and brokers can read and write the same tree::

    /controller                                  ephemeral: the controller's id
    /controller_epoch                            its data version fences every controller write
    /cluster/id
    /feature                                     finalized features, and whether they count
    /brokers/ids/<id>                            ephemeral: its czxid is the broker epoch
    /brokers/topics/<t>                          assignment and topic id
    /brokers/topics/<t>/partitions/<p>/state     leader and ISR
    /brokers/seqid                               written to draw a broker id
    /config/<type>/<entity>, /config/users/<u>/clients/<c>, /config/changes/config_change_<seq>
    /admin/delete_topics/<t>, /admin/reassign_partitions, /admin/preferred_replica_election
    /isr_change_notification/isr_change_<seq>, /log_dir_event_notification/log_dir_event_<seq>
    /latest_producer_id_block
    /consumers                                   the legacy consumer's registry
"""

from enum import Enum
from typing import Final
from urllib.parse import quote, unquote

from odradek.coordination.store import CONTROLLER_EPOCH_PATH
from odradek.model import TopicPartition

__all__ = [
    "BROKER_IDS",
    "BROKER_SEQUENCE_ID",
    "BROKER_TOPICS",
    "CLUSTER_ID",
    "CONFIG_CHANGES",
    "CONFIG_CHANGE_PREFIX",
    "CONSUMERS",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DEFAULT_ENTITY",
    "DELETE_TOPICS",
    "FEATURE",
    "INITIAL_PATHS",
    "ISR_CHANGES",
    "ISR_CHANGE_PREFIX",
    "LOG_DIR_EVENTS",
    "LOG_DIR_EVENT_PREFIX",
    "PREFERRED_REPLICA_ELECTION",
    "PRODUCER_ID_BLOCK",
    "REASSIGN_PARTITIONS",
    "ConfigNodeType",
    "ancestors",
    "broker_path",
    "config_change_path",
    "config_entity",
    "config_path",
    "delete_topic_path",
    "partition_path",
    "partition_state_path",
    "partitions_path",
    "sanitize",
    "topic_path",
    "unsanitize",
    "user_client_entity",
]

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = CONTROLLER_EPOCH_PATH
FEATURE: Final = "/feature"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
CONFIG_CHANGES: Final = "/config/changes"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONSUMERS: Final = "/consumers"

# To be created as sequential nodes.
CONFIG_CHANGE_PREFIX: Final = f"{CONFIG_CHANGES}/config_change_"
ISR_CHANGE_PREFIX: Final = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENT_PREFIX: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"

DEFAULT_ENTITY: Final = "<default>"  # The default entity's node name; never sanitized.
_DOTS: Final = {".": "%2E", "..": "%2E%2E"}

# Nodes with null data that exist before anything else, parents first.
INITIAL_PATHS: Final = (
    "/brokers",
    BROKER_IDS,
    BROKER_TOPICS,
    BROKER_SEQUENCE_ID,
    "/config",
    CONFIG_CHANGES,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/admin",
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
    CONSUMERS,
)


class ConfigNodeType(Enum):
    """The kinds of entities with dynamic configuration; the value is the node name."""

    TOPIC = "topics"
    BROKER = "brokers"
    CLIENT = "clients"
    USER = "users"
    IP = "ips"


def ancestors(path: str) -> list[str]:
    """The nodes that must exist before `path` can be created, top first."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]


def broker_path(broker_id: int) -> str:
    """The node of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The node of a topic's assignment and id."""
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    """The parent of a partition's state."""
    return f"{BROKER_TOPICS}/{tp.topic}/partitions/{tp.partition}"


def partition_state_path(tp: TopicPartition) -> str:
    """The node of a partition's leader and ISR."""
    return f"{BROKER_TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def delete_topic_path(topic: str) -> str:
    """The mark of a topic for deletion."""
    return f"{DELETE_TOPICS}/{topic}"


def config_entity(kind: ConfigNodeType, name: str | None) -> str:
    """The path below /config that a change notification names.

    Args:
        kind: The kind of the entity.
        name: The name of the entity; None is the default entity. A user or client may have any
            name, even that of the default's node.
    """
    return f"{kind.value}/{_node_name(name)}"


def user_client_entity(user: str | None, client: str | None) -> str:
    """As `config_entity`, for a client id of a user; None is the default of either."""
    return f"{config_entity(ConfigNodeType.USER, user)}/clients/{_node_name(client)}"


def config_path(kind: ConfigNodeType, name: str | None) -> str:
    """The node of an entity's configuration; arguments as for `config_entity`."""
    return f"/config/{config_entity(kind, name)}"


def config_change_path(entity_path: str) -> str:
    """The node that a notification's entity path refers to."""
    return f"/config/{entity_path}"


def sanitize(name: str) -> str:
    """Percent-encodes a user, client or address for use as a node name."""
    # A path must not have a part of dots alone. Kafka's encoder keeps them, its store refuses them.
    if name in _DOTS:
        return _DOTS[name]
    # quote() keeps the tilde, Kafka's encoder does not; both keep letters, digits and ._-
    return quote(name, safe="").replace("~", "%7E")


def unsanitize(node_name: str) -> str:
    """Reverses `sanitize`."""
    return unquote(node_name)


def _node_name(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else sanitize(name)
