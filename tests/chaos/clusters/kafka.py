"""Apache Kafka in KRaft mode: nodes that are broker and controller each, three or one."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.chaos.clusters.base import BROKER_PORT, SESSION_MS, START_LIMIT_S, Cluster
from tests.chaos.network import Network
from tests.chaos.nodes import Node, NodeStartError
from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing

__all__ = ["KraftBroker", "KraftCluster"]

_CLUSTER_ID = "b2RyYWRlay1jaGFvcy0wMQ"
_STARTED_LINE = "Kafka Server started"
# A coordinator that starts before it knows the leaders takes partitions for deleted and completes a
# transaction without their markers.
_SKIPPED_MARKERS = "these partitions are likely deleted already and hence can be skipped"
# Records that lack their marker end with the producer's next transaction, whichever way that goes.
_OF_SKIPPED_MARKERS = frozenset(
    {"lost-transaction", "torn-transaction", "lost-result", "aborted-read", "duplicate-result"}
)
_LEADER = re.compile(r"^LeaderId:\s+(\d+)", re.MULTILINE)


class KraftCluster(Cluster):
    """See the module's docstring."""

    kind: ClassVar[str] = "kafka"
    control_port: ClassVar[int | None] = 9093

    def __init__(
        self,
        network: Network,
        folder: Path,
        settings: Mapping[str, str],
        *,
        is_spread: bool = False,
    ) -> None:
        super().__init__(network, folder, settings, is_spread=is_spread)
        install = find_kafka(KAFKA_VERSIONS[0])
        assert install is not None, "asked for by why_missing"
        self.install: KafkaInstall = install
        for one in self.broker_ids:
            name = f"broker-{one}"
            properties = str(self.node_folder(name) / "server.properties")
            command = install.command("kafka.Kafka", properties, log_level="info")
            self.brokers[one] = Node(name, network, self.node_folder(name), command)

    @classmethod
    def why_missing(cls) -> str | None:
        version = KAFKA_VERSIONS[0]
        return None if find_kafka(version) is not None else why_missing(version)

    def start(self) -> None:
        formatting = [
            subprocess.Popen(
                self.install.command(
                    "kafka.tools.StorageTool",
                    "format", "-t", _CLUSTER_ID, "-c", str(self._write_properties(one)),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
            for one in self.broker_ids
        ]  # fmt: skip
        for process in formatting:
            output, _ = process.communicate(timeout=START_LIMIT_S)
            if process.returncode != 0:
                raise NodeStartError(f"formatting: {output.decode()}")
        self.start_brokers(*self.broker_ids)

    def controller(self) -> int | None:
        """Asks Kafka's tool; a broker's own answer names any broker in KRaft mode."""
        command = self.install.command(
            "org.apache.kafka.tools.MetadataQuorumCommand",
            "--bootstrap-server", self.bootstrap, "describe", "--status",
        )  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return None
        found = _LEADER.search(done.stdout)
        return int(found[1]) if found else None

    def known_faults(self) -> Mapping[str, frozenset[str]]:
        """Markers that a coordinator left out, though no topic was deleted."""
        for node in self.brokers.values():
            for path in sorted(node.folder.glob("output-*.log")):
                if _SKIPPED_MARKERS in path.read_text(errors="replace"):
                    return {f"{path.name} of {node.name}: {_SKIPPED_MARKERS}": _OF_SKIPPED_MARKERS}
        return {}

    def _serves(self, broker_id: int) -> bool:
        return _STARTED_LINE in self.brokers[broker_id].log() and super()._serves(broker_id)

    def _write_properties(self, broker_id: int) -> Path:
        folder = self.node_folder(f"broker-{broker_id}")
        address = self.address(broker_id)
        voters = ",".join(
            f"{one}@{self.address(one)}:{self.control_port}" for one in self.broker_ids
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(broker_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{address}:{BROKER_PORT},"
            f"CONTROLLER://{address}:{self.control_port}",
            "advertised.listeners": f"PLAINTEXT://{address}:{BROKER_PORT}",
            "controller.listener.names": "CONTROLLER",
            **self.placement(broker_id),
            # Apart, so that a broker can lose its partitions and stay a voter.
            "metadata.log.dir": str(folder / "metadata"),
            **self.replication(),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "3000",
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "1000",
            "replica.lag.time.max.ms": "6000",
            "replica.socket.timeout.ms": "5000",
            "num.recovery.threads.per.data.dir": "1",
            "log.initial.task.delay.ms": "5000",
            **self.settings,
        }
        path = folder / "server.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


class KraftBroker(KraftCluster):
    """One node."""

    kind: ClassVar[str] = "kafka-alone"
    broker_ids: ClassVar[tuple[int, ...]] = (1,)
