"""Odradek: brokers started by ``odradek serve --config``, three on ZooKeeper or one by itself."""

import contextlib
import importlib.util
import re
import socket
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.chaos.clusters.base import BROKER_PORT, SESSION_MS, START_LIMIT_S, Cluster
from tests.chaos.clusters.zookeeper import (
    CLIENT_PORT,
    STORE_HOSTS,
    is_serving,
    mode_of,
    store_nodes,
    why_no_zookeeper,
)
from tests.chaos.network import Network
from tests.chaos.nodes import Node, NodeStartError, wait_until

__all__ = ["OdradekBroker", "OdradekCluster"]

METRICS_PORT = 9404
_ACTIVE = re.compile(
    r"^kafka_controller_kafkacontroller_activecontrollercount(?:\{[^}]*\})? (\d+)",
    re.MULTILINE | re.IGNORECASE,
)


class OdradekCluster(Cluster):
    """See the module's docstring."""

    kind: ClassVar[str] = "odradek"
    store_hosts: ClassVar[tuple[str, ...]] = STORE_HOSTS

    def __init__(
        self,
        network: Network,
        folder: Path,
        settings: Mapping[str, str],
        *,
        is_spread: bool = False,
    ) -> None:
        super().__init__(network, folder, settings, is_spread=is_spread)
        if self.store_hosts:
            self.stores = store_nodes(network, folder)
        for one in self.broker_ids:
            name = f"broker-{one}"
            command = [
                sys.executable, "-m", "odradek.cli.main",
                "serve", "--config", str(self._write_properties(one)),
            ]  # fmt: skip
            self.brokers[one] = Node(name, network, self.node_folder(name), command)

    @classmethod
    def why_missing(cls) -> str | None:
        if importlib.util.find_spec("odradek.coordination.zookeeper") is None:
            return "this Odradek has no ZooKeeper engine"
        return why_no_zookeeper()

    def start(self) -> None:
        self.start_stores(*self.stores)
        if not wait_until(lambda: is_serving(self.network, self.stores), START_LIMIT_S):
            logs = "\n".join(node.log()[-2000:] for node in self.stores.values())
            raise NodeStartError(f"ZooKeeper does not serve:\n{logs}")
        self.start_brokers(*self.broker_ids)

    def controller(self) -> int | None:
        """The one broker that says it is."""
        counts = self.active_controllers()
        active = [int(one) for one, count in counts.items() if count == 1]
        return active[0] if len(active) == 1 else None

    def store_leader(self) -> int | None:
        for number, node in self.stores.items():
            if mode_of(self.network, node.name) == "leader":
                return number
        return None

    def active_controllers(self) -> Mapping[str, int]:
        """Read off the page of metrics of each broker; one that does not answer has none."""
        counts = {}
        for one in self.broker_ids:
            found = None
            with contextlib.suppress(OSError, socket.timeout):
                url = f"http://{self.address(one)}:{METRICS_PORT}/metrics"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    found = _ACTIVE.search(answer.read().decode())
            counts[str(one)] = int(found[1]) if found else 0
        return counts

    def _store_settings(self) -> dict[str, str]:
        stores = ",".join(f"{self.network.address(host)}:{CLIENT_PORT}" for host in STORE_HOSTS)
        return {
            "zookeeper.connect": f"{stores}/chaos",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }

    def _write_properties(self, broker_id: int) -> Path:
        folder = self.node_folder(f"broker-{broker_id}")
        folder.mkdir(parents=True, exist_ok=True)
        address = self.address(broker_id)
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{address}:{BROKER_PORT}",
            "inter.broker.listener.name": "PLAINTEXT",
            **self.placement(broker_id),
            **self._store_settings(),
            **self.replication(),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "3000",
            "auto.create.topics.enable": "false",
            "replica.lag.time.max.ms": "6000",
            "replica.socket.timeout.ms": "5000",
            "odradek.metrics.port": str(METRICS_PORT),
            "odradek.metrics.host": address,
            **self.settings,
        }
        path = folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


class OdradekBroker(OdradekCluster):
    """One broker, which keeps its metadata itself."""

    kind: ClassVar[str] = "odradek-alone"
    broker_ids: ClassVar[tuple[int, ...]] = (1,)
    store_hosts: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def why_missing(cls) -> str | None:
        return None

    def start(self) -> None:
        self.start_brokers(*self.broker_ids)

    def _store_settings(self) -> dict[str, str]:
        return {}
