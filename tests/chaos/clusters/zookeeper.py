"""Three ZooKeeper servers, from Debian's package."""

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.network import Network
from tests.chaos.nodes import Node

__all__ = [
    "CLIENT_PORT",
    "STORE_HOSTS",
    "ask",
    "is_serving",
    "mode_of",
    "store_nodes",
    "why_no_zookeeper",
]

CLIENT_PORT = 2181
STORE_HOSTS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
_JARS = "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar"
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def why_no_zookeeper() -> str | None:
    """The reason why there is no ZooKeeper here; None if there is."""
    if shutil.which("java") is None:
        return "no java on the path, which running ZooKeeper needs"
    if not Path("/usr/share/java/zookeeper.jar").exists():
        return "no ZooKeeper here; Debian's package zookeeper has it"
    return None


def store_nodes(network: Network, folder: Path) -> dict[int, Node]:
    """The servers, ready to be started; their data is in their folders."""
    nodes = {}
    peers = [
        f"server.{number}={network.address(host)}:2888:3888"
        for number, host in enumerate(STORE_HOSTS, 1)
    ]
    for number, host in enumerate(STORE_HOSTS, 1):
        home = folder / host
        data = home / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{number}\n")
        config = home / "zoo.cfg"
        lines = [
            "tickTime=500",
            "initLimit=40",
            "syncLimit=10",
            f"dataDir={data}",
            f"clientPort={CLIENT_PORT}",
            f"clientPortAddress={network.address(host)}",
            "maxSessionTimeout=60000",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr,mntr,ruok,dump,cons",
            *peers,
        ]
        config.write_text("\n".join(lines) + "\n")
        command = [
            "java", "-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", _JARS, _MAIN, str(config),
        ]  # fmt: skip
        nodes[number] = Node(host, network, home, command)
    return nodes


def ask(network: Network, host: str, word: str) -> str:
    """What a server says to one of its four-letter commands; empty if it does not answer."""
    try:
        with socket.create_connection((network.address(host), CLIENT_PORT), timeout=2) as link:
            link.settimeout(2)
            link.sendall(word.encode())
            answer = b""
            while piece := link.recv(4096):
                answer += piece
    except OSError:
        return ""
    return answer.decode()


def mode_of(network: Network, host: str) -> str | None:
    """Whether a server leads or follows; None if it serves no client."""
    modes = [line for line in ask(network, host, "srvr").splitlines() if line.startswith("Mode: ")]
    return modes[0].removeprefix("Mode: ") if modes else None


def is_serving(network: Network, nodes: Mapping[int, Node]) -> bool:
    """Whether all servers have found each other."""
    modes = [mode_of(network, node.name) for node in nodes.values()]
    return all(mode in ("leader", "follower") for mode in modes)
