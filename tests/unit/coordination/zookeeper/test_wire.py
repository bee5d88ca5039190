"""The bytes of ZooKeeper's protocol, as its servers write and read them."""

import struct

import pytest

from odradek.coordination.store import (
    Check,
    Create,
    Created,
    Delete,
    Operation,
    Set,
    Stat,
    WatchEvent,
    WatchKind,
)
from odradek.coordination.zookeeper import wire
from odradek.coordination.zookeeper.wire import OpCode
from odradek.errors import DecodeError

STAT = struct.pack(">qqqqiiiqiiq", 5, 6, 70, 80, 1, 2, 3, 9, 4, 0, 7)


def test_a_connect_request_and_its_answers() -> None:
    framed = wire.encode_connect(last_zxid=3, timeout_ms=6000, session_id=9, password=b"p" * 16)
    assert framed.hex() == (
        "0000002d" "00000000" "0000000000000003" "00001770" "0000000000000009" "00000010"
        + b"p".hex() * 16
        + "00"
    )  # fmt: skip
    answer = struct.pack(">iiqi", 0, 4000, 9, 2) + b"pw"
    expected = wire.ConnectResponse(4000, 9, b"pw", is_read_only=False)
    assert wire.parse_connect_response(answer) == expected
    assert wire.parse_connect_response(answer + b"\x00") == expected
    assert wire.parse_connect_response(answer + b"\x01").is_read_only


def test_a_step_of_sasl() -> None:
    assert wire.encode_sasl(b"").hex() == "00000000"
    assert wire.frame(1, OpCode.SASL, wire.encode_sasl(b"xy")).hex() == (
        "0000000e" "00000001" "00000066" "00000002" "7879"
    )  # fmt: skip
    assert wire.parse_sasl(bytes.fromhex("000000027879")) == b"xy"
    assert wire.parse_sasl(bytes.fromhex("ffffffff")) is None
    with pytest.raises(DecodeError, match="1 bytes after the end"):
        wire.parse_sasl(bytes.fromhex("0000000000"))


@pytest.mark.parametrize(
    ("operation", "code", "body"),
    [
        (Create("/a", b"x"), OpCode.CREATE2, "000000022f61" "0000000178" "{acl}" "00000000"),
        (Create("/a", None), OpCode.CREATE2, "000000022f61" "ffffffff" "{acl}" "00000000"),
        (
            Create("/a", b"", ephemeral=True),
            OpCode.CREATE2,
            "000000022f61" "00000000" "{acl}" "00000001",
        ),
        (
            Create("/a", b"", ephemeral=True, sequential=True),
            OpCode.CREATE2,
            "000000022f61" "00000000" "{acl}" "00000003",
        ),
        (Set("/é", b"", -1), OpCode.SET_DATA, "000000032fc3a9" "00000000" "ffffffff"),
        (Delete("/a", 2), OpCode.DELETE, "000000022f61" "00000002"),
        (Check("/a", 2), OpCode.CHECK, "000000022f61" "00000002"),
    ],
)  # fmt: skip
def test_writes(operation: Operation, code: OpCode, body: str) -> None:
    acl = "000000010000001f00000005" + b"world".hex() + "00000006" + b"anyone".hex()
    encoded = wire.encode_operation(operation, wire.OPEN_ACL)
    assert (encoded[0], encoded[1].hex()) == (code, body.format(acl=acl))


def test_a_transaction() -> None:
    encoded = wire.encode_multi([(OpCode.CHECK, b"c"), (OpCode.DELETE, b"d")])
    check, delete, end = "0000000d00ffffffff63", "0000000200ffffffff64", "ffffffff01ffffffff"
    assert encoded.hex() == check + delete + end


def test_results_of_a_transaction() -> None:
    stat = Stat(5, 6, 1, 2, 9)

    def part(code: int, body: bytes, error: int = 0) -> bytes:
        return struct.pack(">i?i", code, False, error) + body

    end = struct.pack(">i?i", -1, True, -1)
    path = b"\x00\x00\x00\x02/a"
    answer = (part(13, b""), part(1, path), part(15, path + STAT), part(5, STAT), part(2, b""))
    assert wire.parse_multi(b"".join([*answer, end])) == [
        None,
        "/a",
        Created("/a", stat),
        stat,
        None,
    ]
    failed = [part(-1, struct.pack(">i", error), error) for error in (0, -110, -2)]
    assert wire.parse_multi(b"".join([*failed, end])) == wire.OperationFailed(1, -110)
    assert wire.parse_multi(end) == []
    with pytest.raises(DecodeError, match="operation 3 in the answer"):
        wire.parse_multi(part(3, b"") + end)


def test_watches_are_armed_in_three_lists() -> None:
    encoded = wire.encode_set_watches(7, (["/a"], [], ["/b", "/c"]))
    assert encoded.hex() == (
        "0000000000000007" "00000001" "000000022f61" "00000000" "00000002"
        "000000022f62" "000000022f63"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1, WatchKind.CREATED),
        (2, WatchKind.DELETED),
        (3, WatchKind.CHANGED),
        (4, WatchKind.CHILDREN),
    ],
)
def test_notifications(number: int, kind: WatchKind) -> None:
    record = struct.pack(">iii", number, 3, 2) + b"/a"
    assert wire.parse_notification(record) == WatchEvent(kind, "/a")


def test_a_notification_about_the_session_is_no_event() -> None:
    assert wire.parse_notification(struct.pack(">iii", -1, 3, 0)) is None


def test_answers_to_reads() -> None:
    stat = Stat(5, 6, 1, 2, 9)
    assert wire.parse_stat(STAT) == stat
    assert wire.parse_data(b"\xff\xff\xff\xff" + STAT) == (None, stat)
    names = struct.pack(">ii", 2, 1) + b"b" + struct.pack(">i", 1) + b"a"
    assert wire.parse_children(names + STAT) == (["b", "a"], stat)
    header = struct.pack(">iqi", 4, 99, -101)
    assert wire.parse_reply(header + b"rest") == (wire.ReplyHeader(4, 99, -101), b"rest")


@pytest.mark.parametrize(
    ("parse", "record"),
    [
        (wire.parse_stat, STAT[:-1]),
        (wire.parse_stat, STAT + b"\x00"),
        (wire.parse_data, struct.pack(">i", 1 << 30) + STAT),
        (wire.parse_data, struct.pack(">i", -2) + STAT),
        (wire.parse_children, struct.pack(">i", 1 << 30) + STAT),
        (wire.parse_path, b"\x00\x00\x00\x01\xff"),
        (wire.parse_nothing, b"\x00"),
    ],
)
def test_damaged_answers_are_refused(parse: object, record: bytes) -> None:
    assert callable(parse)
    with pytest.raises(DecodeError, match="ZooKeeper"):
        parse(record)
