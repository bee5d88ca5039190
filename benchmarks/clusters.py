"""The clusters that are measured: three brokers each, started as those of `tests.chaos` are.

Odradek and Apache Kafka 3.9.1 stand on three ZooKeeper servers each, Apache Kafka 4.3.1 consists of
nodes that are broker and controller. Kafka's brokers get the heap and collector of their own start
script. Clusters have addresses 127.0.0.N of their own, so that several run at the same time. The
processes die with the one that started them, even if it is killed.
"""

import contextlib
import re
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.servers import DefaultKafka, Server, cpu_seconds_of, resident_mb_of, with_bytecode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import parse_message
from odradek.protocol.envelope import encode_request
from odradek.protocol.headers import RequestHeader, parse_response_header
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.chaos.admin import Admin
from tests.chaos.clusters.base import BROKER_IDS, BROKER_PORT, SESSION_MS, START_LIMIT_S, Cluster
from tests.chaos.clusters.kafka import KraftCluster
from tests.chaos.clusters.odradek import OdradekCluster
from tests.chaos.clusters.zookeeper import (
    CLIENT_PORT,
    STORE_HOSTS,
    ask,
    is_serving,
    store_nodes,
    why_no_zookeeper,
)
from tests.chaos.network import Network
from tests.chaos.nodes import Node, NodeStartError, wait_until
from tests.support.apache_kafka import KafkaInstall, find_kafka, why_missing

__all__ = [
    "BrokerView",
    "ClusterServer",
    "start_kafka_on_zookeeper",
    "start_kraft",
    "start_odradek_cluster",
    "why_no_clusters",
]

_ZOOKEEPER_KAFKA = "3.9.1"
_POLL_S = 0.02
_CALL_S = 30
_CREATE_LIMIT_S = 120
_METADATA_VERSION = 7
_CHAOS_ROOT = "/chaos"
# What a server tells of a connection: its session, and when it was answered last.
_HEARD = re.compile(r"sid=(?P<session>0x[0-9a-f]+),.*lresp=(?P<time>\d+)")


class ZooKeeperKafkaCluster(Cluster):
    """Apache Kafka 3.9.1, three brokers on three ZooKeeper servers."""

    kind: ClassVar[str] = "kafka-zookeeper"
    store_hosts: ClassVar[tuple[str, ...]] = STORE_HOSTS

    def __init__(self, network: Network, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(network, folder, settings)
        self.install = _default_kafka(_ZOOKEEPER_KAFKA)
        self.stores = store_nodes(network, folder)
        for one in BROKER_IDS:
            name = f"broker-{one}"
            properties = str(self._write_properties(one))
            command = self.install.command("kafka.Kafka", properties, log_level="info")
            self.brokers[one] = Node(name, network, self.node_folder(name), command)

    @classmethod
    def why_missing(cls) -> str | None:
        if find_kafka(_ZOOKEEPER_KAFKA) is None:
            return why_missing(_ZOOKEEPER_KAFKA)
        return why_no_zookeeper()

    def start(self) -> None:
        self.start_stores(*self.stores)
        if not wait_until(lambda: is_serving(self.network, self.stores), START_LIMIT_S):
            raise NodeStartError("ZooKeeper does not serve")
        self.start_brokers(*BROKER_IDS)

    def controller(self) -> int | None:
        return None  # Told by the metadata of its brokers.

    def _serves(self, broker_id: int) -> bool:
        started = f"[KafkaServer id={broker_id}] started"
        return started in self.brokers[broker_id].log() and super()._serves(broker_id)

    def _write_properties(self, broker_id: int) -> Path:
        folder = self.node_folder(f"broker-{broker_id}")
        folder.mkdir(parents=True, exist_ok=True)
        stores = ",".join(f"{self.network.address(host)}:{CLIENT_PORT}" for host in STORE_HOSTS)
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.address(broker_id)}:{BROKER_PORT}",
            **self.placement(broker_id),
            "zookeeper.connect": f"{stores}{_CHAOS_ROOT}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "auto.create.topics.enable": "false",
            "replica.lag.time.max.ms": "6000",
            "replica.socket.timeout.ms": "5000",
            **self.settings,
        }
        path = folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterServer(Server):
    """Three brokers that answer; their CPU time and memory are those of the three together."""

    cluster: Cluster
    admin: Admin

    def cpu_seconds(self) -> float:
        return sum(self.cpu_seconds_of_each())

    def cpu_seconds_of_each(self) -> list[float]:
        return [cpu_seconds_of(node.pid) for node in self.cluster.brokers.values()]

    def resident_mb(self) -> float:
        return sum(resident_mb_of(node.pid) for node in self.cluster.brokers.values())

    def stores_resident_mb(self) -> float:
        return sum(resident_mb_of(node.pid) for node in self.cluster.stores.values())

    def address_of(self, broker_id: int) -> str:
        return f"{self.cluster.address(broker_id)}:{BROKER_PORT}"

    def leader_of(self, topic: str) -> int:
        """The leader of partition 0."""
        leader = self.admin.leader(topic, 0)
        assert leader is not None, f"{topic} has no leader"
        return leader

    def view_of(self, broker_id: int) -> "BrokerView":
        return BrokerView(self.cluster.address(broker_id))

    def controller_id(self) -> int:
        """As the first broker tells it."""
        view = self.view_of(BROKER_IDS[0])
        self.wait_for(lambda: view.metadata().controller_id >= 0, "there is a controller", _CALL_S)
        found = view.metadata().controller_id
        view.close()
        return found

    def session_of(self, path: str) -> str | None:
        """The session of an ephemeral node of the brokers; None if there is no such node."""
        for host in STORE_HOSTS:
            session = None
            for line in ask(self.cluster.network, host, "dump").splitlines():
                if line.startswith("0x"):
                    session = line.strip().rstrip(":")
                elif line.strip() == f"{_CHAOS_ROOT}/{path}":
                    return session
        return None

    def wait_until_heard(self, session: str) -> None:
        """Until a server of the store hears of a session."""
        heard = self._last_heard(session)
        self.wait_for(
            lambda: self._last_heard(session) != heard, f"{session} is heard", _CALL_S, 0.005
        )

    def _last_heard(self, session: str) -> str | None:
        """The time at which the store answered a session last, by the clock of its server."""
        for host in STORE_HOSTS:
            for line in ask(self.cluster.network, host, "cons").splitlines():
                found = _HEARD.search(line)
                if found is not None and int(found["session"], 16) == int(session, 16):
                    return found["time"]
        return None

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic and waits until it is whole."""
        self.ask_to_create(topic, partitions, limit_s=_CREATE_LIMIT_S)
        self.wait_until_whole(topic)

    def create_led_by(self, topic: str, replicas: Sequence[int]) -> None:
        """Creates a topic with one partition, whose leader is the first of the brokers."""
        new = NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)])
        self._create(new, _CREATE_LIMIT_S)
        self.wait_until_whole(topic)

    def ask_to_create(self, topic: str, partitions: int, *, limit_s: float) -> None:
        """Sends the request and waits for its answer."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=len(BROKER_IDS))
        self._create(new, limit_s)

    def _create(self, new: NewTopic, limit_s: float) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        # The socket's limit is the same as that of the operation, by the client's own rule.
        client.create_topics([new], operation_timeout=limit_s, request_timeout=limit_s)[
            new.topic
        ].result()

    def wait_until_whole(self, topic: str) -> None:
        """Until each partition has a leader and all its replicas in sync."""
        self.wait_for(lambda: self.admin.is_whole(topic), f"{topic} is whole", _CREATE_LIMIT_S, 0.5)

    def remove(self, topic: str) -> None:
        """Deletes a topic and waits until its files are gone, so that disks do not fill."""
        if not self.admin.delete_topic(topic):
            raise TimeoutError(f"{topic} could not be deleted")
        folders = [path for one in BROKER_IDS for path in self.cluster.log_folders(one)]
        wait_until(lambda: not any(any(one.glob(f"{topic}-*")) for one in folders), 60)

    def restart(self, broker_id: int) -> None:
        self.cluster.start_brokers(broker_id)

    def wait_for(
        self, condition: Callable[[], bool], what: str, limit_s: float, pause_s: float = _POLL_S
    ) -> None:
        """Asks again and again.

        Raises:
            TimeoutError: It did not come to hold.
        """
        if not wait_until(condition, limit_s, pause_s):
            raise TimeoutError(f"not within {limit_s} s: {what}")


class BrokerView:
    """The metadata of one broker, asked over a connection of its own."""

    def __init__(self, host: str) -> None:
        self._socket = socket.create_connection((host, BROKER_PORT), timeout=_CALL_S)

    def metadata(self, *topics: str) -> MetadataResponse:
        header = RequestHeader(ApiKey.METADATA, _METADATA_VERSION, 1, "view")
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        payload = encode_request(header, request)
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        _, start = parse_response_header(answer, ApiKey.METADATA, _METADATA_VERSION)
        return parse_message(MetadataResponse, answer, _METADATA_VERSION, start)[0]

    def is_led(self, topic: str, partitions: int, dead: int = -1) -> bool:
        """Whether each partition has a leader, and none of them the dead broker."""
        (told,) = self.metadata(topic).topics
        leaders = [one.leader_id for one in told.partitions]
        return len(leaders) == partitions and all(one not in (-1, dead) for one in leaders)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        answer = bytearray()
        while len(answer) < size:
            piece = self._socket.recv(size - len(answer))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            answer += piece
        return bytes(answer)


def why_no_clusters(*, is_beside_kafka: bool) -> str | None:
    """The reason why these clusters cannot be run here; None if they can."""
    kinds: list[type[Cluster]] = [OdradekCluster]
    if is_beside_kafka:
        kinds += [KraftCluster, ZooKeeperKafkaCluster]
    return next(filter(None, (kind.why_missing() for kind in kinds)), None)


def start_odradek_cluster(
    settings: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[ClusterServer]:
    """Three processes `odradek serve` of this tree."""
    return _running(OdradekCluster, 100, settings)


def start_kraft(
    settings: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[ClusterServer]:
    """Apache Kafka 4.3.1, three nodes."""
    return _running(KraftCluster, 120, settings)


def start_kafka_on_zookeeper(
    settings: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[ClusterServer]:
    """Apache Kafka 3.9.1 in ZooKeeper mode."""
    return _running(ZooKeeperKafkaCluster, 140, settings)


@contextlib.contextmanager
def _running(
    kind: type[Cluster], first: int, settings: Mapping[str, str] | None
) -> Iterator[ClusterServer]:
    """A cluster whose hosts have the addresses from 127.0.0.`first` on."""
    hosts = (*(f"unused-{number}" for number in range(first - 11)), *kind.hosts())
    network = Network(hosts, can_cut=False)
    with tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as folder:
        cluster = kind(network, Path(folder), settings or {})
        if isinstance(cluster, KraftCluster):
            install = _default_kafka(cluster.install.version)
            for one, node in cluster.brokers.items():
                properties = str(cluster.node_folder(f"broker-{one}") / "server.properties")
                node.command = install.command("kafka.Kafka", properties, log_level="info")
        for node in (*cluster.brokers.values(), *cluster.stores.values()):
            node.environment = with_bytecode()
            if shutil.which("setpriv"):
                node.command = ("setpriv", "--pdeathsig", "KILL", *node.command)
        try:
            cluster.start()
            admin = Admin(cluster.bootstrap, Path(folder))
            if not wait_until(lambda: len(admin.brokers()) == len(BROKER_IDS), START_LIMIT_S):
                raise NodeStartError("the brokers do not find each other")
            yield ClusterServer(
                bootstrap=cluster.bootstrap,
                pid=cluster.brokers[BROKER_IDS[0]].pid,
                data=cluster.log_folders(BROKER_IDS[0])[0],
                cluster=cluster,
                admin=admin,
            )
        finally:
            cluster.stop()


def _default_kafka(version: str) -> KafkaInstall:
    found = find_kafka(version)
    assert found is not None, "asked for by why_no_clusters"
    return DefaultKafka(version=found.version, java=found.java, lib_dir=found.lib_dir)
