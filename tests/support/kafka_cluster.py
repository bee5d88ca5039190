"""Three real Apache Kafka brokers that replicate to each other, to be killed and brought back.

Broker 1 is the controller as well and must live; each broker is a rack of its own, ``rack-1`` to
``rack-3``, and hands readers over to the replica in their rack.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.apache_kafka import BrokerStartError, KafkaInstall
from tests.support.ports import free_ports

__all__ = ["KafkaCluster", "running_cluster"]

_CLUSTER_ID = "b2RyYWRlay10ZXN0cy0wMw"
_NODE_IDS = (1, 2, 3)
_START_TIMEOUT_S = 180  # Three at once on two busy cores.
_STOP_TIMEOUT_S = 90
_STARTED_LINE = "Kafka Server started"


@dataclass(slots=True)
class KafkaCluster:
    """Brokers that answer, by node id."""

    install: KafkaInstall
    data_dir: Path
    ports: dict[int, int]
    controller_port: int
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def format(self) -> None:
        """Prepare the directories of all brokers."""
        formatting = {
            node_id: subprocess.Popen(
                self.install.command(
                    "kafka.tools.StorageTool",
                    "format", "-t", _CLUSTER_ID, "-c", str(self._write_properties(node_id)),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
            for node_id in self.ports
        }  # fmt: skip
        for node_id, process in formatting.items():
            output, _ = process.communicate(timeout=_START_TIMEOUT_S)
            if process.returncode != 0:
                raise BrokerStartError(f"formatting broker {node_id}: {output.decode()}")

    def start(self, *node_ids: int) -> None:
        """Start brokers at once and wait until all answer."""
        for node_id in node_ids:
            with self._log_path(node_id).open("wb") as log:
                self._processes[node_id] = subprocess.Popen(
                    self.install.command(
                        "kafka.Kafka",
                        str(self._node_dir(node_id) / "server.properties"),
                        log_level="info",
                    ),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                )
        deadline = time.monotonic() + _START_TIMEOUT_S
        for node_id in node_ids:
            while not self._has_started(node_id):
                is_alive = self._processes[node_id].poll() is None
                if not is_alive or time.monotonic() > deadline:
                    tail = self._log_path(node_id).read_text(errors="replace")[-4000:]
                    raise BrokerStartError(f"broker {node_id} did not start:\n{tail}")
                time.sleep(0.1)

    def kill(self, node_id: int) -> None:
        """End a broker without warning (SIGKILL)."""
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def stop(self) -> None:
        """End all without warning: nobody looks at what they leave behind."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(_STOP_TIMEOUT_S)

    def _has_started(self, node_id: int) -> bool:
        if _STARTED_LINE not in self._log_path(node_id).read_text(errors="replace"):
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.ports[node_id]), timeout=1):
                return True
        except OSError:
            return False

    def _write_properties(self, node_id: int) -> Path:
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"
        is_controller = node_id == _NODE_IDS[0]
        properties = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(node_id),
            "broker.rack": f"rack-{node_id}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{self.controller_port}"
            if is_controller
            else listener,
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._node_dir(node_id) / "logs"),
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "min.insync.replicas": "2",
            "group.initial.rebalance.delay.ms": "0",
            # Leaders move when the test says so.
            "auto.leader.rebalance.enable": "false",
            "num.recovery.threads.per.data.dir": "1",
        }
        path = self._node_dir(node_id) / "server.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _node_dir(self, node_id: int) -> Path:
        return self.data_dir / f"broker-{node_id}"

    def _log_path(self, node_id: int) -> Path:
        return self._node_dir(node_id) / "broker.log"


@contextlib.contextmanager
def running_cluster(install: KafkaInstall, data_dir: Path) -> Iterator[KafkaCluster]:
    """Three brokers on free loopback ports.

    Raises:
        BrokerStartError: one exited or did not answer in time.
    """
    controller_port, *ports = free_ports(1 + len(_NODE_IDS))
    cluster = KafkaCluster(
        install, data_dir, dict(zip(_NODE_IDS, ports, strict=True)), controller_port
    )
    try:
        cluster.format()
        cluster.start(*_NODE_IDS)
        yield cluster
    finally:
        cluster.stop()
