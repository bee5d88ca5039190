"""Commands against a running cluster: Odradek, and Apache Kafka, which must look the same."""

import base64
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import find_kafka, running_broker, why_missing
from tests.support.commands import Commands, Outcome

pytestmark = pytest.mark.slow

KAFKA_VERSION = "4.3.1"


def eventually(look: Callable[[], Outcome], holds: Callable[[Outcome], bool]) -> None:
    """Look until it holds: a broker may be a moment behind the controller that did it."""
    deadline = time.monotonic() + 60
    while not holds(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def check_topics(odradek: Commands) -> None:
    created = odradek.ok("topics", "create", "t-one", "t-two", "--partitions", 3)
    assert created.out == "created t-one with 3 partitions\ncreated t-two with 3 partitions\n"
    again = odradek("topics", "create", "t-one", "t-three", "--json")
    assert again.code == 1
    assert [row["topic"] for row in again.json] == ["t-three"]
    assert again.err.startswith("odradek topics create: topic 't-one': ")
    assert again.err.endswith("(TOPIC_ALREADY_EXISTS); --if-not-exists accepts that\n")
    assert odradek.ok("topics", "create", "t-one", "--if-not-exists").out == ""
    checked = odradek.ok("topics", "create", "t-four", "--validate-only", "--partitions", 1)
    assert checked.out == "could create t-four with 1 partition\n"

    wanted = [["t-one", "3", "1"], ["t-three", "1", "1"], ["t-two", "3", "1"]]
    eventually(
        lambda: odradek.ok("topics", "list"),
        lambda listed: [row for row in listed.rows if row[0].startswith("t-")] == wanted,
    )
    table = odradek.ok("topics", "list", terminal=True).lines
    assert table[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]

    odradek.ok("topics", "alter", "t-one", "--partitions", 5, "--config", "retention.ms=123")

    def is_altered(described: Outcome) -> bool:
        (one,) = described.json
        numbers = [row["partition"] for row in one["partitions"]]
        return numbers == [0, 1, 2, 3, 4] and one["configs"] == {"retention.ms": "123"}

    eventually(lambda: odradek.ok("topics", "describe", "t-one", "--json"), is_altered)
    shown = odradek.ok("topics", "describe", "t-one", terminal=True).lines
    assert shown[0].startswith("t-one: 5 partitions, 1 replica, id ")
    assert shown[1] == "retention.ms=123"
    # Between them are the settings of the brokers; an Apache Kafka has some in its file.
    (head,) = [line for line in shown if line.startswith("PARTITION ")]
    assert head.split() == [
        *("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE"),
        *("EARLIEST", "LATEST", "SIZE"),
    ]
    odradek.ok("topics", "alter", "t-one", "--delete-config", "retention.ms")
    shrunk = odradek("topics", "alter", "t-one", "t-nowhere", "--partitions", 2)
    assert shrunk.code == 1
    assert "INVALID_PARTITIONS" in shrunk.err
    assert "'t-nowhere'" in shrunk.err

    assert odradek.ok("topics", "delete", "t-one", "t-three", "--json").json == {
        "deleted": ["t-one", "t-three"]
    }
    assert odradek.ok("topics", "delete", "t-one", "--if-exists").out == ""
    gone = odradek("topics", "delete", "t-one", "t-two")
    assert (gone.code, gone.out) == (1, "deleted t-two\n")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone.err
    missing = (
        "odradek topics describe: topic 't-one' does not exist (UNKNOWN_TOPIC_OR_PARTITION); "
        "`odradek topics list` shows all topics\n"
    )
    eventually(lambda: odradek("topics", "describe", "t-one"), lambda shown: shown.err == missing)


def check_produce_and_consume(odradek: Commands) -> None:
    odradek.ok("topics", "create", "p-c", "--partitions", 2)
    sent = odradek.ok("produce", "p-c", "--summary", stdin=b"zero\none\ntwo\n\nfour")
    assert sent.json == {
        "topic": "p-c",
        "messages": 5,
        "partitions": [
            {"partition": 0, "messages": 3, "last_offset": 2},
            {"partition": 1, "messages": 2, "last_offset": 1},
        ],
    }
    everything = odradek.ok("consume", "p-c", "--from-beginning", "--max-messages", 5)
    assert sorted(everything.lines) == ["", "four", "one", "two", "zero"]
    one = odradek.ok(
        "consume", "p-c", "--offset", 1, "--partition", 0, "--max-messages", 1, "--json"
    ).json
    assert (one["partition"], one["offset"], one["key"], one["value"]) == (0, 1, None, "two")
    both = ("--partition", 0, "--partition", 1)
    last = odradek.ok("consume", "p-c", *both, "--offset", -1, "--max-messages", 2)
    assert sorted(last.lines) == ["", "four"]
    assert odradek.ok("consume", "p-c", "--timeout", 0.1).out == ""  # From now on: nothing.
    assert odradek.ok("consume", "p-c", "--from-beginning", "--max-messages", 0).out == ""
    wrong = odradek("consume", "p-c", "--partition", 2)
    assert wrong.err == ("odradek consume: --partition 2: topic 'p-c' has partitions 0 to 1\n")
    above = odradek("consume", "p-c", "--partition", 0, "--offset", 1000, "--timeout", 60)
    assert above.code == 1
    assert "1000 is out of range (OFFSET_OUT_OF_RANGE)" in above.err


def check_keys_and_headers(odradek: Commands) -> None:
    odradek.ok("topics", "create", "k-h", "--partitions", 4)
    lines = b"alice:1\nbob:2\nalice:3\nbob:-\n-:5\n\xff:\xfe\n"
    options = ("--key-separator", ":", "--null-marker", "-", "--header", "origin=test")
    odradek.ok("produce", "k-h", *options, stdin=lines)
    found = odradek.ok("consume", "k-h", "--from-beginning", "--max-messages", 6, "--json").lines
    messages = [json.loads(line) for line in found]
    by_key: dict[object, list[object]] = {}
    for message in messages:
        assert message["headers"] == [{"key": "origin", "value": "test"}]
        if "key_base64" in message:
            assert base64.b64decode(message["key_base64"]) == b"\xff"
            assert base64.b64decode(message["value_base64"]) == b"\xfe"
        else:
            by_key.setdefault(message["key"], []).append(message["value"])
    assert by_key == {"alice": ["1", "3"], "bob": ["2", None], None: ["5"]}
    assert len({one["partition"] for one in messages if one.get("key") == "alice"}) == 1

    formats = ("--format", "key-value", "--headers", "--key-separator", "|")
    shown = odradek.ok("consume", "k-h", "--from-beginning", "--max-messages", 6, *formats).lines
    assert "origin=test|alice|1" in shown
    assert "origin=test|bob|null" in shown
    assert "origin=test|null|5" in shown
    assert r"origin=test|\xff|\xfe" in shown

    broken = odradek("produce", "k-h", "--key-separator", ":", stdin=b"a:1\nno key\nb:2\n")
    assert (broken.code, broken.err) == (
        1,
        "odradek produce: line 2 has no key: it does not contain ':'\n",
    )
    pairs = ("consume", "k-h", "--from-beginning", "--format", "key-value")
    all_seven = odradek.ok(*pairs, "--max-messages", 7).lines
    assert "a\t1" in all_seven  # What came before the broken line was sent.
    assert "b\t2" not in [*all_seven, *odradek.ok(*pairs, "--timeout", 0.3).lines]


def check_acks_and_codecs(odradek: Commands) -> None:
    odradek.ok("topics", "create", "codecs")
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for acks in ("0", "1", "all"):
            text = f"{codec} {acks} " + "x" * 500
            sent.append(text)
            odradek.ok(
                "produce", "codecs", "--acks", acks, "--compression", codec, stdin=text.encode()
            )
    assert odradek.ok("consume", "codecs", "--from-beginning", "--max-messages", 15).lines == sent


def check_many_messages(odradek: Commands) -> None:
    odradek.ok("topics", "create", "many", "--partitions", 3)
    numbers = [str(number) for number in range(60_000)]
    odradek.ok("produce", "many", "--compression", "lz4", stdin="\n".join(numbers).encode())
    read = odradek.ok("consume", "many", "--from-beginning", "--max-messages", len(numbers))
    assert sorted(map(int, read.lines)) == list(range(60_000))


def check_configs(odradek: Commands) -> None:
    odradek.ok("topics", "create", "conf", "--config", "max.message.bytes=2000")
    describe = ("configs", "describe", "topic", "conf")
    eventually(
        lambda: odradek(*describe),
        lambda told: ["max.message.bytes", "2000", "dynamic topic"] in told.rows,
    )
    all_rows = odradek.ok(*describe, "--all").rows
    assert ["retention.ms", "604800000", "default"] in all_rows
    altered = odradek.ok(
        "configs",
        "alter",
        "topic",
        "conf",
        "--set",
        "retention.ms=777",
        "--append",
        "cleanup.policy=compact",
        "--delete",
        "max.message.bytes",
    )
    assert altered.out == (
        "altered topic 'conf': retention.ms, cleanup.policy, max.message.bytes\n"
    )
    eventually(
        lambda: odradek.ok(*describe),
        lambda told: ["retention.ms", "777", "dynamic topic"] in told.rows,
    )
    values = {one["name"]: one for one in odradek.ok(*describe, "--all", "--json").json}
    assert values["retention.ms"]["value"] == "777"
    assert values["retention.ms"]["source"] == "dynamic_topic"
    assert set(values["cleanup.policy"]["value"].split(",")) == {"delete", "compact"}
    bad = odradek("configs", "alter", "topic", "conf", "--set", "retention.ms=soon")
    assert bad.code == 1
    assert "INVALID_CONFIG" in bad.err
    assert "retention.ms" in bad.err
    only_checked = odradek.ok(
        "configs", "alter", "topic", "conf", "--set", "retention.ms=888", "--validate-only"
    )
    assert only_checked.out == "could alter topic 'conf': retention.ms\n"

    broker = odradek.ok("api-versions", "--json").json[0]["broker"]
    rows = odradek.ok("configs", "describe", "broker", broker, "--all").rows
    assert ["num.network.threads", "3", "default"] in rows
    odradek.ok("configs", "alter", "broker", "default", "--set", "message.max.bytes=2000000")
    eventually(
        lambda: odradek.ok("configs", "describe", "broker", "default"),
        lambda told: ["message.max.bytes", "2000000", "dynamic default broker"] in told.rows,
    )
    odradek.ok("configs", "alter", "broker", "default", "--delete", "message.max.bytes")
    assert odradek("configs", "describe", "broker", 77).err == (
        f"odradek configs describe: no broker 77; there are: {broker} (BROKER_NOT_AVAILABLE)\n"
    )


def check_too_large_message(odradek: Commands) -> None:
    odradek.ok("topics", "create", "small", "--config", "max.message.bytes=1000")
    refused = odradek("produce", "small", stdin=b"x" * 5_000)
    assert refused.code == 1
    assert refused.err.startswith("odradek produce: small-0: ")
    assert refused.err.endswith("raise max.message.bytes of the topic (`odradek configs alter`)\n")


def check_delete_records(odradek: Commands) -> None:
    odradek.ok("topics", "create", "del", "--partitions", 2)
    odradek.ok("produce", "del", stdin=b"0\n1\n2\n3\n4\n5\n6\n7")
    deleted = odradek.ok("delete-records", "del", "--before", 2)
    assert deleted.rows == [["del", "0", "2"], ["del", "1", "2"]]
    rest = odradek.ok("consume", "del", "--from-beginning", "--max-messages", 4)
    assert sorted(rest.lines) == ["4", "5", "6", "7"]
    late = odradek("consume", "del", "--offset", 0, "--partition", 0, "--max-messages", 2)
    assert (late.code, late.lines) == (0, ["4", "6"])
    assert late.err == ("odradek consume: del-0: 2 offsets are deleted already, continuing at 2\n")
    (one,) = odradek.ok(
        "delete-records", "del", "--before", "latest", "--partition", 1, "--json"
    ).json
    assert one == {"topic": "del", "partition": 1, "first_offset": 4}
    failed = odradek("delete-records", "del", "--before", 99)
    assert failed.code == 1
    assert failed.err.count("OFFSET_OUT_OF_RANGE") == 2


def check_controller_show(odradek: Commands) -> None:
    odradek.ok("topics", "create", "c-s", "--partitions", 2)
    shown = odradek.ok("controller", "show", "--json").json
    [broker] = shown["brokers"]
    assert shown["controller"] == broker["id"]
    assert shown["partitions"] >= 2
    assert (shown["without_leader"], shown["under_replicated"], shown["moving"]) == (0, 0, 0)
    told = odradek.ok("controller", "show", terminal=True)
    assert told.lines[0].startswith(f"cluster {shown['cluster_id']}, controller: broker ")
    assert told.lines[2].split() == ["BROKER", "ADDRESS", "RACK", "ROLE"]


def check_reassign(odradek: Commands) -> None:
    odradek.ok("topics", "create", "r-a", "--partitions", 2)
    [broker] = odradek.ok("controller", "show", "--json").json["brokers"]
    here = broker["id"]
    with tempfile.TemporaryDirectory() as directory:
        _check_plans(odradek, here, Path(directory))


def _check_plans(odradek: Commands, here: int, directory: Path) -> None:
    plan, before = directory / "plan.json", directory / "before.json"
    planned = odradek.ok("reassign", "plan", "r-a", "--brokers", here, "--json")
    assert planned.json == {
        "version": 1,
        "partitions": [
            {"topic": "r-a", "partition": number, "replicas": [here]} for number in range(2)
        ],
    }
    files = ("--out", plan, "--rollback", before)
    table = odradek.ok("reassign", "plan", "r-a", "--brokers", here, *files)
    assert json.loads(plan.read_text()) == planned.json
    assert table.rows == [["r-a", str(number), str(here), str(here)] for number in range(2)]
    assert json.loads(before.read_text()) == planned.json
    done = odradek.ok("reassign", "execute", plan, "--wait", "--rollback", before)
    assert done.rows == [["r-a", str(n), str(here), "complete"] for n in range(2)]
    throttled = odradek.ok("reassign", "execute", plan, "--throttle", 7_000, "--json")
    assert [row["state"] for row in throttled.json] == ["complete"] * 2
    for kind, name, value in (("topic", "r-a", f"0:{here},1:{here}"), ("broker", here, "7000")):
        eventually(
            lambda kind=kind, name=name: odradek.ok("configs", "describe", kind, name),  # type: ignore[misc]  # a default
            lambda shown, value=value: value in shown.out,  # type: ignore[misc]
        )
    kept = odradek.ok("reassign", "verify", plan, "--preserve-throttles")
    assert "throttles" not in kept.out
    ended = odradek.ok("reassign", "verify", plan)
    assert ended.lines[-1] == f"throttles removed from topic 'r-a', broker '{here}'"
    eventually(
        lambda: odradek.ok("configs", "describe", "topic", "r-a"),
        lambda shown: "throttled" not in shown.out,
    )
    for name in ("--throttle", "--replica-alter-log-dirs-throttle"):
        assert "is not a positive" in odradek("reassign", "execute", plan, name, "0").err
    verified = odradek.ok("reassign", "verify", plan, "--json")
    assert [row["state"] for row in verified.json] == ["complete"] * 2
    assert odradek.ok("reassign", "list").out == ""
    assert "no replica" in odradek.ok("reassign", "cancel", plan).out
    assert odradek.ok("reassign", "cancel", "--all", "--json").json == {"cancelled": []}

    document = planned.json
    document["partitions"][0]["replicas"] = [here, 999]
    plan.write_text(json.dumps(document))
    refused = odradek("reassign", "execute", plan, "--json")
    assert refused.code == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in refused.err
    assert "r-a-0" in refused.err
    assert [row["partition"] for row in refused.json] == [1]
    missed = odradek("reassign", "verify", plan)
    assert (missed.code, missed.rows[0][3]) == (1, "not at its target")
    nowhere = odradek("reassign", "plan", "r-a", "--brokers", f"{here},998")
    assert nowhere.err == (
        f"odradek reassign plan: --brokers: 998 not there; the cluster has {here}\n"
    )
    unread = odradek("reassign", "verify", directory / "none.json")
    assert (unread.code, "cannot read" in unread.err) == (1, True)
    both = odradek("reassign", "cancel")
    assert both.err == "odradek reassign cancel: expected either a FILE or --all\n"


def check_elect_leaders(odradek: Commands) -> None:
    odradek.ok("topics", "create", "e-l", "--partitions", 2)
    told = odradek.ok("elect-leaders", "e-l", "--json").json
    assert told == {
        "elected": [],
        "not_needed": [{"topic": "e-l", "partition": number} for number in range(2)],
    }
    assert odradek.ok("elect-leaders", "--all").out == "no partition needed another leader\n"
    none = odradek("elect-leaders", "e-l", "--partition", 7, "--unclean")
    assert (none.code, none.out, "UNKNOWN_TOPIC_OR_PARTITION" in none.err) == (1, "", True)
    unclear = odradek("elect-leaders")
    assert unclear.err == "odradek elect-leaders: expected either topics or --all\n"
    assert odradek("elect-leaders", "--all", "--partition", 1).code == 1


def check_partitions_in_trouble(odradek: Commands) -> None:
    odradek.ok("topics", "create", "p-t", "--config", "min.insync.replicas=2")
    for option in ("--under-replicated", "--unavailable"):
        assert odradek.ok("topics", "describe", "p-t", option).out == ""
    eventually(
        lambda: odradek.ok("topics", "describe", "p-t", "--under-min-isr", "--json"),
        lambda shown: [(row["topic"], row["partition"]) for row in shown.json] == [("p-t", 0)],
    )
    missing = odradek("topics", "describe", "p-nowhere", "--unavailable")
    assert (missing.code, "UNKNOWN_TOPIC_OR_PARTITION" in missing.err) == (1, True)


def check_api_versions(odradek: Commands) -> None:
    rows = odradek.ok("api-versions").rows
    by_name = {row[2]: row for row in rows}
    assert by_name["PRODUCE"][3:] == ["0-13", "13"]
    assert by_name["METADATA"][3:] == ["0-13", "13"]
    (broker,) = odradek.ok("api-versions", "--json").json
    assert {"key": 0, "name": "PRODUCE", "min": 0, "max": 13, "usable": 13} in broker["apis"]


def check_missing_topic(odradek: Commands) -> None:
    assert odradek("consume", "nowhere").err == (
        "odradek consume: topic 'nowhere' does not exist; "
        "create it with `odradek topics create nowhere`\n"
    )
    odradek.ok("produce", "by-itself", stdin=b"made\n")  # Brokers create topics by themselves.
    found = odradek.ok("consume", "by-itself", "--from-beginning", "--max-messages", 1)
    assert found.lines == ["made"]


CHECKS: list[Callable[[Commands], None]] = [
    check_topics,
    check_produce_and_consume,
    check_keys_and_headers,
    check_acks_and_codecs,
    check_many_messages,
    check_configs,
    check_too_large_message,
    check_delete_records,
    check_controller_show,
    check_reassign,
    check_elect_leaders,
    check_partitions_in_trouble,
    check_api_versions,
    check_missing_topic,
]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Commands]:
    with EmbeddedBroker() as broker:
        yield Commands(broker.bootstrap_servers)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_commands_against_odradek(check: Callable[[Commands], None], own_cluster: Commands) -> None:
    check(own_cluster)


@pytest.mark.kafka
def test_commands_against_apache_kafka(tmp_path: Path) -> None:
    """One test for all checks, so that one worker starts one Kafka."""
    install = find_kafka(KAFKA_VERSION)
    if install is None:
        pytest.skip(why_missing(KAFKA_VERSION))
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running_broker(install, tmp_path))
        for check in CHECKS:
            check(Commands(broker.bootstrap))
