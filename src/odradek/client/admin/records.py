"""Records are deleted by raising the start of their log."""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.client.client import Client
from odradek.client.cluster import Cluster
from odradek.client.leaders import LeaderCall, api_error, ask_leaders, by_topic
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.schema import Message

__all__ = ["HIGH_WATERMARK", "delete_records"]

# Instead of an offset: everything that is there.
HIGH_WATERMARK: Final = -1


async def delete_records(
    client: Client, before: Mapping[TopicPartition, int], *, deadline: Deadline | None = None
) -> dict[TopicPartition, int | ApiError]:
    """Deletes the records before an offset; the result is the first offset that is left."""
    deadline = deadline or client.deadline()

    def build(work: Mapping[TopicPartition, int], _cluster: Cluster) -> Message:
        return DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=offset)
                        for index, offset in partitions.items()
                    ],
                )
                for name, partitions in by_topic(work).items()
            ],
            timeout_ms=min(deadline.left_ms(), client.options.request_timeout_ms),
        )

    call = LeaderCall(
        api_key=ApiKey.DELETE_RECORDS, answer_type=DeleteRecordsResponse, build=build, read=_read
    )
    return await ask_leaders(client, call, before, deadline)


def _read(response: Message, _cluster: Cluster) -> Iterator[tuple[TopicPartition, int | ApiError]]:
    assert isinstance(response, DeleteRecordsResponse)
    for topic in response.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code != ErrorCode.NONE:
                yield tp, api_error(answer.error_code, None, tp)
            else:
                yield tp, answer.low_watermark
