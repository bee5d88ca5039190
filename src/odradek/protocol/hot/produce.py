"""Produce: reads the request, writes the response.

Request body, without the forms flexible versions give to lengths::

    transactional_id    nullable string    (3 and later)
    acks                int16
    timeout_ms          int32
    topics              array of
        name            string             (up to 12; then a 16-byte id)
        partitions      array of
            index       int32
            records     nullable bytes

The records of a partition are a slice of the view that came in, valid as long as its buffer.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from odradek.errors import DecodeError
from odradek.protocol.codec import encode_message
from odradek.protocol.hot.border import decoding
from odradek.protocol.hot.parts import (
    parse_compact_count,
    parse_compact_string,
    parse_string,
    pass_tags,
)
from odradek.protocol.messages import produce as messages
from odradek.protocol.primitives import (
    MAX_TAGS,
    encode_uvarint,
    fail_count,
    fail_excess,
    fail_length,
    fail_null,
    parse_uvarint_tail,
    skip_tagged_fields,
)

__all__ = [
    "MAX_ROWS",
    "ManyRowsError",
    "PartitionProduceResult",
    "PartitionRecords",
    "ProduceView",
    "encode_produce_response",
    "parse_produce_request",
    "produce_partition_message",
]

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_ACKS_TIMEOUT: Final = Struct(">hi").unpack_from
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii").unpack_from
_TXN_ACKS_TIMEOUT_COUNT: Final = Struct(">hhii").unpack_from
_INDEX_SIZE: Final = Struct(">ii").unpack_from
_INDEX_SIZE_BYTE: Final = Struct(">iB").unpack_from

# Topics and partitions of a request that is parsed here; the generated codec parses others, in
# steps.
MAX_ROWS: Final = 1 << 10

PartitionRecords = tuple[int, memoryview | None]


class ManyRowsError(DecodeError):
    """A request has more topics and partitions than `MAX_ROWS`."""


class ProduceView(NamedTuple):
    """A Produce request, any version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    # (name, or id from version 13 on; (partition, records) each).
    topics: list[tuple[str | bytes, list[PartitionRecords]]]


@decoding("ProduceRequest")
def parse_produce_request(view: memoryview, position: int, version: int) -> ProduceView:
    """Reads the body of a Produce request.

    Raises:
        ManyRowsError: The request is to be parsed in steps.
        DecodeError: The bytes are no such request.
    """
    if version >= 9:
        return _parse_flexible(view, position, by_id=version >= 13)
    transactional_id = None
    if version < 3:
        acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT(view, position)
        position += 10
    else:
        length, acks, timeout_ms, count = _TXN_ACKS_TIMEOUT_COUNT(view, position)
        position += 12
        if length != -1:
            transactional_id, position = parse_string(view, position - 12, "transactional_id")
            acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT(view, position)
            position += 10
    if not 0 <= count * 6 <= len(view) - position:
        fail_count("topic_data", count, position, len(view))
    return ProduceView(transactional_id, acks, timeout_ms, _parse_topics(view, position, count))


def _parse_topics(
    view: memoryview, position: int, count: int
) -> list[tuple[str | bytes, list[PartitionRecords]]]:
    end = len(view)
    room = MAX_ROWS - count
    topics: list[tuple[str | bytes, list[PartitionRecords]]] = []
    for _ in range(count):
        (length,) = _INT16(view, position)
        name_end = position + 2 + length
        if length < 0:
            fail_length("name", length, position, end)
        # Reading the count also proves that the name is whole.
        (partition_count,) = _INT32(view, name_end)
        name = str(view[position + 2 : name_end], "utf-8")
        position = name_end + 4
        if not 0 <= partition_count * 8 <= end - position:
            fail_count("partition_data", partition_count, position, end)
        room -= partition_count
        if room < 0:
            raise ManyRowsError
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, size_bytes = _INDEX_SIZE(view, position)
            position += 8
            if size_bytes >= 0:
                records_end = position + size_bytes
                if records_end > end:
                    fail_length("records", size_bytes, position, end)
                partitions.append((index, view[position:records_end]))
                position = records_end
            elif size_bytes == -1:
                partitions.append((index, None))
            else:
                fail_length("records", size_bytes, position, end)
        topics.append((name, partitions))
    return topics


def _parse_flexible(view: memoryview, position: int, *, by_id: bool) -> ProduceView:
    transactional_id = None
    if view[position]:
        transactional_id, position = parse_compact_string(view, position, "transactional_id")
    else:
        position += 1
    acks, timeout_ms = _ACKS_TIMEOUT(view, position)
    count, position = parse_compact_count(view, position + 6, "topic_data", 3)
    if count < 0:
        fail_null("topic_data", position)
    room = MAX_ROWS - count
    topics: list[tuple[str | bytes, list[PartitionRecords]]] = []
    for _ in range(count):
        topic: str | bytes | None
        if by_id:
            topic = bytes(view[position : position + 16])
            position += 16
        else:
            topic, position = parse_compact_string(view, position, "name")
            if topic is None:
                fail_null("name", position)
        partitions, position = _parse_flexible_partitions(view, position, room)
        room -= len(partitions)
        topics.append((topic, partitions))
    pass_tags(view, position)
    return ProduceView(transactional_id, acks, timeout_ms, topics)


def _parse_flexible_partitions(
    view: memoryview, position: int, room: int
) -> tuple[list[PartitionRecords], int]:
    count, position = parse_compact_count(view, position, "partition_data", 6)
    if count < 0:
        fail_null("partition_data", position)
    if count > room:
        raise ManyRowsError
    partitions: list[PartitionRecords] = []
    tag_room = MAX_TAGS  # Of all partitions together.
    for _ in range(count):
        index, size_bytes = _INDEX_SIZE_BYTE(view, position)
        position += 5
        if size_bytes > 0x7F:
            size_bytes, position = parse_uvarint_tail(view, position, size_bytes)
        if size_bytes:
            records_end = position + size_bytes - 1
            # The struct's tag count follows; reading it proves that the records are whole.
            tag_count = view[records_end]
            partitions.append((index, view[position:records_end]))
            position = records_end + 1
        else:
            partitions.append((index, None))
            tag_count = view[position]
            position += 1
        if tag_count:
            tag_room -= tag_count
            if tag_room < 0:
                fail_excess("tags", MAX_TAGS)
            position = skip_tagged_fields(view, position, tag_count)
    return partitions, pass_tags(view, position)


class PartitionProduceResult(NamedTuple):
    """The outcome for one partition."""

    partition_index: int
    error_code: int
    # -1 on an error, as is the log start offset.
    base_offset: int
    # -1 unless the broker set the timestamps.
    log_append_time_ms: int
    log_start_offset: int
    # (index in the batch, why) of the records at fault.
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    # (leader id, leader epoch), when the client asked the wrong broker.
    current_leader: tuple[int, int] | None = None


ProduceTopics = Sequence[tuple[str | bytes, Sequence[PartitionProduceResult]]]

_PLAIN_LAYOUTS: Final = {
    0: Struct(">ihq"),
    1: Struct(">ihq"),
    2: Struct(">ihqq"),
    3: Struct(">ihqq"),
    4: Struct(">ihqq"),
    5: Struct(">ihqqq"),
    6: Struct(">ihqqq"),
    7: Struct(">ihqqq"),
    8: Struct(">ihqqqih"),
}
_FLEXIBLE_LAYOUT: Final = Struct(">ihqqq3s")
# No record errors, no message, no tags.
_NO_EXTRAS: Final = b"\x01\x00\x00"
_PACK_INT32: Final = Struct(">i").pack
_LENGTH: Final = Struct(">h").pack


def encode_produce_response(
    version: int,
    topics: ProduceTopics,
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[tuple[int, str, int, str | None]] = (),
) -> bytes:
    """Writes the body of a Produce response.

    Args:
        version: of the request.
        topics: (name, or id from version 13 on; results), in any order.
        throttle_time_ms: how long the client should wait before its next request.
        node_endpoints: (id, host, port, rack) of the leaders named in results; dropped before 10.
    """
    encode = _encode_flexible if version >= 9 else _encode_plain
    body = None if node_endpoints else encode(version, topics, throttle_time_ms)
    if body is None:
        return _encode_with_extras(version, topics, throttle_time_ms, node_endpoints)
    return body


def _encode_plain(version: int, topics: ProduceTopics, throttle_time_ms: int) -> bytes | None:
    """Writes versions up to 8; returns None for a result that has more than numbers."""
    out = [_PACK_INT32(len(topics))]
    pack = _PLAIN_LAYOUTS[version].pack
    for topic, results in topics:
        assert isinstance(topic, str)
        name = topic.encode()
        out += (_LENGTH(len(name)), name, _PACK_INT32(len(results)))
        for result in results:
            partition, error_code, base_offset, append_ms, start, errors, message, _ = result
            if version >= 8:
                if errors or message is not None:
                    return None
                out.append(pack(partition, error_code, base_offset, append_ms, start, 0, -1))
            elif version >= 5:
                out.append(pack(partition, error_code, base_offset, append_ms, start))
            elif version >= 2:
                out.append(pack(partition, error_code, base_offset, append_ms))
            else:
                out.append(pack(partition, error_code, base_offset))
    if version >= 1:
        out.append(_PACK_INT32(throttle_time_ms))
    return b"".join(out)


def _encode_flexible(_version: int, topics: ProduceTopics, throttle_time_ms: int) -> bytes | None:
    """Writes versions from 9 on; returns None for a result that has more than numbers."""
    out = [encode_uvarint(len(topics) + 1)]
    pack = _FLEXIBLE_LAYOUT.pack
    for topic, results in topics:
        if isinstance(topic, str):
            name = topic.encode()
            out += (encode_uvarint(len(name) + 1), name)
        else:
            out.append(topic)
        out.append(encode_uvarint(len(results) + 1))
        for (
            partition,
            error_code,
            base_offset,
            append_ms,
            start,
            errors,
            message,
            leader,
        ) in results:
            if errors or message is not None or leader is not None:
                return None
            out.append(pack(partition, error_code, base_offset, append_ms, start, _NO_EXTRAS))
        out.append(b"\0")
    out.append(_PACK_INT32(throttle_time_ms))
    out.append(b"\0")
    return b"".join(out)


def _encode_with_extras(
    version: int,
    topics: ProduceTopics,
    throttle_time_ms: int,
    node_endpoints: Sequence[tuple[int, str, int, str | None]],
) -> bytes:
    """Writes a response with errors by the generated codec; drops fields a version lacks."""
    hints = version >= 10
    response = messages.ProduceResponse(
        responses=[_topic_message(topic, results, hints=hints) for topic, results in topics],
        throttle_time_ms=throttle_time_ms,
        node_endpoints=[
            messages.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in (node_endpoints if hints else ())
        ],
    )
    return encode_message(response, version)


def _topic_message(
    topic: str | bytes, results: Sequence[PartitionProduceResult], *, hints: bool
) -> messages.TopicProduceResponse:
    partitions = [produce_partition_message(result, hints=hints) for result in results]
    if isinstance(topic, str):
        return messages.TopicProduceResponse(name=topic, partition_responses=partitions)
    return messages.TopicProduceResponse(topic_id=topic, partition_responses=partitions)


def produce_partition_message(
    result: PartitionProduceResult, *, hints: bool
) -> messages.PartitionProduceResponse:
    """The result as a message of the generated codec; hints name another leader."""
    leader = messages.LeaderIdAndEpoch()
    if hints and result.current_leader is not None:
        leader_id, leader_epoch = result.current_leader
        leader = messages.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return messages.PartitionProduceResponse(
        index=result.partition_index,
        error_code=result.error_code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            messages.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in result.record_errors
        ],
        error_message=result.error_message,
        current_leader=leader,
    )
