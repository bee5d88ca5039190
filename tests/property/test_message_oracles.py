"""Every message in every version against other people's codecs: kio and kafka-python.

Both directions: their reader must find in our bytes what we put in, field by field, and their
writer must make the same bytes of it. What they lack (keys 4-7, Produce 0-2, Fetch 0-3) is
compared with Kafka's own definitions in `tests/unit/protocol/test_messages.py`.
"""

import dataclasses
import datetime
import enum
import uuid
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.codec import encode_message, parse_message
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import Message, MessageType, default_of, replace
from tests.support.wire_strategies import messages

kio_serial = pytest.importorskip("kio.serial")
pytest.importorskip("kafka.protocol")

CASES = [
    pytest.param(key, kind, version, id=f"{key.name}-{kind}-v{version}")
    for key, support in API_SUPPORT.items()
    for kind in ("request", "response")
    for version in range(support.parsed.first, support.parsed.last + 1)
]
KAFKA_PYTHON_MODULES = (
    "admin",
    "consumer",
    "metadata",
    "producer",
    "sasl",
)
UNKNOWN_OPERATIONS = -(1 << 31)
# One field, tag 100, three bytes.
UNKNOWN_TAG = b"\x01\x64\x03abc"
EXAMPLES = settings(
    max_examples=5,
    phases=[Phase.generate, Phase.shrink],
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def message_type(key: ApiKey, kind: str) -> type[Message]:
    return request_type(key) if kind == "request" else response_type(key)


def plain(value: Any) -> Any:
    """A value of ours or of theirs as numbers, strings, bytes and lists."""
    if isinstance(value, Message):
        raise TypeError("messages are compared field by field")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return since // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Compare recursively, fields by position: foreign names differ in places."""
    if isinstance(ours, Message) and theirs is None:
        assert ours == type(ours)()  # kafka-python's absent tagged struct.
    elif isinstance(ours, Message):
        present = [field for field in type(ours).wire_fields if version in field.versions]
        found = foreign_fields(theirs, version)
        assert len(present) == len(found), (type(ours), present, found)
        for field, value in zip(present, found, strict=True):
            assert_same(getattr(ours, field.name), value, version)
    elif isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other, version)
    elif isinstance(ours, bytes) and len(ours) == 16 and theirs is None:
        assert ours == bytes(16)
    elif theirs is None and ours in (-1, UNKNOWN_OPERATIONS):
        pass  # kio's absent time, kafka-python's operations nobody asked for.
    elif isinstance(theirs, set):
        assert ours == sum(1 << int(bit) for bit in theirs)  # kafka-python's operations.
    else:
        assert plain(ours) == plain(theirs)


def foreign_fields(value: Any, version: int) -> list[Any]:
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    fields = type(value)._struct._fields
    return [getattr(value, f.name) for f in fields if f.for_version_q(version)]


@cache
def kio_type(key: ApiKey, kind: str, version: int) -> Any:
    try:
        module = import_module(f"kio.schema.{key.name.lower()}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return getattr(module, message_type(key, kind).__name__)


@cache
def kafka_python_type(name: str) -> Any:
    for module in KAFKA_PYTHON_MODULES:
        if found := getattr(import_module(f"kafka.protocol.{module}"), name, None):
            return found
    return None


def seen_by_kio(ours: Message, data: bytes, foreign: Any, version: int) -> None:
    theirs, size = kio_serial.entity_reader(foreign)(data, 0)
    assert size == len(data)
    assert_same(ours, theirs, version)
    written = BytesIO()
    kio_serial.entity_writer(foreign)(written, theirs)
    assert written.getvalue() == data


def seen_by_kafka_python(ours: Message, data: bytes, foreign: Any, version: int) -> None:
    if isinstance(ours, ApiVersionsResponse) and ours.error_code:
        return  # It takes any error for the answer to a version nobody knows, in layout 0.
    theirs = foreign.decode(BytesIO(data), version=version)
    assert_same(ours, theirs, version)
    theirs._header = None  # Its decoder leaves that open, its encoder asks for it.
    assert bytes(theirs.encode(version=version)) == data


def without_tags(message: Message, version: int) -> bytes:
    """The message without the tagged fields of its outermost struct."""
    tagged = {
        field.name: default_of(field)
        for field in type(message).wire_fields
        if version in field.tagged
    }
    return encode_message(replace(message, **tagged), version)


def check(cls: MessageType, ours: Message, key: ApiKey, kind: str, version: int) -> None:
    data = encode_message(ours, version)
    assert parse_message(type(ours), data, version) == (ours, len(data))
    if version in cls.wire_flexible and data == without_tags(ours, version):
        tagged = data[:-1] + UNKNOWN_TAG
        assert parse_message(type(ours), tagged, version) == (ours, len(tagged))
    if foreign := kio_type(key, kind, version):
        seen_by_kio(ours, data, foreign, version)
    foreign = kafka_python_type(cls.__name__)
    if foreign is not None and foreign._valid_versions[0] <= version <= foreign.max_version:
        seen_by_kafka_python(ours, data, foreign, version)


@pytest.mark.parametrize(("key", "kind", "version"), CASES)
def test_message_is_what_others_make_of_it(key: ApiKey, kind: str, version: int) -> None:
    """11:PS-1: byte for byte, with defaults, with all fields set, with an unknown tag."""
    cls = message_type(key, kind)
    check(cls, cls(), key, kind, version)

    @EXAMPLES
    @given(st.data())
    def with_fields_set(data: st.DataObject) -> None:
        check(cls, data.draw(messages(cls, version)), key, kind, version)

    with_fields_set()


def test_what_no_oracle_knows() -> None:
    """The few layouts that only Kafka's definitions vouch for."""
    lacking = set()
    for key, support in API_SUPPORT.items():
        for version in range(support.parsed.first, support.parsed.last + 1):
            foreign = kafka_python_type(request_type(key).__name__)
            known = foreign is not None and version in range(
                foreign._valid_versions[0], foreign.max_version + 1
            )
            if not known and kio_type(key, "request", version) is None:
                lacking.add((key.name, version))
    assert lacking == {
        *(("PRODUCE", version) for version in range(3)),
        *(("FETCH", version) for version in range(4)),
        *(("LEADER_AND_ISR", version) for version in range(8)),
        *(("STOP_REPLICA", version) for version in range(5)),
        *(("UPDATE_METADATA", version) for version in range(9)),
        *(("CONTROLLED_SHUTDOWN", version) for version in range(4)),
        *(("ALTER_PARTITION", version) for version in range(2)),
        *(("OFFSET_FOR_LEADER_EPOCH", version) for version in range(2)),
        ("WRITE_TXN_MARKERS", 0),
    }
