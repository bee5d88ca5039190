"""Any bytes, whole or one at a time, give a value or DecodeError, never anything else."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.errors import DecodeError
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.codec import encode_message, parse_message
from odradek.protocol.envelope import parse_request, parse_response
from odradek.protocol.hot.fetch_request import parse_fetch_request
from odradek.protocol.hot.heartbeat import parse_heartbeat_request
from odradek.protocol.hot.metadata import parse_metadata_request
from odradek.protocol.hot.offset_commit import parse_offset_commit_request
from odradek.protocol.hot.produce import parse_produce_request
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import Message
from tests.support.frames import BufferedReader, FrameReader, Reader
from tests.support.wire_strategies import messages

FUZZ = settings(
    max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
KEYS = list(API_SUPPORT)
MESSAGES = [kind(key) for key in KEYS for kind in (request_type, response_type)]
HOT: dict[ApiKey, Callable[[memoryview, int, int], Any]] = {
    ApiKey.PRODUCE: parse_produce_request,
    ApiKey.FETCH: parse_fetch_request,
    ApiKey.METADATA: parse_metadata_request,
    ApiKey.OFFSET_COMMIT: parse_offset_commit_request,
    ApiKey.HEARTBEAT: parse_heartbeat_request,
}
# Lengths and counts an attacker would try, as int32 and as varint.
HOSTILE = [
    bytes.fromhex(text)
    for text in (
        "7fffffff",
        "80000000",
        "fffffffe",
        "7fff",
        "8000",
        "ffffffff0f",
        "ffffffff7f",
        "80",
    )
]


def versions_of(cls: type[Message]) -> range:
    return range(cls.wire_versions.first, cls.wire_versions.last + 1)


def value_or_refusal(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except DecodeError:
        return None


@FUZZ
@given(st.data())
def test_arbitrary_bytes_as_any_message(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(MESSAGES))
    version = data.draw(st.sampled_from(versions_of(cls)))
    junk = data.draw(st.binary(max_size=200))
    value_or_refusal(lambda: parse_message(cls, junk, version))


@FUZZ
@given(st.data())
def test_arbitrary_bytes_as_a_hot_request(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(list(HOT)))
    version = data.draw(st.sampled_from(versions_of(request_type(key))))
    junk = data.draw(st.binary(max_size=200))
    value_or_refusal(lambda: HOT[key](memoryview(junk), 0, version))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_damaged_messages(cls: type[Message]) -> None:
    """Valid messages with one place made hostile; the newest and the oldest layout of each."""

    @settings(FUZZ, max_examples=10)
    @given(st.data())
    def damaged(data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(versions_of(cls)))
        encoded = encode_message(data.draw(messages(cls, version)), version)
        at = data.draw(st.integers(0, len(encoded)))
        hostile = data.draw(st.sampled_from(HOSTILE))
        value_or_refusal(lambda: parse_message(cls, encoded[:at] + hostile + encoded[at:], version))
        overwritten = encoded[:at] + hostile + encoded[at + len(hostile) :]
        value_or_refusal(lambda: parse_message(cls, overwritten, version))
        if at < len(encoded):
            with pytest.raises(DecodeError):
                parse_message(cls, encoded[:at], version)

    damaged()


@FUZZ
@given(st.data())
def test_arbitrary_payloads_as_requests_and_responses(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    version = data.draw(st.integers(-1, 18))
    body = data.draw(st.binary(max_size=60))
    start = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    value_or_refusal(lambda: parse_request(start + body))
    value_or_refusal(lambda: parse_request(body))
    value_or_refusal(lambda: parse_response(body, key, version))


@FUZZ
@given(st.binary(max_size=64), st.lists(st.binary(min_size=1, max_size=20), max_size=3))
def test_frames_whole_and_byte_by_byte(junk: bytes, frames: list[bytes]) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames) + junk
    whole = FrameReader(1000)
    whole.receive_data(stream)
    expected = outcome(whole, [b""])
    for slow in (FrameReader(1000), BufferedReader(1000)):
        assert outcome(slow, [bytes([byte]) for byte in stream]) == expected


def outcome(reader: Reader, pieces: list[bytes]) -> list[Any]:
    """All frames, and the refusal that ended them if there was one."""
    found: list[Any] = []
    for piece in pieces:
        reader.receive_data(piece)
        try:
            while (frame := reader.next_frame()) is not None:
                found.append(frame)
        except DecodeError as error:
            return [*found, str(error)]
    return found
