"""What an operator types in the first hour, and reads: starts, stops, settings that cannot work."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odradek import Admin, __version__
from tests.support.commands import Commands, run_command
from tests.support.network import make_certificate
from tests.support.ports import free_port
from tests.support.served import served

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KAFKA_FILES = ROOT / "tests" / "support" / "kafka_files"
ANY_PORT = ("--listen", "127.0.0.1:0")


def test_a_group_on_a_broker_to_try_begins_at_once(tmp_path: Path) -> None:
    key = "group.initial.rebalance.delay.ms"
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")
    for words, expected in (((), "0"), (("--config", file), "3000"), (("--set", f"{key}=7"), "7")):
        with served(tmp_path / "broker", *ANY_PORT, *words) as broker:
            rows = Commands(broker.address).ok("configs", "describe", "broker", 0, "--all").rows
            assert [row[1] for row in rows if row[0] == key] == [expected]
            assert broker.stop() == 0


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_a_listener_on_every_interface_tells_clients_the_name_of_the_machine(
    tmp_path: Path, host: str
) -> None:
    port = free_port()
    with served(tmp_path / "broker", "--listen", f"{host}:{port}") as broker:
        assert broker.address == f"{socket.getfqdn()}:{port}"
        Commands(f"127.0.0.1:{port}").ok("topics", "create", "t")
        is_local = socket.getfqdn().startswith("localhost")
        warned = broker.lines("which is their own machine for all but those on this one")
        assert len(warned) == int(is_local)
        assert broker.stop() == 0


def test_clients_of_every_interface_are_not_sent_to_themselves_in_silence(tmp_path: Path) -> None:
    port = free_port()
    advertised = f"advertised.listeners=PLAINTEXT://localhost:{port}"
    with served(tmp_path / "b", "--listen", f"0.0.0.0:{port}", "--set", advertised) as broker:
        [line] = broker.lines("WARNING")
        assert f"set advertised.listeners=PLAINTEXT://HOST:{port}" in line
    with served(tmp_path / "c", "--listen", f"127.0.0.1:{port}") as broker:
        assert broker.lines("WARNING") == []


def test_the_command_of_the_security_page_starts_a_broker(tmp_path: Path) -> None:
    """Word by word, but for the port and the folder of the certificates."""
    page = (ROOT / "docs/operations/security.md").read_text()
    [command] = re.findall(r"^    odradek (serve (?:.*\\\n)+.*)$", page, re.MULTILINE)
    for name in ("broker", "client"):
        (tmp_path / name).mkdir()
        certificate, key = make_certificate(tmp_path / name)
        (tmp_path / f"{name}.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    (tmp_path / "clients-ca.pem").write_bytes((tmp_path / "client/certificate.pem").read_bytes())
    port = free_port()
    text = command.replace("\\\n", " ").replace("/etc/odradek", str(tmp_path))
    words = text.replace("9093", str(port)).split()

    with served(tmp_path / "b", *words[1:]) as broker:
        settings = {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "SSL",
            "ssl.truststore.location": str(tmp_path / "broker/certificate.pem"),
            "request.timeout.ms": 60_000,
        }
        mine = {"ssl.keystore.location": str(tmp_path / "client.pem")}
        with Admin(settings | mine) as admin:
            assert list(admin.list_topics()) == []
        assert broker.stop() == 0


def test_settings_for_three_brokers_say_what_one_refuses(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "default.replication.factor=3\nmin.insync.replicas=2\noffsets.topic.replication.factor=3\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    with served(tmp_path / "b", *ANY_PORT, "--config", file) as broker:
        warned = broker.lines("this broker is alone, and refuses")
        assert [re.findall(r"config: ([\w.]+)=\d: .*; set (\S+),", line) for line in warned] == [
            [("default.replication.factor", "default.replication.factor=1")],
            [("min.insync.replicas", "min.insync.replicas=1")],
            [("offsets.topic.replication.factor", "offsets.topic.replication.factor=1")],
        ]
    file.write_text(file.read_text().replace("=3", "=1").replace("=2", "=1"))
    with served(tmp_path / "b", *ANY_PORT, "--config", file) as broker:
        assert broker.lines("WARNING odradek.config") == []
        Commands(broker.address).ok("produce", "t", stdin=b"taken\n")


@pytest.mark.parametrize("file", sorted(KAFKA_FILES.iterdir()), ids=lambda file: file.name)
def test_every_key_of_kafkas_own_files_has_a_fate(file: Path) -> None:
    given = [line.partition("=")[0] for line in file.read_text().splitlines()]

    shown = run_command("serve", "--check", "--config", file, "--json")

    keys = {key["key"]: key for key in shown.json["keys"]}
    assert list(keys) == given
    refused = [name for name, key in keys.items() if key["fate"] == "refused"]
    assert refused == (["process.roles"] if "process.roles" in given else [])
    assert shown.json["starts"] is (not refused)
    assert shown.code == len(refused)
    ignored = {name for name, key in keys.items() if key["fate"] == "ignored"}
    assert ignored == {name for name in given if name.startswith(("controller.", "share."))}
    assert all(key["why"] for key in keys.values() if key["fate"] != "used")


@pytest.mark.parametrize("file", sorted(KAFKA_FILES.iterdir()), ids=lambda file: file.name)
def test_kafkas_own_files_start_a_broker_after_the_advice(tmp_path: Path, file: Path) -> None:
    """Left out: the keys that the check refuses, the quorum's listener, another cluster's store."""
    port = free_port()
    lines = [
        line
        for line in file.read_text().replace("9092", str(port)).splitlines()
        if not line.startswith(("process.roles", "zookeeper.", "log.dirs"))
    ]
    text = re.sub(r",CONTROLLER://\w*:\d+", "", "\n".join(lines))
    copy = tmp_path / "server.properties"
    copy.write_text(f"{text}\nlog.dirs={tmp_path / 'data'}\n")
    assert run_command("serve", "--check", "--config", copy).code == 0

    words = () if "listeners=" in text else ANY_PORT
    with served(tmp_path / "b", *words, "--config", copy) as broker:
        odradek = Commands(broker.address)
        odradek.ok("produce", "t", stdin=b"one\n")
        seen = odradek.ok("consume", "t", "--group", "g", "--from-beginning", "--max-messages", 1)
        assert seen.lines == ["one"]
        assert broker.stop() == 0


def test_the_check_tells_every_refusal_and_starts_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = {
        "num.partitions": ("many", "refused"),
        "super.users": ("User:a", "refused"),
        "log.retention.ms": ("5000", "used"),
        "log.retention.hours": ("1", "ignored"),
        "nonsense.key": ("1", "ignored"),
        "listener.name.tls.max.connections": ("3", "ignored"),
        "ssl.key.password": ("hush", "refused"),
    }
    sets = [word for key, (value, _) in words.items() for word in ("--set", f"{key}={value}")]

    shown = run_command("serve", "--check", "--data", data, *sets)

    assert {row[0]: row[1] for row in shown.rows[:-1]} == {
        "log.dirs": "used",
        **{key: fate for key, (_, fate) in words.items()},
    }
    assert (shown.code, shown.err) == (1, "")
    assert "refuses to start: num.partitions, super.users, ssl.key.password" in shown.lines[-1]
    assert "hush" not in shown.out
    assert not data.exists()


def test_variables_of_the_environment_are_checked_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "serve", "--check", "--json"],
        env={**os.environ, "ODRADEK_NUM_PARTITIONS": "x", "ODRADEK_LOG_DIRS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    keys = {key["key"]: (key["source"], key["fate"]) for key in json.loads(done.stdout)["keys"]}
    assert keys["num.partitions"] == ("environment", "refused")
    assert keys["log.dirs"] == ("environment", "used")


def test_a_closed_terminal_is_a_clean_stop(tmp_path: Path) -> None:
    with served(tmp_path, *ANY_PORT) as broker:
        assert broker.stop(signal.SIGHUP) == 0
        assert (tmp_path / "odradek-data" / ".kafka_cleanshutdown").exists()
        first, *_, last = broker.log.splitlines()
        assert f"odradek {__version__} (" in first
        assert last.endswith("odradek.serve: broker 0 stopped")


def test_nohup_is_respected(tmp_path: Path) -> None:
    with served(tmp_path, *ANY_PORT, prefix=("nohup",)) as broker:
        broker.process.send_signal(signal.SIGHUP)
        Commands(broker.address).ok("topics", "create", "t")
        assert broker.stop() == 0


def test_the_next_start_says_that_the_last_stop_was_not_clean(tmp_path: Path) -> None:
    with served(tmp_path, *ANY_PORT) as first:
        assert first.lines("the last stop was not clean") == []
        Commands(first.address).ok("topics", "create", "t")
        first.process.kill()
        first.process.wait(60)
    with served(tmp_path, *ANY_PORT) as killed:
        [line] = killed.lines("the last stop was not clean")
        assert "WARNING" in line
        assert line.endswith("from their recovery points on: 1")
        killed.stop()
    with served(tmp_path, *ANY_PORT) as clean:
        assert clean.lines("the last stop was not clean") == []


def test_a_topic_of_many_partitions_is_one_line(tmp_path: Path) -> None:
    with served(tmp_path, *ANY_PORT) as broker:
        before = len(broker.log.splitlines())
        odradek = Commands(broker.address)
        odradek.ok("topics", "create", "many", "--partitions", 40)
        odradek.ok("topics", "delete", "many")
        while odradek("topics", "create", "many").code:
            pass  # Deletion goes on behind the answer.
        lines = [line for line in broker.log.splitlines()[before:] if "many" in line]
        assert [line.partition("topic many is ")[2] for line in lines] == [
            "created with 40 partitions",
            "deleted",
            "created with 1 partitions",
        ]
        assert not broker.lines("state.change.logger")


def test_the_service_manager_is_told_and_sees_signs_of_life(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"}
        with served(tmp_path, *ANY_PORT, environment=environment) as broker:
            told = [manager.recv(4096).decode()]
            while not told[-1].startswith("READY=1"):
                told.append(manager.recv(4096).decode())
            assert told[-1] == f"READY=1\nSTATUS=broker 0 serves {broker.address}"
            assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            assert broker.stop() == 0
            while (last := manager.recv(4096)) == b"WATCHDOG=1":
                pass
            assert last == b"STOPPING=1"


def test_reasons_of_the_check_are_not_cut_on_a_terminal() -> None:
    words = ("--set", "process.roles=broker", "--set", "num.partitions=2")
    shown = run_command("serve", "--check", *words, terminal=True)
    assert shown.lines[0] == "refused  process.roles"
    reason = " ".join(line.strip() for line in shown.lines[1:-2])
    assert reason.endswith("for a cluster of several brokers; remove the key")
    assert shown.lines[-2] == "used     num.partitions"
