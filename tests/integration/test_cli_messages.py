"""`consume`, `produce` and `topics copy`, as users type them and read what they print."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, Consumer, Producer
from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands
from tests.support.schema_registry import running_registry

pytestmark = pytest.mark.slow

# 2026-11-17T09:00:00Z
NINE_MS = 1_794_906_000_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def odradek(broker: EmbeddedBroker) -> Commands:
    return Commands(broker.bootstrap_servers)


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def all_records(odradek: Commands, topic: str, *partitions: int) -> list[Any]:
    """Every record there is, partition after partition."""
    with Consumer(bootstrap_servers=odradek.bootstrap) as consumer:
        found = consumer.partitions_for(topic)
        tps = [(topic, number) for number in partitions or range(len(found))]
        ends = consumer.end_offsets(tps)
        records: list[Any] = []
        for tp, end in ends.items():
            consumer.assign([tp])
            consumer.seek_to_beginning()
            while consumer.position(tp) < end:
                records += consumer.poll()
    return records


def facts(records: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (one.partition, one.timestamp, one.key, one.value, tuple(one.headers)) for one in records
    ]


def send_hours(odradek: Commands, topic: str, partitions: int = 1) -> None:
    """Five messages, an hour from one to the next, in every partition."""
    odradek.ok("topics", "create", topic, "--partitions", partitions)
    with Producer(bootstrap_servers=odradek.bootstrap) as producer:
        for partition in range(partitions):
            for hour in range(5):
                value = b"%d:%d" % (partition, hour)
                producer.send(topic, value, partition=partition, timestamp=NINE_MS + hour * HOUR_MS)


# Groups


def test_the_time_of_silence_begins_with_the_assignment(topic: str) -> None:
    """A group forms for three seconds by default; two seconds of silence must not end before."""
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "3000"}) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok("produce", topic, stdin=b"1\n2\n3\n")
        read = ("consume", topic, "--group", "g", "--from-beginning", "--timeout", 1)
        assert odradek.ok(*read).lines == ["1", "2", "3"]


def test_a_group_that_cannot_be_joined_is_an_error_with_its_reason(topic: str) -> None:
    settings = {"offsets.topic.replication.factor": "3"}
    with EmbeddedBroker(settings) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok("produce", topic, stdin=b"1\n")
        read = ("consume", topic, "--group", "g", "--timeout", 1, "--request-timeout", 3)
        failed = odradek(*read)
    assert (failed.code, failed.out) == (1, "")
    assert "group 'g' was not joined within 3000 ms" in failed.err
    assert "COORDINATOR_NOT_AVAILABLE" in failed.err


def test_a_group_commits_what_was_printed_and_no_more(odradek: Commands, topic: str) -> None:
    odradek.ok("produce", topic, stdin=b"a1\nb1\na2\nb2\na3\n")
    read = ("consume", topic, "--group", topic, "--from-beginning")
    chosen = odradek.ok(*read, "--filter", "value starts 'a'", "--max-messages", 2)
    assert chosen.lines == ["a1", "a2"]
    assert odradek.ok(*read, "--exit-at-end").lines == ["b2", "a3"]
    assert odradek.ok(*read, "--exit-at-end").lines == []


# Where reading begins and ends


def test_a_range_of_times(odradek: Commands, topic: str) -> None:
    send_hours(odradek, topic)
    read = ("consume", topic)
    from_eleven = odradek.ok(*read, "--from", "2026-11-17T11:00:00Z", "--exit-at-end")
    assert from_eleven.lines == ["0:2", "0:3", "0:4"]
    two = odradek.ok(*read, "--from", NINE_MS + HOUR_MS, "--to", "2026-11-17T12:00:00+00:00")
    assert two.lines == ["0:1", "0:2"]
    assert odradek.ok(*read, "--from-beginning", "--to", "2026-11-17T10:00Z").lines == ["0:0"]
    # They lie in the future: an hour ago is before them, and nothing is after the last.
    assert len(odradek.ok(*read, "--from", "1h", "--exit-at-end").lines) in (0, 5)
    assert odradek.ok(*read, "--from", "2027-11-17", "--exit-at-end").out == ""


def test_the_last_hour(odradek: Commands, topic: str) -> None:
    old = ("produce", topic, "--timestamp", "2h")
    odradek.ok(*old, stdin=b"old\n")
    odradek.ok("produce", topic, "--timestamp", "30m", stdin=b"late\n")
    odradek.ok("produce", topic, stdin=b"now\n")
    assert odradek.ok("consume", topic, "--from", "1h", "--exit-at-end").lines == ["late", "now"]
    assert odradek.ok("consume", topic, "--from", "3h", "--to", "1h").lines == ["old"]


def test_the_end_is_that_of_the_beginning(odradek: Commands, topic: str) -> None:
    send_hours(odradek, topic, partitions=3)
    read = odradek.ok("consume", topic, "--from-beginning", "--exit-at-end")
    assert sorted(read.lines) == [f"{p}:{hour}" for p in range(3) for hour in range(5)]
    empty = f"{topic}-empty"
    odradek.ok("topics", "create", empty)
    assert odradek.ok("consume", empty, "--from-beginning", "--exit-at-end").out == ""
    assert odradek.ok("consume", topic, "--exit-at-end").out == ""


def test_an_offset_without_a_partition_is_one_of_each(odradek: Commands, topic: str) -> None:
    """08:T-3, widened: every partition begins there, or at its nearer end."""
    send_hours(odradek, topic, partitions=2)
    odradek.ok("produce", topic, "--partition", 1, stdin=b"1:5\n")
    last = odradek.ok("consume", topic, "--offset", -1, "--exit-at-end")
    assert sorted(last.lines) == ["0:4", "1:5"]
    from_four = odradek.ok("consume", topic, "--offset", 4, "--exit-at-end")
    assert sorted(from_four.lines) == ["0:4", "1:4", "1:5"]
    from_five = odradek.ok("consume", topic, "--offset", 5, "--exit-at-end")
    assert from_five.lines == ["1:5"]


def test_several_topics_and_a_pattern(odradek: Commands, topic: str) -> None:
    for name in ("a", "b", "c"):
        odradek.ok("produce", f"{topic}.{name}", stdin=f"{name}\n".encode())
    whole = ("--from-beginning", "--exit-at-end")
    two = odradek.ok("consume", f"{topic}.a", *whole, f"{topic}.c")
    assert sorted(two.lines) == ["a", "c"]
    every = odradek.ok("consume", "--pattern", rf"{topic}\.[bc]", *whole, "--json")
    assert sorted(json.loads(line)["topic"][-1] for line in every.lines) == ["b", "c"]
    group = odradek.ok("consume", "--pattern", rf"{topic}\..*", *whole, "--group", topic)
    assert sorted(group.lines) == ["a", "b", "c"]
    none = odradek("consume", "--pattern", "no-such-.*")
    assert (none.code, none.err.startswith("odradek consume: --pattern no-such-.*: no topic")) == (
        1,
        True,
    )


# What is printed


def send_one(odradek: Commands, topic: str, value: bytes | None, **fields: Any) -> None:
    with Producer(bootstrap_servers=odradek.bootstrap) as producer:
        producer.send(topic, value, **fields).result()


def test_a_template(odradek: Commands, topic: str) -> None:
    value = b'{"who": {"name": "Ann"}, "tags": ["x", "y"], "n": 1.5}'
    headers = [("trace", b"\x01\xff"), ("none", None), ("trace", b"\x02")]
    send_one(odradek, topic, value, key=b"k\xff", headers=headers, timestamp=NINE_MS)

    def shown(template: str) -> str:
        read = ("consume", topic, "--from-beginning", "--exit-at-end", "--format", template)
        return odradek.ok(*read).out

    assert shown("{topic}/{partition}/{offset}") == f"{topic}/0/0\n"
    assert shown("{timestamp} {timestamp:iso}") == f"{NINE_MS} 2026-11-17T09:00:00.000Z\n"
    assert shown("{key:hex} {key:base64} {key:size}") == "6bff a/8= 2\n"
    assert shown("{key:json}") == '{"base64":"a/8="}\n'
    assert shown(r"{value.who.name}\t{value.tags[-1]}\t{value.n}") == "Ann\ty\t1.5\n"
    assert shown("{value.who}|{value.gone}|{value.tags:json}") == '{"name":"Ann"}|null|["x","y"]\n'
    assert shown("{header.trace:hex}{{{header.none}}}") == "02{null}\n"
    assert shown("{value:json}") == json.dumps(value.decode()) + "\n"
    assert shown("{headers:json}") == (
        '[{"key":"trace","value":{"base64":"Af8="}},{"key":"none","value":null},'
        '{"key":"trace","value":"\x02"}]\n'.replace("\x02", "\\u0002")
    )


def test_filters(odradek: Commands, topic: str) -> None:
    with Producer(bootstrap_servers=odradek.bootstrap) as producer:
        for n in range(10):
            value = json.dumps({"n": n, "who": {"name": f"u{n}"}, "tags": ["even"] * (1 - n % 2)})
            headers = [("source", b"web" if n < 5 else b"app")]
            producer.send(topic, value.encode(), key=b"k%d" % n, headers=headers)
        producer.send(topic, b"no json", key=None)

    def found(expression: str) -> str:
        read = ("consume", topic, "--from-beginning", "--exit-at-end", "--filter", expression)
        return "".join(odradek.ok(*read, "--format", "{offset} ").out.split())

    assert found("value.n > 7") == "89"
    assert found('key == "k3" or value.who.name ~ "^u[45]$"') == "345"
    assert found("header.source == 'web' and not value.tags contains 'even'") == "13"
    assert found("(offset < 2 or offset >= 9) and partition == 0") == "01910"
    assert found("key == null") == "10"
    assert found("value contains 'json'") == "10"
    assert found("value.n == '3'") == ""
    wrong = odradek("consume", topic, "--filter", "value.n = 3")
    assert (wrong.code, wrong.out) == (2, "")
    assert "cannot read '= 3'" in wrong.err


HOSTILE = b"bell \x07, title \x1b]0;owned\x07, \xc2\x9b31m, \xff, \xe2\x80\xae"


def test_what_a_terminal_would_obey_is_escaped_there_alone(odradek: Commands, topic: str) -> None:
    send_one(odradek, topic, HOSTILE + b"\tok\n", key="k\u202e\x7f".encode())
    read = ("consume", topic, "--from-beginning", "--exit-at-end")
    shown = odradek.ok(*read, terminal=True).out
    assert shown == (r"bell \x07, title \x1b]0;owned\x07, \u009b31m, \xff, \u202e" + "\tok\n\n")
    as_json = odradek.ok(*read, "--json", terminal=True).out
    assert all(one.isprintable() or one == "\n" for one in as_json)
    assert json.loads(as_json)["key"] == "k\u202e\x7f"
    in_a_pipe = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", *read, "--bootstrap-server", odradek.bootstrap],
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    assert in_a_pipe.stdout == HOSTILE + b"\tok\n\n"


# Avro

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def test_avro_of_a_registry(odradek: Commands, topic: str) -> None:
    good = b"\x00\x00\x00\x00\x07" + b"\x54" + b"\x02\x06Ann" + b"\x02\x02x\x00"
    with running_registry() as registry:
        registry.add(f"{topic}-value", 7, AVRO)
        send_one(odradek, topic, good, key=b"plain")
        send_one(odradek, topic, None)
        read = ("consume", topic, "--from-beginning", "--exit-at-end", "--registry", registry.url)
        assert odradek.ok(*read).lines == ['{"id":42,"who":"Ann","tags":["x"]}', "null"]
        one, nothing = map(json.loads, odradek.ok(*read, "--json").lines)
        assert (one["key"], one["value"]) == ("plain", {"id": 42, "who": "Ann", "tags": ["x"]})
        assert nothing["value"] is None
        assert odradek.ok(
            *read, "--filter", "value.who == 'Ann'", "--format", "{value.id}"
        ).lines == ["42"]
        send_one(odradek, topic, b"no avro")
        bad = odradek(*read)
        assert (bad.code, len(bad.lines)) == (1, 2)  # Those before it are printed.
        assert f"{topic}-0 at offset 2: not in the registry's wire format" in bad.err
        assert "--avro" in bad.err


# Sending


def test_keys_headers_times_and_partitions(odradek: Commands, topic: str, tmp_path: Path) -> None:
    odradek.ok("topics", "create", topic, "--partitions", 3)
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1\n2\n")
    second.write_bytes(b"3")
    told = ("--key", "k", "--header", "a=1", "--header", "a=2", "--timestamp", NINE_MS)
    odradek.ok("produce", topic, *told, "--partition", 2, first, second)
    headers = (("a", b"1"), ("a", b"2"))
    assert facts(all_records(odradek, topic)) == [
        (2, NINE_MS, b"k", value, headers) for value in (b"1", b"2", b"3")
    ]
    nowhere = odradek("produce", topic, "--partition", 3, stdin=b"x")
    assert nowhere.err == (
        f"odradek produce: --partition 3: topic {topic!r} has partitions 0 to 2\n"
    )
    missing = odradek("produce", topic, tmp_path / "missing")
    assert (missing.code, "cannot read" in missing.err) == (1, True)


def test_whole_files_and_other_delimiters(odradek: Commands, topic: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(bytes(range(256)) * 10)
    odradek.ok("produce", topic, "--whole", picture, picture)
    odradek.ok("produce", topic, "--delimiter", r"\0", stdin=b"a\nb\0c\0")
    odradek.ok("produce", topic, "--delimiter", "<>", stdin=b"d<>e")
    whole = picture.read_bytes()
    values = [one.value for one in all_records(odradek, topic)]
    assert values == [whole, whole, b"a\nb", b"c", b"d", b"e"]
    raw = odradek.ok("consume", topic, "--offset", 2, "--exit-at-end", "--delimiter", r"\0")
    assert raw.out == "a\nb\0c\0d\0e\0"


STRANGE: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, b"plain", []),
    (b"", b"", []),
    (b"k", None, [("h", None), ("h", b""), ("h", b"\xff"), ("\udcff", b"x")]),
    (b"\xff\x00", bytes(range(256)), []),
    ('"\\\u2028\U0001f600'.encode(), b'{"a": "\\u0000"}\r\n\t\x7f', [("", b"n")]),
    (b"k", b'{"key_base64": "x"}', []),
]


def send_strange(odradek: Commands, topic: str, partitions: int) -> None:
    with Admin(bootstrap_servers=odradek.bootstrap) as admin:
        from odradek.client.admin import NewTopic

        admin.create_topics([NewTopic(name=topic, partition_count=partitions)])
    with Producer(bootstrap_servers=odradek.bootstrap) as producer:
        for number in range(60):
            key, value, headers = STRANGE[number % len(STRANGE)]
            producer.send(
                topic, value, key, headers, number * 7 % partitions, NINE_MS + number
            ).result()


def test_json_lines_copy_a_topic_exactly(odradek: Commands, topic: str) -> None:
    copy = f"{topic}-copy"
    send_strange(odradek, topic, partitions=4)
    odradek.ok("topics", "create", copy, "--partitions", 4)
    lines = odradek.ok("consume", topic, "--from-beginning", "--exit-at-end", "--json").out
    odradek.ok("produce", copy, "--json", "--keep-partitions", stdin=lines.encode())
    assert facts(all_records(odradek, copy)) == facts(all_records(odradek, topic))


def test_json_lines_that_are_no_messages(odradek: Commands, topic: str) -> None:
    def fails(*lines: str) -> str:
        failed = odradek("produce", topic, "--json", stdin="\n".join(lines).encode())
        assert (failed.code, failed.out) == (1, "")
        return failed.err.removeprefix("odradek produce: ")

    good = '{"value": "sent"}'
    assert fails(good, "", "{").startswith("line 3: it is not JSON: ")
    assert fails('{"a"', ': 1, "value": 2}').startswith("line 1: it is not JSON: ")
    assert fails(good, '{"key": "k"}').startswith("line 2: it has neither value nor value_base64")
    assert fails('{"value": 1, "name": 2}').startswith("line 1: a message has no field 'name'")
    assert fails('{"value": 1} {"value": 2}').startswith("line 1: it is not one JSON object")
    assert fails('{"value_base64": "*"}').startswith("line 1: value_base64: ")
    assert fails('{"value": "\\ud800"}').startswith("line 1: ")
    assert fails('{"value": "x", "timestamp": "soon"}').startswith("line 1: timestamp: expected")
    assert fails('{"value": "x", "headers": 1}').startswith("line 1: headers: expected a list")
    assert fails("[1]").startswith("line 1: expected an object")
    sent = [one.value for one in all_records(odradek, topic)]
    assert sent == [b"sent", b"sent"]
    short = b'  {"value": {"a": [1, "\xc3\xa4"]}, "headers": {"h": "1"}}\r\n'
    short += b'{"value": 7, "partition": 9}'
    odradek.ok("produce", topic, "--json", "--header", "x=y", stdin=short)
    records = all_records(odradek, topic)[2:]
    assert [(one.value, list(one.headers)) for one in records] == [
        ('{"a":[1,"ä"]}'.encode(), [("h", b"1"), ("x", b"y")]),
        (b"7", [("x", b"y")]),
    ]
    beyond = odradek("produce", topic, "--json", "--keep-partitions", stdin=short)
    assert "is for partition 9" in beyond.err
    broken = odradek("produce", topic, "--json", stdin=good.encode() + b'\n{"value": "\xff"}\n')
    assert broken.err.startswith("odradek produce: line 2: it is not UTF-8")


def test_a_message_of_many_megabytes(odradek: Commands, topic: str) -> None:
    big = os.urandom(3_000_000).hex().encode()
    odradek.ok("topics", "create", topic)
    refused = odradek("produce", topic, stdin=b"before\n" + big + b"\nafter\n")
    assert refused.code == 1
    assert "a message has 60000" in refused.err
    assert [one.value for one in all_records(odradek, topic)] == [b"before"]
    advised = re.search(r"`odradek (configs alter topic \S+ --set \S+)`", refused.err)
    assert advised is not None
    odradek.ok(*advised[1].split())
    odradek.ok("produce", topic, stdin=b"x\n" + big + b"\nafter\n")
    read = odradek.ok("consume", topic, "--offset", 1, "--exit-at-end").lines
    assert read == ["x", big.decode(), "after"]


def test_the_error_of_the_broker_is_told(odradek: Commands, topic: str) -> None:
    odradek.ok("topics", "create", topic, "--config", "min.insync.replicas=2")
    failed = odradek("produce", topic, "--request-timeout", 1, stdin=b"x\n")
    assert failed.code == 1
    assert "REQUEST_TIMED_OUT" not in failed.err
    assert f"{topic}-0: 1 in-sync replicas, min.insync.replicas wants 2" in failed.err
    assert failed.err.endswith(
        "(NOT_ENOUGH_REPLICAS); bring brokers back or lower min.insync.replicas\n"
    )
    odradek.ok("produce", topic, "--acks", 1, stdin=b"x\n")


# Copies


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["same cluster", "another"])
def test_a_copy_of_a_topic(odradek: Commands, topic: str, is_elsewhere: bool) -> None:
    send_strange(odradek, topic, partitions=4)
    if not is_elsewhere:
        copied = odradek.ok("topics", "copy", topic, f"{topic}-copy")
        assert copied.out == f"copied 60 messages from {topic} to {topic}-copy\n"
        assert facts(all_records(odradek, f"{topic}-copy")) == facts(all_records(odradek, topic))
        return
    with EmbeddedBroker() as there:
        target = Commands(there.bootstrap_servers)
        copied = odradek.ok(
            "topics", "copy", topic, topic, "--to-bootstrap-server", target.bootstrap, "--json"
        )
        assert copied.json == {"source": topic, "target": topic, "messages": 60}
        assert facts(all_records(target, topic)) == facts(all_records(odradek, topic))


def test_a_copy_to_fewer_partitions(odradek: Commands, topic: str) -> None:
    small = f"{topic}-small"
    send_strange(odradek, topic, partitions=4)
    odradek.ok("topics", "create", small, "--partitions", 2)
    refused = odradek("topics", "copy", topic, small)
    assert (refused.code, "--by-key does without" in refused.err) == (1, True)
    odradek.ok("topics", "copy", topic, small, "--by-key", "--compression", "lz4")

    def without_partition(name: str) -> list[str]:
        return sorted(repr(one[1:]) for one in facts(all_records(odradek, name)))

    assert without_partition(small) == without_partition(topic)
    itself = odradek("topics", "copy", topic, topic)
    assert "cannot be copied onto itself" in itself.err
    assert "does not exist" in odradek("topics", "copy", f"{topic}-gone", small).err


# Iteration


def test_a_consumer_is_iterable(odradek: Commands, topic: str) -> None:
    odradek.ok("produce", topic, stdin=b"1\n2\n3\n4\n5\n")
    config = {"bootstrap.servers": odradek.bootstrap, "group.id": topic}
    with Consumer(config, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        values = []
        for record in consumer:
            values.append(record.value)
            if len(values) == 3:
                break
    assert values == [b"1", b"2", b"3"]
    with Consumer(config) as consumer:  # What was not handed out was not committed.
        consumer.subscribe([topic])
        assert [next(consumer).value, next(consumer).value] == [b"4", b"5"]
