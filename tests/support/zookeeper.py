"""Real ZooKeeper servers for tests: one, or an ensemble whose members can be killed.

They come from Debian's package `zookeeper`, or from the jars of an Apache Kafka that still had it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.apache_kafka import find_kafka
from tests.support.ports import free_ports

__all__ = [
    "ZooKeeperProcess",
    "missing_zookeeper",
    "running_ensemble",
    "running_zookeeper",
]

_DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
_START_TIMEOUT_S = 60
_JVM_OPTIONS = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    # Durability is not what these tests are about, and a sync for each write takes milliseconds.
    *("-Dzookeeper.forceSync=no", "-Dzookeeper.admin.enableServer=false"),
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_SETTINGS = {
    # Short ticks: sessions of tests expire in fractions of a second.
    "tickTime": 100,
    "minSessionTimeout": 200,
    "maxSessionTimeout": 60_000,
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr,cons,dump",
}


def _class_path() -> str | None:
    if _DEBIAN_JAR.exists():
        # Its manifest names the rest, but for a part of Netty, which servers need for TLS.
        netty = ":".join(sorted(map(str, _DEBIAN_JAR.parent.glob("netty-*.jar"))))
        return f"/etc/zookeeper/conf:{_DEBIAN_JAR}:{netty}"
    kafka = find_kafka("3.9.1")
    return None if kafka is None else f"{kafka.lib_dir}/*"


def missing_zookeeper() -> str | None:
    """Why there is none, or None: a reason to skip."""
    if _class_path() is None:
        return "no ZooKeeper: scripts/debian-packages zookeeper"
    return (
        None if shutil.which("java") else "no Java for ZooKeeper: scripts/debian-packages zookeeper"
    )


class ZooKeeperProcess:
    """One server, which a test can stop, kill and start again on the same data."""

    def __init__(
        self, directory: Path, port: int, settings: Mapping[str, object], *jvm_options: str
    ) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._directory = directory
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[bytes] | None = None
        lines = {**_SETTINGS, "dataDir": directory / "data", **settings}
        (directory / "data").mkdir(parents=True, exist_ok=True)
        (directory / "zoo.cfg").write_text(
            "".join(f"{key}={value}\n" for key, value in lines.items())
        )

    def start(self) -> None:
        """Starts the process; `wait_until_serving` follows."""
        class_path = _class_path()
        assert class_path is not None, missing_zookeeper()
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    *_JVM_OPTIONS,
                    *self._jvm_options,
                    "-cp",
                    class_path,
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(self._directory / "zoo.cfg"),
                ],
                cwd=self._directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "ZOO_LOG_DIR": str(self._directory)},
            )

    def command(self, word: str) -> str:
        """What the server says to one of its four-letter commands; empty if it does not answer."""
        try:
            # A server that has just begun to listen may accept a command and never answer it.
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(word.encode())
                answer = b""
                while chunk := connection.recv(65_536):
                    answer += chunk
                return answer.decode()
        except OSError:
            return ""

    @property
    def mode(self) -> str:
        """`standalone`, `leader`, `follower`; empty if it does not serve."""
        for line in self.command("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    def wait_until_serving(self) -> None:
        assert self._process is not None, "started before"
        end = time.monotonic() + _START_TIMEOUT_S
        while not self.mode:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no ZooKeeper: {(self._directory / 'log').read_text()[-4000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Ends the process as a failure of its machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stops the process in the middle of whatever it does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kills the process, and starts it again on its data."""
        self.kill()
        self.start()
        self.wait_until_serving()


@contextlib.contextmanager
def running_zookeeper(
    settings: Mapping[str, object] | None = None, *jvm_options: str
) -> Iterator[ZooKeeperProcess]:
    """A server of its own."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-zk-"))
    (port,) = free_ports(1)
    address = {"clientPort": port, "clientPortAddress": "127.0.0.1"}
    server = ZooKeeperProcess(directory, port, {**address, **(settings or {})}, *jvm_options)
    try:
        server.start()
        server.wait_until_serving()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running_ensemble(count: int = 3) -> Iterator[list[ZooKeeperProcess]]:
    """Servers that elect a leader among them."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-zk-"))
    ports = free_ports(3 * count)
    members = {
        f"server.{number + 1}": f"127.0.0.1:{ports[3 * number + 1]}:{ports[3 * number + 2]}"
        for number in range(count)
    }
    servers: list[ZooKeeperProcess] = []
    try:
        for number in range(count):
            own = directory / str(number + 1)
            server = ZooKeeperProcess(
                own,
                ports[3 * number],
                {
                    "clientPort": ports[3 * number],
                    "clientPortAddress": "127.0.0.1",
                    "initLimit": 100,
                    "syncLimit": 20,
                    **members,
                },
            )
            (own / "data" / "myid").write_text(f"{number + 1}\n")
            servers.append(server)
            server.start()
        for server in servers:
            server.wait_until_serving()
        yield servers
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(directory, ignore_errors=True)
