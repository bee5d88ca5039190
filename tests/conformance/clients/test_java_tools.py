"""Apache Kafka's own tools, unchanged, against Odradek.

Each test is 11:PS-13 for the tools it runs: they end with code 0, tell what is true, and send the
API versions that the table of the specification says.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import Admin
from odradek.client.admin import QuotaEntity
from tests.conformance.clients.adaptors import Librdkafka, Message
from tests.support.apache_kafka import KafkaInstall
from tests.support.odradek_broker import OdradekBroker, running_odradek

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

_TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of one Kafka version, pointed at a broker."""

    install: KafkaInstall
    broker: OdradekBroker

    def run(self, tool: str, *args: str, sends: set[tuple[str, int]] | None = None) -> str:
        """Runs ``tool --bootstrap-server B ARGS`` and returns its standard output.

        Args:
            tool: a class, in the package of the tools unless it has dots of its own.
            args: the rest of its command line.
            sends: API and version of all requests but ApiVersions and Metadata.
        """
        name = tool if "." in tool else f"{_TOOLS}.{tool}"
        with self.broker.watched() as requests:
            result = self.install.run_tool(name, "--bootstrap-server", self.broker.bootstrap, *args)
        assert result.returncode == 0, f"{tool} {args}\n{result.stdout}\n{result.stderr}"
        assert not re.search(r"\bERROR\b|Exception", result.stderr), result.stderr
        if sends is not None:
            assert requests.without_introduction() == sends, tool
        return result.stdout

    def configs(self, *args: str, sends: set[tuple[str, int]] | None = None) -> str:
        return self.run("kafka.admin.ConfigCommand", *args, sends=sends)

    @property
    def is_old(self) -> bool:
        return self.install.version.startswith("3.")

    @property
    def looks_before_it_alters(self) -> set[tuple[str, int]]:
        """What `kafka-configs` sends before it changes something."""
        return {("DescribeConfigs", 4)} if self.is_old else set()

    @property
    def describe_of_brokers(self) -> set[tuple[str, int]]:
        """What `kafka-configs --describe` sends about brokers and their loggers."""
        return {("DescribeConfigs", 4)} | (set() if self.is_old else {self.describe_cluster})

    @property
    def describe_cluster(self) -> tuple[str, int]:
        return ("DescribeCluster", 1 if self.is_old else 2)

    @property
    def describe_topics(self) -> set[tuple[str, int]]:
        return {self.describe_cluster, ("DescribeTopicPartitions", 0)}

    @property
    def fetch(self) -> tuple[str, int]:
        return ("Fetch", 17 if self.is_old else 18)

    @property
    def list_offsets(self) -> tuple[str, int]:
        return ("ListOffsets", 9 if self.is_old else 11)

    def admin(self) -> AdminClient:
        """A cheap way to set up and to check, beside what is being tested."""
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def create(self, topic: str, **config: str) -> None:
        admin = self.admin()  # Without a name for it, its futures would end with it.
        new = NewTopic(topic, num_partitions=1, config=config)
        admin.create_topics([new])[topic].result(90)


@pytest.fixture
def tools(kafka: KafkaInstall, odradek: OdradekBroker) -> Tools:
    return Tools(kafka, odradek)


def test_topics(tools: Tools, new_topic: Callable[[], str]) -> None:
    """`kafka-topics`: create, list, describe, alter, delete."""
    topic = new_topic()
    told = tools.run(
        "TopicCommand",
        *("--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000"),
        sends={("CreateTopics", 7)},
    )
    assert f"Created topic {topic}." in told

    assert topic in tools.run("TopicCommand", "--list", sends=set()).splitlines()

    tools.run(
        "TopicCommand",
        *("--alter", "--topic", topic, "--partitions", "3"),
        sends=tools.describe_topics | {("CreatePartitions", 3)},
    )

    told = tools.run(
        "TopicCommand",
        *("--describe", "--topic", topic),
        sends=tools.describe_topics | {("DescribeConfigs", 4), ("ListPartitionReassignments", 0)},
    )
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs:.*retention.ms=36", told)
    assert len(re.findall(r"Leader: 0\s+Replicas: 0\s+Isr: 0\b", told)) == 3

    tools.run(
        "TopicCommand",
        *("--delete", "--topic", topic),
        sends={("DeleteTopics", 6)},
    )
    assert topic not in tools.admin().list_topics(timeout=60).topics


def test_topic_configs(tools: Tools, new_topic: Callable[[], str]) -> None:
    """`kafka-configs --entity-type topics`."""
    topic = new_topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.create(topic)
    tools.configs(
        *("--alter", *entity, "--add-config", "max.message.bytes=5000000,cleanup.policy=[compact]"),
        sends=tools.looks_before_it_alters | {("IncrementalAlterConfigs", 1)},
    )
    told = tools.configs("--describe", *entity, sends={("DescribeConfigs", 4)})
    assert "max.message.bytes=5000000" in told
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in told
    tools.configs("--alter", *entity, "--delete-config", "max.message.bytes")
    told = tools.configs("--describe", *entity, "--all")
    assert "max.message.bytes=1048588" in told
    assert "cleanup.policy=compact" in told


def test_broker_configs(tools: Tools) -> None:
    """`kafka-configs --entity-type brokers`: one broker, and the default of all."""
    one = ("--entity-type", "brokers", "--entity-name", "0")
    alter = ("AlterConfigs", 2) if tools.is_old else ("IncrementalAlterConfigs", 1)
    alters, describes = tools.looks_before_it_alters | {alter}, tools.describe_of_brokers
    tools.configs("--alter", *one, "--add-config", "log.retention.ms=86400000", sends=alters)
    told = tools.configs("--describe", *one, sends=describes)
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=86400000" in told

    default = ("--entity-type", "brokers", "--entity-default")
    tools.configs("--alter", *default, "--add-config", "message.max.bytes=2000000", sends=alters)
    told = tools.configs("--describe", *default, sends=describes)
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000" in told
    tools.configs("--alter", *default, "--delete-config", "message.max.bytes")


def test_broker_loggers(tools: Tools) -> None:
    """`kafka-configs --entity-type broker-loggers`."""
    entity = ("--entity-type", "broker-loggers", "--entity-name", "0")
    tools.configs(
        *("--alter", *entity, "--add-config", "odradek.metadata=ERROR"),
        sends={("DescribeConfigs", 4), ("IncrementalAlterConfigs", 1)},
    )
    told = tools.configs("--describe", *entity, sends=tools.describe_of_brokers)
    assert re.search(r"odradek\.metadata=ERROR\b", told)


def test_client_quotas_and_client_metrics(tools: Tools) -> None:
    """`kafka-configs --entity-type clients` and `client-metrics`."""
    entity = ("--entity-type", "clients", "--entity-name", "slow client")
    tools.configs(
        *("--alter", *entity, "--add-config", "producer_byte_rate=1000000,request_percentage=50"),
        sends={("DescribeClientQuotas", 1), ("AlterClientQuotas", 1)},
    )
    ours = QuotaEntity.of({"client-id": "set by our client"})
    with Admin({"bootstrap.servers": tools.broker.bootstrap}) as admin:
        assert admin.alter_client_quotas({ours: {"consumer_byte_rate": 123456}}) == {ours: None}
        told = tools.configs(
            *("--describe", "--entity-type", "clients"), sends={("DescribeClientQuotas", 1)}
        )
        admin.alter_client_quotas({ours: {"consumer_byte_rate": None}})
    assert re.search("client-id 'set by our client'.*consumer_byte_rate=123456.0", told)
    assert "client-id 'slow client'" in told
    assert "producer_byte_rate=1000000.0" in told
    assert "request_percentage=50.0" in told
    tools.configs(*("--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage"))
    assert "slow client" not in tools.configs("--describe", "--entity-type", "clients")

    told = tools.configs(
        *("--describe", "--entity-type", "client-metrics"),
        sends={("ListConfigResources", 0 if tools.is_old else 1)},
    )
    assert told.strip() == ""


def test_users(tools: Tools) -> None:
    """`kafka-configs --entity-type users`: quotas, beside SCRAM credentials, of which are none."""
    entity = ("--entity-type", "users", "--entity-name", "<default>")
    quota = "producer_byte_rate=1048576"
    tools.configs("--alter", *entity, "--add-config", quota)
    told = tools.configs(
        *("--describe", "--entity-type", "users"),
        sends={("DescribeClientQuotas", 1), ("DescribeUserScramCredentials", 0)},
    )
    assert "Quota configs for user-principal '<default>' are producer_byte_rate=1048576" in told
    assert "Quota configs for the default user-principal" not in told
    assert "SCRAM" not in told
    tools.configs("--alter", *entity, "--delete-config", "producer_byte_rate")

    refused = tools.install.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", tools.broker.bootstrap),
        *("--alter", *entity, "--add-config", "SCRAM-SHA-256=[password=xyzzy]"),
    )
    assert refused.returncode != 0
    assert "this broker has no SASL" in refused.stdout + refused.stderr
    assert "xyzzy" not in tools.broker.log()


def test_access_rules(tools: Tools, new_topic: Callable[[], str]) -> None:
    """`kafka-acls`: list, add and remove say that there are none, not that the API is unknown."""
    topic = new_topic()
    rule = ("--topic", topic, "--allow-principal", "User:u", "--operation", "Read")
    for command in (("--list",), ("--add", *rule), ("--remove", "--force", *rule)):
        with tools.broker.watched() as requests:
            told = tools.install.run_tool(
                "kafka.admin.AclCommand" if tools.is_old else f"{_TOOLS}.AclCommand",
                *("--bootstrap-server", tools.broker.bootstrap, *command),
            )
        # Some look before they change something, and get no further.
        sent = requests.without_introduction()
        assert sent, told.stderr
        assert sent <= {("DescribeAcls", 3), ("CreateAcls", 3), ("DeleteAcls", 3)}
        assert "SecurityDisabledException" in told.stdout + told.stderr, told.stderr
        assert "UnsupportedVersion" not in told.stdout + told.stderr


def test_subscriptions_to_client_metrics(tools: Tools) -> None:
    """`kafka-configs --entity-type client-metrics`: set, listed, described, deleted."""
    entity = ("--entity-type", "client-metrics", "--entity-name", "latency")
    settings = "metrics=[org.apache.kafka.consumer.,x],interval.ms=30000,match=[client_id=a.*]"
    tools.configs(
        *("--alter", *entity, "--add-config", settings),
        sends={*tools.looks_before_it_alters, ("IncrementalAlterConfigs", 1)},
    )
    for which in (entity, entity[:2]):
        told = tools.configs("--describe", *which)
        assert "latency" in told
        assert "metrics=org.apache.kafka.consumer.,x " in told
        assert "interval.ms=30000 " in told
        assert "match=client_id=a.* " in told
    tools.configs(*("--alter", *entity, "--delete-config", "metrics,interval.ms,match"))
    assert "latency" not in tools.configs("--describe", *entity[:2])


def test_produce_consume_and_look_at_offsets(
    tools: Tools, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Perf test, console consumer, `kafka-get-offsets`, `-log-dirs`, `-delete-records`.

    11:PS-7: Java 4.x produces and fetches by topic id (Produce 13, Fetch 18).
    """
    topic, broker = new_topic(), tools.broker
    produce = ("Produce", 11 if tools.is_old else 13)

    with broker.watched() as requests:
        _perf_test(tools, topic, count=5000, size=200, settings=("compression.type=lz4",))
    assert requests.without_introduction() == {("InitProducerId", 5), produce}

    with broker.watched() as requests:
        values = _console_consumer(tools, topic, "4990", count=10)
    assert [len(value) for value in values] == [200] * 10
    assert requests.without_introduction() == {tools.fetch}  # It is in no group.

    with broker.watched() as requests:
        assert len(_console_consumer(tools, topic, "earliest", count=10)) == 10
    assert requests.without_introduction() == {tools.list_offsets, tools.fetch}

    told = tools.run(
        "GetOffsetShell",
        *("--topic-partitions", f"{topic}:0"),
        sends=tools.describe_topics | {tools.list_offsets},
    )
    assert told.strip() == f"{topic}:0:5000"

    told = tools.run(
        "TransactionsCommand",
        *("describe-producers", "--topic", topic, "--partition", "0"),
        sends={("DescribeProducers", 0)},
    )
    heading, producer = told.splitlines()
    assert "ProducerId" in heading
    assert "4999" in producer.split()  # Its last sequence number.

    told = tools.run(
        "LogDirsCommand",
        *("--describe", "--topic-list", topic),
        sends={tools.describe_cluster, ("DescribeLogDirs", 4 if tools.is_old else 5)},
    )
    directories = json.loads(told.splitlines()[-1])["brokers"][0]["logDirs"]
    assert [one["logDir"] for one in directories] == [str(broker.log_dir)]
    (replica,) = directories[0]["partitions"]
    assert replica["partition"] == f"{topic}-0"
    size = sum(path.stat().st_size for path in (broker.log_dir / f"{topic}-0").glob("*.log"))
    assert replica["size"] == size

    plan = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 1234}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    told = tools.run(
        "DeleteRecordsCommand", "--offset-json-file", str(plan), sends={("DeleteRecords", 2)}
    )
    assert "low_watermark: 1234" in told
    told = tools.run("GetOffsetShell", "--topic-partitions", f"{topic}:0", "--time", "earliest")
    assert told.strip() == f"{topic}:0:1234"


def test_offsets_by_time(tools: Tools, new_topic: Callable[[], str]) -> None:
    """`kafka-get-offsets --time`: the first one at or after it, and none after the last."""
    topic, first_ms = new_topic(), int(time.time() * 1000) - 60_000
    messages = [Message(b"k", b"v", (), first_ms + number * 100) for number in range(20)]
    Librdkafka().produce(tools.broker.bootstrap, topic, "none", messages)
    sends = tools.describe_topics | {tools.list_offsets}
    wanted = ("--topic-partitions", f"{topic}:0", "--time")
    told = tools.run("GetOffsetShell", *wanted, str(first_ms + 450), sends=sends)
    assert told.strip() == f"{topic}:0:5"
    told = tools.run("GetOffsetShell", *wanted, str(first_ms + 99_999), sends=sends)
    assert told.strip() in ("", f"{topic}:0:")


def test_preferred_leader_election(tools: Tools, new_topic: Callable[[], str]) -> None:
    """`kafka-leader-election`, with nothing to do."""
    topic = new_topic()
    tools.create(topic)
    tools.run(
        "LeaderElectionCommand",
        *("--election-type", "preferred", "--topic", topic, "--partition", "0"),
        sends={("ElectLeaders", 2)},
    )


def test_no_replica_is_being_moved(tools: Tools) -> None:
    """`kafka-reassign-partitions --list`."""
    told = tools.run(
        f"{_TOOLS}.reassign.ReassignPartitionsCommand",
        "--list",
        sends={("ListPartitionReassignments", 0)},
    )
    assert "No partition reassignments found." in told


def test_replicas_are_moved(tools: Tools, new_topic: Callable[[], str], tmp_path: Path) -> None:
    """`kafka-reassign-partitions`: generate, execute, verify, cancel, as far as one broker goes."""
    topic = new_topic()
    tools.create(topic)
    command = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    told = tools.run(
        command,
        *("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0"),
    )
    proposed = told.rpartition("Proposed partition reassignment configuration")[2].strip()
    plan = tmp_path / "plan.json"
    plan.write_text(proposed)
    assert [row["replicas"] for row in json.loads(proposed)["partitions"]] == [[0]]
    told = tools.run(command, "--execute", "--reassignment-json-file", str(plan))
    assert f"Successfully started partition reassignment for {topic}-0" in told
    told = tools.run(command, "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {topic}-0 is completed." in told
    told = tools.run(command, "--cancel", "--reassignment-json-file", str(plan))
    assert "None of the specified partition reassignments are active." in told


def test_replicas_are_moved_between_directories(
    kafka: KafkaInstall, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """`kafka-reassign-partitions` with `log_dirs` and its throttle, and `kafka-log-dirs`."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    command = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
    with running_odradek(tmp_path / "run", {"log.dirs": ",".join(paths)}) as broker:
        tools, topic = Tools(kafka, broker), new_topic()
        tools.create(topic)
        _perf_test(tools, topic, count=5_000, size=1_000, settings=())

        def home() -> str:
            told = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
            directories = json.loads(told.splitlines()[-1])["brokers"][0]["logDirs"]
            found = {
                (one["logDir"], row["isFuture"]) for one in directories for row in one["partitions"]
            }
            [(path, is_future)] = found
            assert not is_future
            return str(path)

        [target] = set(paths) - {home()}
        plan = tmp_path / "plan.json"
        row = {"topic": topic, "partition": 0, "replicas": [0], "log_dirs": [target]}
        plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
        told = tools.run(
            command,
            *("--execute", "--reassignment-json-file", str(plan)),
            *("--replica-alter-log-dirs-throttle", "50000000"),
        )
        assert f"directory to {target} for replica {topic}-0 with broker 0" in told
        done = f"Reassignment of replica {topic}-0-0 completed successfully."
        for _ in range(20):
            told = tools.run(command, "--verify", "--reassignment-json-file", str(plan))
            if done in told:
                break
        assert done in told
        assert home() == target
        told = tools.run("GetOffsetShell", "--topic-partitions", f"{topic}:0")
        assert told.strip() == f"{topic}:0:5000"


def test_large_messages(tools: Tools, new_topic: Callable[[], str]) -> None:
    """5 MB in one message, five times of what the consumer asks for at once."""
    topic = new_topic()
    tools.create(topic, **{"max.message.bytes": "6000000"})
    _perf_test(tools, topic, count=2, size=5_000_000, settings=("max.request.size=6000000",))
    values = _console_consumer(tools, topic, "earliest", count=2)
    assert [len(value) for value in values] == [5_000_000] * 2


def _perf_test(tools: Tools, topic: str, *, count: int, size: int, settings: Sequence[str]) -> None:
    result = tools.install.run_tool(
        f"{_TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size)),
        *("--throughput", "-1"),
        "--producer-props" if tools.is_old else "--command-property",
        *(f"bootstrap.servers={tools.broker.bootstrap}", *settings),
    )
    assert result.returncode == 0, result.stderr
    assert f"{count} records sent" in result.stdout


def _console_consumer(tools: Tools, topic: str, offset: str, *, count: int) -> list[str]:
    result = tools.install.run_tool(
        f"{_TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", tools.broker.bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", offset, "--max-messages", str(count)),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
