"""What `odradek consume` makes of the records of `__consumer_offsets`."""

import argparse
import io
import json

import pytest

from odradek.cli.consume import add_arguments
from odradek.cli.messages.printers import make_printer
from odradek.coordinator.group.records import (
    GroupValue,
    MemberValue,
    OffsetAndMetadata,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.records.codec import ConsumerRecord, TimestampType

MANAGER = "kafka.coordinator.group.GroupMetadataManager$"
TOOLS = "org.apache.kafka.tools.consumer."
MEMBER = MemberValue("m-1", "static", "reader", "/10.0.0.1", 60_000, 45_000, b"\x00", b"\x01")

OFFSET_KEY = encode_offset_key("billing", "orders", 3)
GROUP_KEY = encode_group_key("billing")
RECORDS = [
    (OFFSET_KEY, encode_offset_value(OffsetAndMetadata(17, 4, "note", 1_000))),
    (GROUP_KEY, encode_group_value(GroupValue("consumer", 2, "range", "m-1", 900, [MEMBER]))),
    (OFFSET_KEY, encode_offset_value(OffsetAndMetadata(18, -1, "", 2_000, 9_000))),
    (GROUP_KEY, encode_group_value(GroupValue(None, 3, None, None, None, []))),
    (OFFSET_KEY, None),
    (GROUP_KEY, None),
    (b"\x00\x09??", b"written by a newer broker"),
    (None, b"no key"),
]


def printed(*options: str, records: list[tuple[bytes | None, bytes | None]] = RECORDS) -> list[str]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    out = io.BytesIO()
    messages = [
        ConsumerRecord("__consumer_offsets", 7, offset, 0, TimestampType.CREATE_TIME, key, value)
        for offset, (key, value) in enumerate(records)
    ]
    make_printer(parser.parse_args(["__consumer_offsets", *options]), out).print(messages)
    return out.getvalue().decode().splitlines()


def test_offsets_as_kafka_prints_them() -> None:
    """07 §4.3: records of the other kind are passed over, a tombstone is NULL."""
    assert printed("--formatter", f"{MANAGER}OffsetsMessageFormatter") == [
        "[billing,orders,3]::OffsetAndMetadata(offset=17, leaderEpoch=Optional[4], metadata=note,"
        " commitTimestamp=1000, expireTimestamp=None)",
        "[billing,orders,3]::OffsetAndMetadata(offset=18, leaderEpoch=Optional.empty, metadata=,"
        " commitTimestamp=2000, expireTimestamp=Some(9000))",
        "[billing,orders,3]::NULL",
    ]


def test_groups_as_kafka_prints_them() -> None:
    """07 §4.3."""
    assert printed("--formatter", f"{MANAGER}GroupMetadataMessageFormatter") == [
        "billing::GroupMetadata(groupId=billing, generation=2, protocolType=Some(consumer),"
        " currentState=Stable, members=Map(m-1 -> MemberMetadata(memberId=m-1,"
        " groupInstanceId=Some(static), clientId=reader, clientHost=/10.0.0.1,"
        " sessionTimeoutMs=45000, rebalanceTimeoutMs=60000, supportedProtocols=List(range))))",
        "billing::GroupMetadata(groupId=billing, generation=3, protocolType=None,"
        " currentState=Empty, members=Map())",
        "billing::NULL",
    ]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (f"{TOOLS}OffsetsMessageFormatter", "offsets"),
        (f"{TOOLS}GroupMetadataMessageFormatter", "group-metadata"),
    ],
)
def test_the_newer_names_stand_for_json(name: str, form: str) -> None:
    lines = printed("--formatter", name)
    assert lines == printed("--format", form)
    assert len(lines) == 3
    assert json.loads(lines[-1])["value"] is None


def test_json_has_the_time_of_expiry_where_there_is_one() -> None:
    first, second, _ = (json.loads(line) for line in printed("--format", "offsets"))
    assert first == {
        "key": {"type": 1, "data": {"group": "billing", "topic": "orders", "partition": 3}},
        "value": {
            "version": 3,
            "data": {
                "offset": 17,
                "leaderEpoch": 4,
                "metadata": "note",
                "commitTimestamp": 1_000,
            },
        },
    }
    assert second["value"]["data"]["expireTimestamp"] == 9_000


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_value_that_cannot_be_read_is_told(form: str) -> None:
    name = (MANAGER if form == "text" else TOOLS) + "OffsetsMessageFormatter"
    (line,) = printed("--formatter", name, records=[(OFFSET_KEY, b"\x00\x63")])
    if form == "text":
        assert line.startswith("partition 7, offset 0::")
    else:
        told = json.loads(line)
        assert (told["partition"], told["offset"]) == (7, 0)
    assert "99" in line


def test_an_unknown_formatter_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        printed("--formatter", "kafka.coordinator.group.GroupMetadataManager")
    told = capsys.readouterr().err
    assert "there is no formatter 'kafka.coordinator.group.GroupMetadataManager'" in told
    assert f"{MANAGER}OffsetsMessageFormatter" in told
