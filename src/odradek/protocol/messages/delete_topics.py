"""DeleteTopics (key 20): the controller deletes topics."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
]


class DeleteTopicState(Message):
    name: str | None = wire(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = wire(UUID, "6+")


class DeleteTopicsRequest(Message, versions="1-6", flexible="4+"):
    """Names up to 5, names or ids from 6 on."""

    # 4: flexible.
    # 6: by name or by id (KIP-516).

    topics: Sequence[DeleteTopicState] = wire(array(DeleteTopicState), "6+")
    topic_names: Sequence[str] = wire(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = wire(INT32)


class DeletableTopicResult(Message):
    name: str | None = wire(STRING, nullable="6+")
    topic_id: bytes = wire(UUID, "6+", ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, versions="1-6", flexible="4+"):
    """The outcome per topic."""

    # 1: throttle time. 3: may say TOPIC_DELETION_DISABLED.
    # 4: flexible.
    # 5: a message. 6: ids; no name if asked by id.

    throttle_time_ms: int = wire(INT32)
    responses: Sequence[DeletableTopicResult] = wire(array(DeletableTopicResult))
