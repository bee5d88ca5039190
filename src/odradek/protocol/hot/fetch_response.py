"""Fetch: writes the response, as chunks around the records.

Records are never read: the object for them (a view, a slice of a file) is put between the chunks of
bytes, to be sent unchanged.

Partition, in all versions' order::

    index, error, high watermark    int32 int16 int64
    last stable offset              int64              (4 and later)
    log start offset                int64              (5 and later)
    aborted transactions            nullable array of (producer id int64, first offset int64)
    preferred read replica          int32              (11 and later)
    records                         nullable bytes
"""

from collections.abc import Sequence, Sized
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from odradek.protocol.codec import encode_message_parts
from odradek.protocol.messages import fetch as messages
from odradek.protocol.primitives import encode_uvarint

__all__ = [
    "Chunk",
    "FetchPartitionResult",
    "encode_fetch_response_chunks",
    "encode_fetch_start",
    "encode_fetch_topics",
    "fetch_partition_message",
]

# Bytes of ours, or records as they were given.
Chunk = bytes | Sized

_INT32: Final = Struct(">i").pack
_LENGTH: Final = Struct(">h").pack
_HEAD_7: Final = Struct(">ihi").pack
# The same with the header of the response before it.
_START_7: Final = Struct(">iihi").pack
_START_12: Final = Struct(">ixihi").pack
_ABORTED: Final = Struct(">qq").pack
_ABORTED_TAGS: Final = Struct(">qqx").pack
# Up to the array of aborted transactions, and with the fields behind it when that is null.
_PLAIN_0: Final = Struct(">ihqi").pack
_PLAIN_4: Final = Struct(">ihqqii").pack
_PLAIN_5: Final = Struct(">ihqqqii").pack
_PLAIN_11: Final = Struct(">ihqqqiii").pack
_START_4: Final = Struct(">ihqqi").pack
_START_5: Final = Struct(">ihqqqi").pack
_FLEXIBLE: Final = Struct(">ihqqqBi").pack
_FLEXIBLE_START: Final = Struct(">ihqqq").pack


class FetchPartitionResult(NamedTuple):
    """The result of reading one partition."""

    partition_index: int
    error_code: int
    # -1 on an error, as are the two offsets behind it.
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # Null is an empty answer, never more than its bytes; anything with a length will do.
    records: Sized | None
    # (producer id, first offset); None unless the isolation level asks for them.
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    # (epoch, end offset) at which the logs part.
    diverging_epoch: tuple[int, int] | None = None
    # (leader id, leader epoch), when the client asked the wrong broker.
    current_leader: tuple[int, int] | None = None


FetchTopics = Sequence[tuple[str | bytes, Sequence[FetchPartitionResult]]]


def encode_fetch_response_chunks(
    version: int,
    topics: FetchTopics,
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[tuple[int, str, int, str | None]] = (),
) -> tuple[list[Chunk], int]:
    """Writes the body of a Fetch response.

    Args:
        version: of the request.
        topics: (name, or id from version 13 on; results), in the order of the request.
        throttle_time_ms: how long the client should wait before its next request.
        error_code: of the session; dropped before 7.
        session_id: 0 for none.
        node_endpoints: (id, host, port, rack) of the leaders named in results; dropped before 16.

    Returns:
        Bytes and records by turns, in order, and their total size. Empty records are left out.
    """
    head = b""
    if version >= 7:
        head = _HEAD_7(throttle_time_ms, error_code, session_id)
    elif version >= 1:
        head = _INT32(throttle_time_ms)
    if version < 12:
        return _encode_plain(version, topics, head)
    encoded = None if node_endpoints else _encode_flexible(topics, head)
    if encoded is not None:
        return encoded
    response = messages.FetchResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code,
        session_id=session_id,
        responses=[_topic_message(topic, results) for topic, results in topics],
        node_endpoints=[
            messages.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in (node_endpoints if version >= 16 else ())
        ],
    )
    return _encode_generated(version, response)


def encode_fetch_topics(version: int, topics: FetchTopics) -> bytes | None:
    """Writes what follows behind the start of a response: all its topics, with their records.

    Consumers that get the same records get the same bytes here, whatever their sessions are. None
    for results that have to be written each time: records that are not in memory, or tags.
    """
    encoded = _encode_plain(version, topics, b"") if version < 12 else _encode_flexible(topics, b"")
    if encoded is None:
        return None
    parts = [chunk for chunk in encoded[0] if isinstance(chunk, bytes)]
    return b"".join(parts) if len(parts) == len(encoded[0]) else None


def encode_fetch_start(
    version: int, correlation_id: int, *, throttle_time_ms: int, error_code: int, session_id: int
) -> bytes:
    """Writes the header of a response from 7 on, and of its body what precedes the topics."""
    if version >= 12:
        return _START_12(correlation_id, throttle_time_ms, error_code, session_id)
    assert version >= 7, "before that there are no sessions"
    return _START_7(correlation_id, throttle_time_ms, error_code, session_id)


def _encode_plain(version: int, topics: FetchTopics, head: bytes) -> tuple[list[Chunk], int]:
    chunks: list[Chunk] = []
    size_bytes = 0
    pending = [head, _INT32(len(topics))]
    for topic, results in topics:
        assert isinstance(topic, str)
        name = topic.encode()
        pending += (_LENGTH(len(name)), name, _INT32(len(results)))
        for result in results:
            index, error_code, high_watermark, stable, start, records, aborted, replica, _, _ = (
                result
            )
            length = len(records) if records is not None else 0
            if version == 11 and aborted is None:
                pending.append(
                    _PLAIN_11(index, error_code, high_watermark, stable, start, -1, replica, length)
                )
            else:
                pending.append(_plain_partition(version, result, length))
            if records is not None and length:
                head = b"".join(pending)
                chunks += (head, records)
                size_bytes += len(head) + length
                pending = []
    tail = b"".join(pending)
    if tail:
        chunks.append(tail)
    return chunks, size_bytes + len(tail)


def _plain_partition(version: int, result: FetchPartitionResult, length: int) -> bytes:
    index, error_code, high_watermark, stable, start, _, aborted, replica, _, _ = result
    if version < 4:
        return _PLAIN_0(index, error_code, high_watermark, length)
    if aborted is None:
        if version >= 5:
            return _PLAIN_5(index, error_code, high_watermark, stable, start, -1, length)
        return _PLAIN_4(index, error_code, high_watermark, stable, -1, length)
    if version >= 5:
        fixed = _START_5(index, error_code, high_watermark, stable, start, len(aborted))
    else:
        fixed = _START_4(index, error_code, high_watermark, stable, len(aborted))
    transactions = b"".join([_ABORTED(*transaction) for transaction in aborted])
    if version >= 11:
        return fixed + transactions + _INT32(replica) + _INT32(length)
    return fixed + transactions + _INT32(length)


def _encode_flexible(topics: FetchTopics, head: bytes) -> tuple[list[Chunk], int] | None:
    """Writes versions from 12 on; returns None for a result that needs tags."""
    chunks: list[Chunk] = []
    size_bytes = 0
    pending = [head, encode_uvarint(len(topics) + 1)]
    for topic, results in topics:
        if isinstance(topic, str):
            name = topic.encode()
            pending += (encode_uvarint(len(name) + 1), name)
        else:
            pending.append(topic)
        pending.append(encode_uvarint(len(results) + 1))
        for (
            index,
            error_code,
            high_watermark,
            stable,
            start,
            records,
            aborted,
            replica,
            diverging,
            leader,
        ) in results:
            if diverging is not None or leader is not None:
                return None
            length = len(records) if records is not None else 0
            if aborted is None:
                pending.append(
                    _FLEXIBLE(index, error_code, high_watermark, stable, start, 0, replica)
                )
            else:
                pending.append(_FLEXIBLE_START(index, error_code, high_watermark, stable, start))
                pending.append(encode_uvarint(len(aborted) + 1))
                pending += [_ABORTED_TAGS(*transaction) for transaction in aborted]
                pending.append(_INT32(replica))
            pending.append(encode_uvarint(length + 1))
            if records is not None and length:
                head = b"".join(pending)
                chunks += (head, records)
                size_bytes += len(head) + length
                pending = [b"\0"]
            else:
                pending.append(b"\0")
        pending.append(b"\0")
    pending.append(b"\0")
    tail = b"".join(pending)
    chunks.append(tail)
    return chunks, size_bytes + len(tail)


def _encode_generated(version: int, response: messages.FetchResponse) -> tuple[list[Chunk], int]:
    """Writes a response with diverging epochs or leader hints by the generated codec."""
    given = {
        id(partition.records)
        for topic in response.responses
        for partition in topic.partitions
        if partition.records
    }
    chunks: list[Chunk] = []
    pending: list[bytes] = []
    for part in encode_message_parts(response, version):
        if id(part) in given:
            chunks += (b"".join(pending), part)
            pending = []
        else:
            pending.append(part)
    chunks.append(b"".join(pending))
    return chunks, sum(map(len, chunks))


def _topic_message(
    topic: str | bytes, results: Sequence[FetchPartitionResult]
) -> messages.FetchableTopicResponse:
    partitions = [fetch_partition_message(result) for result in results]
    if isinstance(topic, str):
        return messages.FetchableTopicResponse(topic=topic, partitions=partitions)
    return messages.FetchableTopicResponse(topic_id=topic, partitions=partitions)


def fetch_partition_message(result: FetchPartitionResult) -> messages.PartitionData:
    """The result as a message of the generated codec."""
    diverging, leader = result.diverging_epoch, result.current_leader
    aborted = result.aborted_transactions
    return messages.PartitionData(
        partition_index=result.partition_index,
        error_code=result.error_code,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        preferred_read_replica=result.preferred_read_replica,
        # The generated codec needs only the length of records, whatever their type.
        records=cast("Any", b"" if result.records is None else result.records),
        aborted_transactions=None
        if aborted is None
        else [
            messages.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in aborted
        ],
        diverging_epoch=messages.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        if diverging
        else messages.EpochEndOffset(),
        current_leader=messages.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        if leader
        else messages.LeaderIdAndEpoch(),
    )
