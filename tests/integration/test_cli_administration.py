"""Commands for administrators, as they are typed and read."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Admin, Consumer, Producer
from odradek.client.consumer import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands, run_command

pytestmark = pytest.mark.slow

FIRST_MS = 1_700_000_000_000
FIRST = "2023-11-14T22:13:20.000Z"
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    settings = {"log.segment.bytes": "1000000"}
    with EmbeddedBroker(settings, data_dir=tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def odradek(broker: EmbeddedBroker) -> Commands:
    return Commands(broker.bootstrap_servers)


def old_topic(broker: EmbeddedBroker, count: int = 5) -> str:
    """A topic of two partitions, with messages a minute apart in the first, long ago."""
    topic = broker.create_topic(partitions=2, settings={"retention.ms": "-1"})
    with Producer(broker.client_settings) as producer:
        for number in range(count):
            time_ms = FIRST_MS + number * MINUTE_MS
            producer.send(topic, b"%d" % number, partition=0, timestamp=time_ms)
    return topic


def test_offsets(broker: EmbeddedBroker, odradek: Commands) -> None:
    topic = old_topic(broker)
    assert odradek.ok("offsets", topic).rows == [
        [topic, "0", "0", "5", "5"],
        [topic, "1", "0", "0", "0"],
    ]
    assert [topic, "0", "0", "5", "5"] in odradek.ok("offsets").rows
    table = odradek.ok("offsets", f"{topic}:0", terminal=True).lines
    assert table[0].split() == ["TOPIC", "PARTITION", "EARLIEST", "LATEST", "OFFSETS"]

    def at(time: str) -> list[list[str]]:
        return [row[1:] for row in odradek.ok("offsets", topic, "--at", time).rows]

    nothing = ["1", "-", "-", "-"]
    assert at("2023-11-14T22:14:00Z") == [
        ["0", "1", str(FIRST_MS + MINUTE_MS), "2023-11-14T22:14:20.000Z"], nothing,
    ]  # fmt: skip
    assert at("1h") == [["0", "-", "-", "-"], nothing]
    assert at("max-timestamp")[0][:2] == ["0", "4"]
    assert at("earliest") == [["0", "0", "-", "-"], ["1", "0", "-", "-"]]
    assert at("latest") == [["0", "5", "-", "-"], ["1", "0", "-", "-"]]
    told = odradek.ok("offsets", topic, "--at", FIRST, "--json").json
    assert told == [
        {"topic": topic, "partition": 0, "offset": 0, "timestamp": FIRST_MS, "time": FIRST},
        {"topic": topic, "partition": 1, "offset": None, "timestamp": None, "time": None},
    ]
    missing = odradek("offsets", "nowhere")
    assert (missing.code, missing.out) == (1, "")
    assert "topic 'nowhere' does not exist" in missing.err
    wrong = odradek("offsets", topic, "--at", "noon")
    assert wrong.code == 2
    assert "a time such as 2026-01-31T12:00:00Z or a duration such as 1h, found 'noon'" in wrong.err


def test_log_dirs(broker: EmbeddedBroker, odradek: Commands) -> None:
    topic = old_topic(broker)
    (directory,) = odradek.ok("log-dirs", "--json").json
    assert directory["broker"] == 0
    assert Path(directory["directory"]).is_dir()
    assert directory["usable"] <= directory["total"]
    replicas = odradek.ok("log-dirs", topic).rows
    assert [row[2:4] for row in replicas] == [[topic, "0"], [topic, "1"]]
    size = (Path(directory["directory"]) / f"{topic}-0" / f"{0:020d}.log").stat().st_size
    assert replicas[0][4:] == [str(size), "0", ""]
    everything = odradek.ok("log-dirs", "--replicas", "--broker", 0, "--json").json
    assert sum(one["size"] for one in everything) == directory["size"]
    assert len(everything) == directory["replicas"]
    shown = odradek.ok("log-dirs", terminal=True).lines
    assert shown[0].split() == ["BROKER", "DIRECTORY", "REPLICAS", "SIZE", "TOTAL", "USABLE"]
    assert "GiB" in shown[1]
    assert "topic 'nowhere' does not exist" in odradek("log-dirs", "nowhere").err


def test_the_cluster_is_described(broker: EmbeddedBroker, odradek: Commands) -> None:
    old_topic(broker)
    told = odradek.ok("cluster", "describe", "--json").json
    (one,) = told["brokers"]
    assert (told["controller"], one["broker"], told["without_leader"]) == (0, 0, 0)
    assert one["leaders"] == one["replicas"] == told["partitions"] >= 2
    assert one["size"] > 0
    shown = odradek.ok("cluster", "describe", terminal=True).lines
    assert shown[0] == f"cluster {told['cluster_id']}, controller: broker 0"
    assert shown[1].endswith("0 without leader, 0 under-replicated")
    assert shown[3].split()[:3] == ["0", broker.bootstrap_servers, "controller"]


def test_quotas(odradek: Commands) -> None:
    assert odradek.ok("quotas", "describe").out == ""
    assert odradek.ok("quotas", "describe", terminal=True).out == "no quotas\n"
    changed = odradek.ok(
        *("quotas", "alter", "--client-id", "loader", "--set", "producer_byte_rate=1048576"),
        *("--set", "consumer_byte_rate=2000"),
    )
    assert changed.out == "altered client-id 'loader': consumer_byte_rate, producer_byte_rate\n"
    odradek.ok("quotas", "alter", "--default-client-id", "--set", "request_percentage=50", "--json")
    assert odradek.ok("quotas", "describe").rows == [
        ["client-id 'loader'", "consumer_byte_rate", "2000"],
        ["client-id 'loader'", "producer_byte_rate", "1048576"],
        ["default client-id", "request_percentage", "50"],
    ]
    (default,) = odradek.ok("quotas", "describe", "--default-client-id", "--json").json
    assert default == {"entity": {"client-id": None}, "key": "request_percentage", "value": 50.0}
    odradek.ok("quotas", "alter", "--default-client-id", "--delete", "request_percentage")
    rate = ("--delete", "producer_byte_rate", "--delete", "consumer_byte_rate")
    odradek.ok("quotas", "alter", "--client-id", "loader", *rate)
    assert odradek.ok("quotas", "describe").out == ""
    for words, expected in (
        (("--set", "producer_byte_rate=1"), "expected an entity: one of --user"),
        (("--client-id", "a"), "nothing to change; give --set or --delete"),
        (("--client-id", "a", "--set", "producer_byte_rate=fast"), "expected a number"),
        (("--client-id", "a", "--set", "producer_rate=1"), "producer_rate"),
    ):
        refused = odradek("quotas", "alter", *words)
        assert (refused.code, refused.out) == (1, "")
        assert expected in refused.err


def test_topics_are_described_with_offsets_sizes_and_settings(
    broker: EmbeddedBroker, odradek: Commands
) -> None:
    topic = old_topic(broker)
    (told,) = odradek.ok("topics", "describe", topic, "--json").json
    assert told["configs"] == {"retention.ms": "-1"}
    assert told["broker_configs"] == {"segment.bytes": "1000000"}
    first, second = told["partitions"]
    assert (first["earliest"], first["latest"]) == (0, 5)
    assert first["size"] > 0
    assert (second["latest"], second["size"]) == (0, 0)
    lines = odradek.ok("topics", "describe", topic, terminal=True).lines
    assert lines[1:3] == ["retention.ms=-1", "segment.bytes=1000000 (set for the brokers)"]
    assert lines[3].split()[-3:] == ["EARLIEST", "LATEST", "SIZE"]
    assert lines[4].split()[-4:-1] == ["0", "5", str(first["size"])]


def group_at(broker: EmbeddedBroker, topic: str, *offsets: int) -> str:
    """A group without members that has committed these offsets, by partition."""
    group = f"group-of-{topic}"
    with Admin(broker.client_settings) as admin:
        committed = {
            TopicPartition(topic, number): OffsetAndMetadata(offset)
            for number, offset in enumerate(offsets)
        }
        admin.alter_group_offsets(group, committed)
    return group


def test_lag_in_messages_and_in_seconds(broker: EmbeddedBroker, odradek: Commands) -> None:
    topic = old_topic(broker)
    group = group_at(broker, topic, 2, 0)
    rows = odradek("groups", "describe", group, "--json").json
    assert [(row["lag"], row["lag_seconds"] is not None) for row in rows] == [(3, True), (0, True)]
    assert rows[1]["lag_seconds"] == 0
    # The third message has waited since its timestamp: more than two years.
    assert rows[0]["lag_seconds"] > 2 * 365 * 86_400
    shown = odradek("groups", "describe", group, terminal=True)
    assert shown.err == f"odradek groups describe: group {group!r} has no active members\n"
    assert shown.lines[-1].startswith("total lag: 3 messages in 1 partition, the oldest waits for ")
    odradek.ok("produce", topic, "--partition", 1, stdin=b"now\n")
    assert odradek("groups", "describe", group, "--json").json[1]["lag_seconds"] < 600


def test_offsets_are_reset_by_a_duration(broker: EmbeddedBroker, odradek: Commands) -> None:
    topic = old_topic(broker)
    group = group_at(broker, topic, 0, 0)
    for duration in ("1h", "PT1H", "1d12h", "90s"):
        moved = odradek("groups", "reset-offsets", group, "--by-duration", duration)
        assert [row[2:] for row in moved.rows] == [["0", "0", "5"], ["1", "0", "0"]], duration
    wrong = odradek("groups", "reset-offsets", group, "--by-duration", "soon")
    assert (wrong.code, "'soon' is no duration such as 1h, 1d12h, 90s or PT1H" in wrong.err) == (
        2,
        True,
    )


def test_members_are_removed(broker: EmbeddedBroker, odradek: Commands) -> None:
    """What forbids a reset names the members; without them it is done."""
    topic = old_topic(broker)
    settings: dict[str, object] = {
        **broker.client_settings,
        "group.id": "static",
        "group.instance.id": "reader-1",
        "client.id": "reader",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    read = 0
    while read < 5:
        read += len(consumer.poll(timeout=1.0))
    refused = odradek("groups", "reset-offsets", "static", "--to-earliest", "--execute")
    assert refused.code == 1
    assert (
        f"group 'static' has 1 active member: reader on /127.0.0.1 reads {topic}(0,1); stop them"
        in refused.err
    )
    unknown = odradek("groups", "remove-members", "static", "--instance", "reader-2")
    assert (unknown.code, unknown.out) == (1, "")
    assert "'reader-2'" in unknown.err
    # A static member does not leave when it closes: it is expected back.
    consumer.close()
    removed = odradek.ok("groups", "remove-members", "static", "--instance", "reader-1")
    assert removed.out == "removed reader-1\n"
    done = odradek("groups", "reset-offsets", "static", "--to-earliest", "--execute")
    assert done.code == 0, done
    assert odradek.ok("groups", "remove-members", "static", "--all").out == (
        "group static has no members\n"
    )
    assert odradek.ok("groups", "remove-members", "static", "--all", "--json").json == []
    missing = odradek("groups", "remove-members", "nobody", "--all")
    assert (missing.code, missing.out) == (1, "")


def test_a_directory_is_dumped(broker: EmbeddedBroker, odradek: Commands, tmp_path: Path) -> None:
    topic = broker.create_topic()
    with Producer(broker.client_settings) as producer:
        producer.send(topic, b"text", key=b"k", headers=[("h", b"x")])
        producer.send(topic, b"\xff\x00")
    (directory,) = odradek.ok("log-dirs", "--json").json
    partition = Path(directory["directory"]) / f"{topic}-0"
    dumped = run_command("log", "dump", partition)
    assert dumped.code == 0
    assert f"Dumping {partition / f'{0:020d}.log'}" in dumped.lines
    assert f"Dumping {partition / 'leader-epoch-checkpoint'}" in dumped.lines
    assert [line for line in dumped.lines if line.startswith("baseOffset: 0 ")]
    lines = run_command("log", "dump", partition, "--records", "--json").lines
    objects = [json.loads(line) for line in lines]
    assert all(str(partition) in one["file"] for one in objects)
    records = [one for one in objects if one["type"] == "record"]
    assert [(one["offset"], one.get("key"), one.get("payload")) for one in records] == [
        (0, "k", "text"),
        (1, None, None),
    ]
    assert records[0]["headers"] == [{"key": "h", "value": "x"}]
    assert records[1]["payload_base64"] == "/wA="
    assert [one["lastOffset"] for one in objects if one["type"] == "batch"][-1] == 1
    everything = run_command("log", "dump", directory["directory"], "--json")
    assert {json.loads(line)["file"] for line in everything.lines} >= {
        str(partition / f"{0:020d}.log")
    }
    empty = run_command("log", "dump", tmp_path)
    assert empty.err == f"odradek log dump: {tmp_path}: no file of a log is in this directory\n"
    assert empty.code == 1


def test_records_of_internal_topics_are_objects(broker: EmbeddedBroker, odradek: Commands) -> None:
    group = group_at(broker, old_topic(broker), 1)
    (directory,) = odradek.ok("log-dirs", "--json").json
    partition = Path(directory["directory"]) / "__consumer_offsets-0"
    lines = run_command("log", "dump", partition, "--records", "--json").lines
    keys = [one["key"] for line in lines if (one := json.loads(line))["type"] == "record"]
    assert group in [key["data"]["group"] for key in keys]


@pytest.mark.parametrize(
    "words",
    ["offsets", "log-dirs --replicas", "cluster describe", "quotas describe", "topics describe",
     "groups describe", "profile list", "api-versions", "--help", "completion bash"],
)  # fmt: skip
def test_a_reader_that_ends_is_no_traceback(words: str, broker: EmbeddedBroker) -> None:
    """As in `odradek … | head -0`: the pipe is closed before the command writes."""
    old_topic(broker)
    command = [sys.executable, "-m", "odradek", *words.split()]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "HOME": "/nonexistent"},
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        told = running.stderr.read().decode()
    assert "Traceback" not in told
    assert "Exception" not in told
    assert running.returncode in (0, 1)
