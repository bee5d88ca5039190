"""Codecs in steps: the same messages and bytes, and a limit of elements (02 section 12)."""

from collections.abc import Generator
from typing import TypeVar

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.errors import ApiError, DecodeError
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.codec import (
    encode_message,
    encode_message_steps,
    parse_message,
    parse_message_steps,
)
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.primitives import MAX_ELEMENTS, MAX_TAGS, encode_uvarint
from odradek.protocol.registry import request_type
from tests.support.hostile_requests import Shape, World, hostile_request

T = TypeVar("T")
WORLD = World(
    topics=("a", "b"),
    topic_ids={"a": bytes(16), "b": bytes(15) + b"\1"},
    partition_count=3,
    groups=("g",),
    records=b"records",
)


def finish(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and the number of steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result, count
        count += 1


@pytest.mark.parametrize("shape", [Shape.EMPTY, Shape.EVERYTHING, Shape.UNKNOWN])
@pytest.mark.parametrize("api_key", HANDLERS, ids=lambda key: key.name)
def test_the_messages_and_bytes_are_the_same(api_key: ApiKey, shape: Shape) -> None:
    cls = request_type(api_key)
    for version in {API_SUPPORT[api_key].advertised.first, API_SUPPORT[api_key].advertised.last}:
        message = hostile_request(cls, version, shape, WORLD)
        data = encode_message(message, version)
        chunks, _ = finish(encode_message_steps(message, version))
        assert b"".join(chunks) == data
        expected, _ = parse_message(cls, data, version)
        found, _ = finish(parse_message_steps(cls, data, version))
        assert found == expected


def test_each_element_is_a_step() -> None:
    rows = [OffsetDeleteRequestPartition(partition_index=number) for number in range(10)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=rows)] * 3
    message = OffsetDeleteRequest(group_id="g", topics=topics)
    _, encoding_steps = finish(encode_message_steps(message, 0))
    _, parsing_steps = finish(
        parse_message_steps(OffsetDeleteRequest, encode_message(message, 0), 0)
    )
    assert encoding_steps == parsing_steps == 1 + 3 + 30


def test_bytes_are_joined_and_records_are_not_touched() -> None:
    records = memoryview(b"batches")
    row = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=records)
    empty = PartitionData(partition_index=1, error_code=0, high_watermark=1, records=b"")
    topic = FetchableTopicResponse(topic="t", partitions=[empty] * 2_000 + [row] + [empty] * 2_000)
    message = FetchResponse(responses=[topic])
    chunks, _ = finish(encode_message_steps(message, 11))
    assert sum(chunk is records for chunk in chunks) == 1
    assert len(chunks) < 40
    assert b"".join(chunks) == encode_message(message, 11)


def offset_delete(topic_count: int, each: int) -> bytes:
    rows = [OffsetDeleteRequestPartition(partition_index=0)] * each
    topics = [OffsetDeleteRequestTopic(name="t", partitions=rows)] * topic_count
    return encode_message(OffsetDeleteRequest(group_id="g", topics=topics), 0)


def test_all_arrays_together_have_a_limit() -> None:
    half = MAX_ELEMENTS // 2
    finish(parse_message_steps(OffsetDeleteRequest, offset_delete(half, 1), 0))
    with pytest.raises(DecodeError, match=f"the {MAX_ELEMENTS} that a request may have"):
        finish(parse_message_steps(OffsetDeleteRequest, offset_delete(half + 1, 1), 0))


@pytest.mark.parametrize("is_known", [True, False])
def test_tagged_fields_of_a_struct_have_a_limit(is_known: bool) -> None:
    """Each takes time, and Kafka declares a dozen at most."""
    cls = request_type(ApiKey.FETCH) if is_known else MetadataRequest
    version = 12
    data = encode_message(cls(), version)
    assert data.endswith(b"\0")

    def with_tags(count: int) -> bytes:
        tags = b"".join(encode_uvarint(1_000 + tag) + b"\0" for tag in range(count))
        return data[:-1] + encode_uvarint(count) + tags

    parse_message(cls, with_tags(MAX_TAGS), version)
    with pytest.raises(DecodeError, match="tags: more elements"):
        parse_message(cls, with_tags(MAX_TAGS + 1), version)


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_a_message_that_ends_early(cut: int) -> None:
    data = offset_delete(10, 5)
    with pytest.raises(DecodeError):
        finish(parse_message_steps(OffsetDeleteRequest, data[:-cut], 0))


def test_an_unknown_version() -> None:
    with pytest.raises(DecodeError, match="has no version 99"):
        finish(parse_message_steps(OffsetDeleteRequest, b"", 99))
    with pytest.raises(ApiError, match="has no version 99"):
        finish(encode_message_steps(OffsetDeleteRequest(), 99))
