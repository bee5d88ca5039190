"""What a campaign does with a cluster, whatever it is made of."""

import contextlib
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.chaos.network import Network
from tests.chaos.nodes import Node

__all__ = ["BROKER_IDS", "BROKER_PORT", "SESSION_MS", "Cluster", "rack_of"]

BROKER_IDS = (1, 2, 3)
BROKER_PORT = 9092
# After so long without a sign of life a broker is taken for dead.
SESSION_MS = 6000
START_LIMIT_S = 180
# The data directories of each broker, in its folder.
LOG_FOLDERS = ("logs", "logs-2")


class Cluster(ABC):
    """Brokers, and maybe servers that coordinate them.

    Three, with factor 3 and two in sync at least, unless a class says otherwise.

    Attributes:
        is_spread: Each broker has two data directories, and a rack from which consumers in it read.
        brokers: By broker id.
        stores: The servers that hold the metadata, if they are processes of their own.
        control_port: The port by which a broker reaches the controllers, if it has one of its own.
    """

    kind: ClassVar[str]
    broker_ids: ClassVar[tuple[int, ...]] = BROKER_IDS
    store_hosts: ClassVar[tuple[str, ...]] = ()
    control_port: ClassVar[int | None] = None

    def __init__(
        self,
        network: Network,
        folder: Path,
        settings: Mapping[str, str],
        *,
        is_spread: bool = False,
    ) -> None:
        self.is_spread = is_spread
        self.network = network
        self.folder = folder
        self.settings = dict(settings)
        self.stores: dict[int, Node] = {}
        self.brokers: dict[int, Node] = {}

    @classmethod
    def hosts(cls) -> tuple[str, ...]:
        """The hosts that it needs, with one for clients."""
        return (*(f"broker-{one}" for one in cls.broker_ids), *cls.store_hosts, "clients")

    def placement(self, broker_id: int) -> dict[str, str]:
        """Where a broker and its data are."""
        folders = {"log.dirs": ",".join(map(str, self.log_folders(broker_id)))}
        if not self.is_spread:
            return folders
        return {
            **folders,
            "broker.rack": rack_of(broker_id),
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }

    def replication(self) -> dict[str, str]:
        """The settings of each broker that follow from their number."""
        factor = str(len(self.broker_ids))
        in_sync = str(max(1, len(self.broker_ids) - 1))
        return {
            "default.replication.factor": factor,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": factor,
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": "3",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }

    @classmethod
    @abstractmethod
    def why_missing(cls) -> str | None:
        """The reason why it cannot be run here; None if it can."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.address(one)}:{BROKER_PORT}" for one in self.broker_ids)

    def address(self, broker_id: int) -> str:
        return self.network.address(f"broker-{broker_id}")

    def node_folder(self, name: str) -> Path:
        return self.folder / name

    @abstractmethod
    def start(self) -> None:
        """Starts everything and waits until it serves."""

    def start_brokers(self, *broker_ids: int) -> None:
        """Starts brokers at once and waits until each serves."""
        for one in broker_ids:
            self.brokers[one].start()
        for one in broker_ids:
            self.brokers[one].wait_until_ready(lambda one=one: self._serves(one), START_LIMIT_S)  # type: ignore[misc]  # mypy wants no default here

    def start_stores(self, *numbers: int) -> None:
        """Starts servers of the store; they serve when there are enough of them."""
        for one in numbers:
            self.stores[one].start()

    @abstractmethod
    def controller(self) -> int | None:
        """The broker that is the controller now; None if there is none, or it cannot be told."""

    def known_faults(self) -> Mapping[str, frozenset[str]]:
        """Faults of the cluster itself that its logs show: the reason, and the anomalies of it."""
        return {}

    def store_leader(self) -> int | None:
        """The server that leads the store."""
        return None

    def active_controllers(self) -> Mapping[str, int] | None:
        """ActiveControllerCount of each broker; None where it is not published."""
        return None

    def log_folders(self, broker_id: int) -> tuple[Path, ...]:
        """The data directories; each has a folder for each of its partitions."""
        names = LOG_FOLDERS if self.is_spread else LOG_FOLDERS[:1]
        return tuple(self.node_folder(f"broker-{broker_id}") / name for name in names)

    def empty(self, broker_id: int) -> None:
        """Removes all partitions of a broker that does not run."""
        assert not self.brokers[broker_id].is_running
        for path in (one for folder in self.log_folders(broker_id) for one in folder.iterdir()):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("meta.properties", "bootstrap.checkpoint"):
                path.unlink()

    def stop(self) -> None:
        """Ends all processes without warning."""
        for node in (*self.brokers.values(), *self.stores.values()):
            node.kill()

    def _serves(self, broker_id: int) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((self.address(broker_id), BROKER_PORT), timeout=1).close()
            return True
        return False


def rack_of(broker_id: int) -> str:
    """Each broker is a rack of its own."""
    return f"rack-{broker_id}"
