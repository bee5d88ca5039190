"""The broker that other projects test with, and the examples of its guide."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from odradek.aio import Admin
from odradek.client.admin import CreatedTopic, NewTopic
from odradek.errors import ConfigError, LogDirLockedError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records.builder import build_batch
from odradek.testing import AsyncEmbeddedBroker, EmbeddedBroker
from tests.conformance.clients.raw import RawConnection
from tests.support.commands import Commands

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "testing.md"
PLUGIN = "odradek.testing.pytest_plugin"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


# What the guide has no example of.
SHARED = """
def test_shared(odradek_session_broker, odradek_topic):
    odradek_session_broker.send(odradek_topic, "x")
    odradek_session_broker.assert_records(odradek_topic, ["x"])


def test_a_topic_is_gone_after_its_test(odradek_session_broker, odradek_topic):
    assert odradek_session_broker.records(odradek_topic) == []


def test_three_brokers(odradek_cluster):
    topic = odradek_cluster.create_topic()
    odradek_cluster.send(topic, "x")
    odradek_cluster.kill(0)
    odradek_cluster.assert_records(topic, ["x"])
    assert odradek_cluster.broker_ids == [1, 2]
"""


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        first = broker.bootstrap_servers
        Commands(first).ok("produce", "t", stdin=b"kept\n")
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        read = Commands(broker.bootstrap_servers).ok(
            "consume", "t", "--from-beginning", "--max-messages", 1
        )

    assert read.lines == ["kept"]


def test_a_name_is_free_once_its_topic_is_deleted() -> None:
    """Suites delete and create one topic again and again; none of it may find the one before."""

    async def scenario() -> None:
        async with (
            AsyncEmbeddedBroker() as broker,
            Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
        ):
            for _ in range(10):
                made = await admin.create_topics([NewTopic(name="t", partition_count=3)])
                assert isinstance(made["t"], CreatedTopic), made
                assert await admin.delete_topics(["t"]) == {"t": None}

    asyncio.run(scenario())


def test_settings_count() -> None:
    with EmbeddedBroker({"auto.create.topics.enable": "false", "num.partitions": "3"}) as broker:
        odradek = Commands(broker.bootstrap_servers)
        assert odradek("produce", "t", stdin=b"x").code == 1
        assert odradek.ok("topics", "create", "t").out == "created t with 3 partitions\n"


def test_limits_of_requests_count() -> None:
    settings = {
        "num.partitions": "3",
        "fetch.max.bytes": "1024",
        "max.request.partition.size.limit": "2",
        "max.incremental.fetch.session.cache.slots": "0",
    }
    with EmbeddedBroker(settings) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok("topics", "create", "t")
        with RawConnection(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            rows = [
                PartitionProduceData(
                    index=index, records=bytes(build_batch([(1, None, bytes(2_000), ())]))
                )
                for index in range(3)
            ]
            data = [TopicProduceData(name="t", partition_data=rows)]
            produce = ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=data)
            client.call(ApiKey.PRODUCE, 7, produce)
            wanted = [
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                for index in range(3)
            ]
            fetch = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                session_epoch=0,
                topics=[FetchTopic(topic="t", partitions=wanted)],
            )
            fetched = client.call(ApiKey.FETCH, 11, fetch)
            described = client.call(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest()
            )
    assert isinstance(fetched, FetchResponse)
    [answer] = fetched.responses
    # One batch is more than the limit, and comes whole, as the first.
    assert [bool(row.records) for row in answer.partitions] == [True, False, False]
    assert fetched.session_id == 0
    assert isinstance(described, DescribeTopicPartitionsResponse)
    assert [len(topic.partitions) for topic in described.topics] == [2]


def test_brokers_do_not_see_each_other() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        Commands(one.bootstrap_servers).ok("topics", "create", "t")

        assert one.bootstrap_servers != other.bootstrap_servers
        assert Commands(other.bootstrap_servers).ok("topics", "list").out == ""


def test_start_and_stop(tmp_path: Path) -> None:
    broker = EmbeddedBroker()
    threads = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers
    broker.start()
    with pytest.raises(RuntimeError, match="running already"):
        broker.start()
    broker.stop()
    broker.stop()

    assert set(threading.enumerate()) <= threads
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker({"num.partitions": "many"}).start()
    with EmbeddedBroker(data_dir=tmp_path), pytest.raises(LogDirLockedError):
        EmbeddedBroker(data_dir=tmp_path).start()

    assert set(threading.enumerate()) <= threads


def test_on_the_loop_of_the_test() -> None:
    async def scenario() -> None:
        broker = AsyncEmbeddedBroker()
        # Frameworks run the two halves of a fixture in different tasks.
        await asyncio.create_task(broker.__aenter__())
        with pytest.raises(RuntimeError, match="running already"):
            await broker.__aenter__()
        outcome = await asyncio.to_thread(Commands(broker.bootstrap_servers), "topics", "list")
        assert (outcome.code, outcome.out) == (0, "")
        await asyncio.create_task(broker.__aexit__(None, None, None))
        with pytest.raises(RuntimeError, match="not running"):
            _ = broker.bootstrap_servers

    asyncio.run(scenario())


def test_the_plugin_costs_nothing_until_it_is_used() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import odradek.testing.pytest_plugin;"
        "new = set(sys.modules) - before;"
        "print([m for m in new if m.startswith(('asyncio', 'odradek.broker', 'odradek.client'))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout == "[]\n"


def test_the_examples_of_the_guide(tmp_path: Path) -> None:
    """A project of its own: its tests, its settings, the plugin and confluent-kafka."""
    tests = [one for one in EXAMPLES if re.search(r"^def test_", one, re.MULTILINE)]
    (settings,) = [one for one in EXAMPLES if "def odradek_broker_settings" in one]
    scripts = [one for one in EXAMPLES if one not in (*tests, settings)]
    for number, text in enumerate((*tests, SHARED)):
        (tmp_path / f"test_example_{number}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(settings)

    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", PLUGIN],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(tests) + 3} passed" in result.stdout
    assert scripts
    for script in scripts:
        shown = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", shown.stdout)
        assert shown.stderr == ""
