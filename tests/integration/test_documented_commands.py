"""Every `odradek` command of the guide and of the pages for operators is run as it stands there.

The lines of a page run in their order, in a shell, in one directory, against four brokers with a
topic `orders`, a group `billing` and a transactional id `payments-1`. Only what names a place is
replaced: hosts, ports and directories. Commands that run until they are stopped are stopped when
they have printed something. What cannot be run is listed below with its reason.
"""

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek import Admin, Producer
from odradek.client.consumer import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.testing import EmbeddedCluster
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "guide" / "command-line.md", *(ROOT / "docs" / "operations").glob("*.md")]

# Beginning of a line -> why it is not run here, and what tests it.
NOT_RUN = {
    "odradek cluster --zookeeper": "needs ZooKeeper: test_cli_cluster.py",
    "odradek serve --data /var/lib/odradek --set broker.id=1": "needs ZooKeeper: "
    "test_broker_on_zookeeper.py",
    "odradek serve --set listeners=SSL": "needs a certificate in /etc: test_network_tls.py",
    "odradek transactions abort": "needs a transaction that hangs: test_transactions.py",
    "odradek serve --check --config server.properties": "needs Kafka's file: "
    "test_serving_the_first_hour.py",
    'echo \'{"id": 1, "customer": "ada", "amount": 250}\'': "needs containers",
    "odradek controller re-elect": "needs the directory of a broker process: test_cli_serve.py",
}
# Commands that go on until they are told to end, unless an option says when.
ENDLESS = re.compile(
    r"odradek (?:serve|cluster(?! describe)|metrics .*--interval(?!.*--count)"
    r"|consume(?!.*(?:--max-messages|--timeout|--exit-at-end)))"
)
WAIT_S = 120


class World(NamedTuple):
    """The brokers, and where commands run."""

    cluster: EmbeddedCluster
    directory: Path
    environment: dict[str, str]
    metrics: str


def commands_of(page: Path) -> list[str]:
    """The lines of indented blocks and of shell blocks that run `odradek`."""
    text = page.read_text().replace("\\\n", " ")
    lines = []
    is_fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            # Sessions, which show answers as well, are typed by test_cli_guide.py.
            is_fenced = not is_fenced and line.strip("`") in ("sh", "bash")
        elif (is_fenced or line.startswith("    ")) and re.search(r"(?:^|\| )\s*odradek ", line):
            lines.append(" ".join(line.strip().removeprefix("$ ").split()))
    return lines


def test_the_pages_have_commands() -> None:
    assert sum(len(commands_of(page)) for page in PAGES) >= 70


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("home")
    program = home / "bin" / "odradek"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
    program.chmod(0o755)
    metrics = free_port()
    with (
        kept_levels(),
        EmbeddedCluster(
            4,
            settings_of=lambda broker: (
                {"odradek.metrics.port": str(metrics)} if broker == 0 else {}
            ),
        ) as cluster,
    ):
        environment = {
            **{key: value for key, value in os.environ.items() if "ODRADEK" not in key},
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "ODRADEK_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "KEY_PASSWORD": "secret",
        }
        yield World(cluster, home, environment, f"localhost:{metrics}")


@contextlib.contextmanager
def kept_levels() -> Iterator[None]:
    """Undoes what the pages do to loggers: the brokers share those of the tests."""
    levels = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}
    yield
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def prepare(world: World, line: str) -> None:
    """Makes what a line takes for granted, and removes what it makes itself."""
    made = re.findall(r"topics create ([a-z]+)", line)
    cluster = world.cluster
    with Admin(cluster.client_settings) as admin:
        topics = set(admin.list_topics())
        for name in made:
            if name in topics and "--if-not-exists" not in line:
                cluster.delete_topic(name)
        for name in ("orders", "greetings", "people"):
            if name not in topics and name not in made:
                cluster.create_topic(name, partitions=6)
                fill(cluster, name)
        if made:
            return
        if "billing" not in [group.group_id for group in admin.list_groups()]:
            committed = {TopicPartition("orders", n): OffsetAndMetadata(0) for n in range(2)}
            admin.alter_group_offsets("billing", committed)
    if "payments" in line:
        with Producer(cluster.client_settings, transactional_id="payments-1") as producer:
            producer.init_transactions()


def fill(cluster: EmbeddedCluster, topic: str) -> None:
    """Messages in every partition, and more than a thousand in the first one."""
    with Producer(cluster.client_settings, linger_ms=5) as producer:
        for number in range(1_200):
            producer.send(topic, b"%d" % number, partition=0)
        for partition in range(1, 6):
            producer.send(topic, b"a", partition=partition)


def adapted(world: World, line: str, directory: Path) -> str:
    """The line with the hosts, ports and directories of this machine."""
    servers = world.cluster.bootstrap_servers
    line = re.sub(r"(?<= )(?:-b|--bootstrap-server) host\d:\d+", f"-b {servers}", line)
    line = line.replace("localhost:9464", world.metrics).replace("port=9464", f"port={free_port()}")
    line = re.sub(r"/var/lib/odradek|/tmp/\w+", str(directory / "data"), line)
    if re.match(r"odradek serve", line):
        line = re.sub(r" --listen \S+", "", line) + " --listen 127.0.0.1:0"
        if "--data" not in line:
            line += f" --data {directory / 'data'}"
    elif re.match(r"odradek cluster(?! describe)", line):
        line = re.sub(r" --base-port \d+", "", line) + " --base-port 0"
    return line


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_commands_of_a_page(page: Path, world: World, tmp_path: Path) -> None:
    for line in commands_of(page):
        if line.startswith(tuple(NOT_RUN)):
            continue
        prepare(world, line)
        if "odradek-data/" in line:
            link_data(world, tmp_path / "odradek-data")
        typed = adapted(world, line, tmp_path)
        outcome = run(world, typed, tmp_path)
        assert outcome.returncode == 0, (line, outcome.stdout, outcome.stderr)
        assert "Traceback" not in outcome.stderr, (line, outcome.stderr)


def link_data(world: World, link: Path) -> None:
    """Makes the directory of a broker that has the first partition of a fresh topic `orders`."""
    world.cluster.delete_topic("orders")
    prepare(world, "")
    with Admin(world.cluster.client_settings) as admin:
        (leader, *_) = sorted(
            broker
            for broker, directories in admin.describe_log_dirs().items()
            if isinstance(directories, dict)
            and any(
                TopicPartition("orders", 0) in one.replicas
                for one in directories.values()
                if hasattr(one, "replicas")
            )
        )
        told = admin.describe_log_dirs([leader])[leader]
        assert isinstance(told, dict)
    link.unlink(missing_ok=True)
    link.symlink_to(next(iter(told)))


def run(world: World, line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line in a shell; ends it by Ctrl-C after its first output if it is endless."""
    is_endless = ENDLESS.search(line) is not None
    with subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", f"exec {line}" if is_endless else line],
        cwd=directory,
        env=world.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        first = ""
        if is_endless:
            assert running.stdout is not None
            first = running.stdout.readline()
            running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=WAIT_S)
    code = running.returncode
    if is_endless:
        assert first, (line, err)
        code = {130: 0}.get(code, code)
    return subprocess.CompletedProcess(shlex.split(line), code, first + out, err)


def test_what_is_not_run_is_still_in_the_pages() -> None:
    lines = [line for page in PAGES for line in commands_of(page)]

    assert [one for one in NOT_RUN if not any(line.startswith(one) for line in lines)] == []
