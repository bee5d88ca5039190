"""The immutable image of the cluster: the only metadata a broker acts on.

An image is replaced, never edited: `odradek.metadata.delta` makes the next one out of it and a
delta, sharing all unchanged parts, so a reader may keep one for as long as it likes. Its maps are
never edited, either: a delta makes persistent maps, and code that makes an image from dicts must
not edit them afterwards.

Invariants:

1. `topic_names` holds exactly the ids of the topics that have one, each once.
2. A topic has at least one partition; it is removed with its last one, and so are its id and
   configs.
3. `controller_epoch` never falls from one image to the next.
"""

import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from odradek.errors import ApiError, ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.model import NO_LEADER, Endpoint, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.security.acls import AclBinding

__all__ = [
    "NO_NODE",
    "ClusterImage",
    "ConfigResource",
    "LiveBroker",
    "Node",
    "PartitionState",
    "QuotaEntity",
    "ScramCredential",
    "ScramKey",
    "TopicImage",
]


class Node(NamedTuple):
    """One broker on one listener, as clients see it."""

    id: int
    host: str
    port: int
    rack: str | None = None


NO_NODE = Node(NO_LEADER, "", -1)  # Marks a broker that cannot be reached.


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker.

    Raises:
        ApiError: A listener name is not unique.
    """

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    nodes: Mapping[str, Node] = field(init=False, repr=False, compare=False)  # By listener.

    def __post_init__(self) -> None:
        nodes = {e.listener: Node(self.id, e.host, e.port, self.rack) for e in self.endpoints}
        if len(nodes) != len(self.endpoints):
            names = [endpoint.listener for endpoint in self.endpoints]
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"broker {self.id}: a listener name comes twice in {names}",
            )
        object.__setattr__(self, "nodes", nodes)

    def node(self, listener: str) -> Node:
        """The broker on a listener.

        Raises:
            ApiError: It has no such listener.
        """
        node = self.nodes.get(listener)
        if node is None:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {self.id} has no listener {listener}, only {sorted(self.nodes)}",
            )
        return node


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as the controller last announced it."""

    topic: str
    partition: int
    leader: int  # Or NO_LEADER; or LEADER_DURING_DELETE in a delta that removes the partition.
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]  # Ordered; the first is the preferred leader.
    partition_version: int = 0  # Store version or partition epoch: compared only.
    controller_epoch: int = 0  # Of the controller that decided it.
    offline_replicas: tuple[int, ...] = ()  # Replicas on dead brokers or failed log directories.
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions."""

    name: str
    id: uuid.UUID | None  # None only in a cluster whose controller does not send ids.
    partitions: Mapping[int, PartitionState]


class ConfigResource(NamedTuple):
    """One entity with dynamic configuration; the default of all brokers has the empty name."""

    type: ConfigResourceType
    name: str


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients a quota is for: sorted (type, name) pairs, types user, client-id and ip.

    A name of None is the default for all that have no entry of their own.
    """

    components: tuple[tuple[str, str | None], ...]

    def __post_init__(self) -> None:
        types = [kind for kind, _ in self.components]
        assert types == sorted(set(types)), "components are sorted and no type comes twice"


class ScramKey(NamedTuple):
    """The key of a credential: a user and a mechanism (the number of a `ScramMechanism`)."""

    user: str
    mechanism: int


class ScramCredential(NamedTuple):
    """The data a broker needs to check a SCRAM login; never the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Omits keys and salt, which would help to guess the password or to pose as a server."""
        return f"ScramCredential(iterations={self.iterations})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All metadata a broker has of its cluster at one moment."""

    controller_id: int | None = None  # None: there is none, or it is not known yet.
    controller_epoch: int = 0  # Highest seen; deltas of an older controller are refused.
    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)  # Live ones, by id.
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)
    # Overrides; a resource without any is not in the map.
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict, repr=False)
    # The topic id for which the configs of a topic name were read, if known.
    config_owners: Mapping[str, uuid.UUID] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls: frozenset[AclBinding] = frozenset()
    scram: Mapping[ScramKey, ScramCredential] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)  # Finalized levels, above 0.
    features_epoch: int = -1  # Grows with every change of them; -1: not known.

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """The state of a partition, None if unknown."""
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """The topic with this id, None if unknown."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The overrides of a topic."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, topic), {})

    def holds_configs_of(self, topic: str, topic_id: uuid.UUID) -> bool:
        """Whether the configs under this name are known to be those of the topic with this id.

        A topic's creation is not notified: a caller that gets False reads the overrides before it
        makes the log; otherwise a compacted topic would start with deletion by time.
        """
        return self.config_owners.get(topic) == topic_id
