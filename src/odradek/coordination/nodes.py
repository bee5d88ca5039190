"""The content of the store's nodes: JSON in Kafka's form, as values. Pure.

Every parser ignores unknown fields and the order of fields. It raises `BadNodeData` for content it
cannot use, with what was expected and what was found, since any tool may write to the store.
"""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence

from odradek.coordination.json_fields import (
    INT32_MAX,
    Json,
    JsonFields,
    encode_object,
    parse_integer,
)
from odradek.errors import BadNodeData
from odradek.lazy_dataclass import dataclass
from odradek.model import (
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
    parse_uuid,
    uuid_text,
)

__all__ = [
    "BrokerNode",
    "ControllerNode",
    "FeatureNode",
    "PartitionStateNode",
    "ProducerIdBlock",
    "TopicNode",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller_epoch",
    "encode_log_dir_event",
    "encode_partitions",
    "encode_reassignments",
    "parse_cluster_id",
    "parse_config",
    "parse_config_change",
    "parse_controller_epoch",
    "parse_log_dir_event",
    "parse_partitions",
    "parse_reassignments",
]

_LOG_DIR_FAILURE = 1  # The only event Kafka defines.
_NO_QUORUM = -1  # The epoch of a KRaft controller that would migrate the store; there is none.
_FIRST_WITH_FEATURES = 5  # The version of a broker's node that has its features.
_RECOVERING = 1  # A leader recovery state; 0 is recovered.
_ENDPOINT = re.compile(r"([^:/]+)://(?:\[([^\]]*)\]|([^:\[\]]*)):(-?[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """/controller; written as version 2, as Kafka 3.9 does, read from version 1 on."""

    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        return encode_object(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": _NO_QUORUM,
            }
        )

    @classmethod
    def parse(cls, data: bytes | None) -> "ControllerNode":
        fields = JsonFields.of(data, "controller")
        return cls(fields.integer("brokerid"), fields.integer_text("timestamp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """/brokers/ids/<id>; written as version 4 or 5, read from version 1 on."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None

    def encode(self, version: int = 5) -> bytes:
        """Encodes the node; Kafka writes version 4 below `inter.broker.protocol.version` 2.7."""
        plain = SecurityProtocol.PLAINTEXT
        host, port = next(
            ((e.host, e.port) for e in self.endpoints if e.security_protocol is plain), (None, -1)
        )
        node: dict[str, Json] = {
            "version": version,
            "host": host,
            "port": port,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [endpoint.connection_string for endpoint in self.endpoints],
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.security_protocol.name for endpoint in self.endpoints
            },
        }
        if version >= _FIRST_WITH_FEATURES:
            node["features"] = {}
        if self.rack is not None:
            node["rack"] = self.rack
        return encode_object(node)

    @classmethod
    def parse(cls, data: bytes | None) -> "BrokerNode":
        fields = JsonFields.of(data, "broker")
        version = fields.integer("version")
        if not 1 <= version <= 5:
            raise BadNodeData(f"broker: expected version 1 to 5, found {version}")
        if version == 1:
            host, port = fields.text("host"), fields.integer("port")
            endpoints: tuple[Endpoint, ...] = (
                Endpoint(host, port, "PLAINTEXT", SecurityProtocol.PLAINTEXT),
            )
        else:
            protocols = fields.text_map("listener_security_protocol_map", missing={})
            endpoints = tuple(_parse_endpoint(e, protocols) for e in fields.texts("endpoints"))
        listeners = [endpoint.listener for endpoint in endpoints]
        if len(set(listeners)) != len(listeners):
            raise BadNodeData(f"broker: a listener name comes twice in {listeners}")
        return cls(
            endpoints=endpoints,
            timestamp_ms=fields.integer_text("timestamp", missing=-1),
            rack=fields.optional_text("rack"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNode:
    """/brokers/topics/<t>; written as version 3, read from version 1 on."""

    topic_id: uuid.UUID | None  # None in a node written by a tool older than topic ids.
    assignment: Mapping[int, ReplicaAssignment]

    def encode(self) -> bytes:
        assert self.topic_id is not None, "every rewrite of ours keeps the topic id"
        parts = sorted(self.assignment.items())
        return encode_object(
            {
                "version": 3,
                "topic_id": uuid_text(self.topic_id),
                "partitions": {str(p): list(a.replicas) for p, a in parts},
                "adding_replicas": {str(p): list(a.adding) for p, a in parts if a.adding},
                "removing_replicas": {str(p): list(a.removing) for p, a in parts if a.removing},
            }
        )

    @classmethod
    def parse(cls, data: bytes | None) -> "TopicNode":
        fields = JsonFields.of(data, "topic")
        partitions = fields.replica_map("partitions")
        adding = fields.replica_map("adding_replicas", missing={})
        removing = fields.replica_map("removing_replicas", missing={})
        text = fields.optional_text("topic_id")
        try:
            topic_id = None if text is None else parse_uuid(text)
        except ValueError as error:
            raise BadNodeData(f"topic: topic_id: {error}") from None
        return cls(
            topic_id=topic_id,
            assignment={
                p: ReplicaAssignment(replicas, adding.get(p, ()), removing.get(p, ()))
                for p, replicas in sorted(partitions.items())
            },
        )


@dataclass(frozen=True, slots=True)
class PartitionStateNode:
    """/brokers/topics/<t>/partitions/<p>/state."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int  # Of the controller that decided it.

    def encode(self) -> bytes:
        state = self.leader_and_isr
        node: dict[str, Json] = {
            "controller_epoch": self.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
        if state.is_recovering:  # Kafka, too, leaves the field out otherwise.
            node["leader_recovery_state"] = _RECOVERING
        return encode_object(node)

    @classmethod
    def parse(cls, data: bytes | None, version: int) -> "PartitionStateNode":
        """Parses a node whose data version is `version`."""
        fields = JsonFields.of(data, "partition state")
        state = LeaderAndIsr(
            leader=fields.integer("leader"),
            leader_epoch=fields.integer("leader_epoch"),
            isr=fields.integers("isr"),
            partition_version=version,
            is_recovering=fields.optional_integer("leader_recovery_state") == _RECOVERING,
        )
        return cls(state, fields.integer("controller_epoch"))


@dataclass(frozen=True, slots=True)
class FeatureNode:
    """/feature (KIP-584); version 1 has a least level, too, which Kafka sets to the level."""

    levels: Mapping[str, int]  # The finalized level of each feature.
    is_enabled: bool = True  # Otherwise finalized levels do not count.
    version: int = 2

    def encode(self) -> bytes:
        features: dict[str, Json] = {}
        for name, level in self.levels.items():
            features[name] = {"max_version_level": level}
            if self.version == 1:
                features[name] = {"max_version_level": level, "min_version_level": level}
        return encode_object(
            {"version": self.version, "status": int(self.is_enabled), "features": features}
        )

    @classmethod
    def parse(cls, data: bytes | None) -> "FeatureNode":
        fields = JsonFields.of(data, "feature")
        version, status = fields.integer("version"), fields.integer("status")
        if version not in (1, 2) or status not in (0, 1):
            raise BadNodeData(
                "feature: expected version 1 or 2 and status 0 or 1, found version"
                f" {version} and status {status}"
            )
        levels = {
            name: JsonFields.check(value, f"feature {name}").integer("max_version_level")
            for name, value in fields.items("features")
        }
        return cls(levels, bool(status), version)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """/latest_producer_id_block, which is null before the first block."""

    broker_id: int
    first_id: int
    last_id: int  # Inclusive, as in the node.

    def encode(self) -> bytes:
        return encode_object(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first_id),
                "block_end": str(self.last_id),
            }
        )

    @classmethod
    def parse(cls, data: bytes | None) -> "ProducerIdBlock | None":
        if data is None:
            return None
        fields = JsonFields.of(data, "producer id block")
        block = cls(
            broker_id=fields.integer("broker"),
            first_id=fields.integer_text("block_start"),
            last_id=fields.integer_text("block_end"),
        )
        if not 0 <= block.first_id <= block.last_id:
            raise BadNodeData(f"producer id block: {block.first_id} to {block.last_id}")
        return block


def encode_controller_epoch(epoch: int) -> bytes:
    """Encodes /controller_epoch as decimal text."""
    return str(epoch).encode("ascii")


def parse_controller_epoch(data: bytes | None) -> int:
    """Parses /controller_epoch: decimal text."""
    return parse_integer((data or b"").decode("ascii", "replace"), "controller epoch", INT32_MAX)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encodes the overrides of a /config/<type>/<entity>."""
    return encode_object({"version": 1, "config": dict(config)})


def parse_config(data: bytes | None) -> dict[str, str]:
    """Parses a /config/<type>/<entity>; null data means no overrides.

    Raises:
        BadNodeData: It is malformed; the message omits the content, which may have passwords.
    """
    if data is None:
        return {}
    try:
        return JsonFields.of(data, "config").text_map("config")
    except BadNodeData:
        raise BadNodeData(
            f"config: expected a JSON object whose field config maps keys to text, found"
            f" {len(data)} bytes of another form"
        ) from None


def encode_config_change(entity_path: str) -> bytes:
    """Encodes the notification that an entity below /config was altered."""
    return encode_object({"version": 2, "entity_path": entity_path})


def parse_config_change(data: bytes | None) -> str:
    """Parses a /config/changes/config_change_<seq> into the entity's path below /config."""
    fields = JsonFields.of(data, "config change")
    if (version := fields.integer("version")) != 2:
        raise BadNodeData(f"config change: expected version 2, found {version}")
    return fields.text("entity_path")


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encodes /cluster/id."""
    return encode_object({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes | None) -> str:
    """Parses /cluster/id."""
    return JsonFields.of(data, "cluster id").text("id")


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encodes an ISR change notification, or a preferred replica election."""
    items: list[Json] = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return encode_object({"version": 1, "partitions": items})


def parse_partitions(data: bytes | None) -> list[TopicPartition]:
    """Parses an ISR change notification, or a preferred replica election."""
    return [tp for tp, _ in _parse_partition_list(data, "partition list")]


def encode_reassignments(reassignments: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Encodes /admin/reassign_partitions."""
    items: list[Json] = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in reassignments.items()
    ]
    return encode_object({"version": 1, "partitions": items})


def parse_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Parses /admin/reassign_partitions: the target replicas of each partition."""
    parsed = _parse_partition_list(data, "reassignment")
    return {tp: fields.integers("replicas") for tp, fields in parsed}


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encodes the notification that a log directory of `broker_id` failed."""
    return encode_object({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def parse_log_dir_event(data: bytes | None) -> int:
    """Parses a log directory notification into the id of the broker."""
    return JsonFields.of(data, "log dir event").integer("broker")


def _parse_partition_list(
    data: bytes | None, what: str
) -> list[tuple[TopicPartition, "JsonFields"]]:
    items = JsonFields.of(data, what).array("partitions")
    parsed = []
    for item in items:
        fields = JsonFields.check(item, what)
        partition = fields.integer("partition")
        if partition < 0:
            raise BadNodeData(f"{what}: partition {partition}")
        parsed.append((TopicPartition(fields.text("topic"), partition), fields))
    return parsed


def _parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise BadNodeData(f"broker: expected an endpoint NAME://host:port, found {text!r}")
    listener, bracketed, plain, port = match.groups()
    protocol = protocols.get(listener, listener)  # Before version 4 the name was the protocol.
    if protocol not in SecurityProtocol.__members__:
        raise BadNodeData(f"broker: listener {listener} has unknown protocol {protocol!r}")
    host = plain if bracketed is None else bracketed
    return Endpoint(host, int(port), listener, SecurityProtocol[protocol])
