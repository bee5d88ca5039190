"""The answer of an API whose handler failed, with the error in the fields that the API has for it.

The declarations show where an error can be: in the answer itself, or else in each row of the one
list that repeats the elements of the request (topics, partitions, resources, ...):

    asked     {topics: [{name: t, partitions: [{partition_index: 0, ...}]}]}
    answered  {topics: [{name: t, partitions: [{partition_index: 0, error_code: -1, ...}]}]}

Without such a field (Produce without acks, a request for "all topics" in an old version), the
connection ends, since the client would take an answer without an error for a success.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.broker.context import reply
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import CloseConnectionResponse, Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import ArrayOf, Field, Message, MessageType

__all__ = ["error_answer", "failure_answer"]

logger = logging.getLogger(__name__)

# An answer with an error for each element of a longer request would keep the loop.
_MAX_ANSWERED_BYTES: Final = 8 << 10

# Fields that identify a row; copied from the request.
_IDENTITY: Final = frozenset(
    {
        "entity",
        "group_id",
        "index",
        "name",
        "partition",
        "partition_index",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "transactional_id",
    }
)
# The same for requested elements that are a plain number or text, or Fetch's `partition`.
_PLAIN_IDENTITY: Final = (
    "partition_index", "partition_id", "name", "key", "group_id", "transactional_id",
)  # fmt: skip

# The field for an error, by its names.
_ERROR_FIELDS: Final = ("error_code", "partition_error_code")

# Other fields of an answer with an error, where zero would have a meaning.
_WITH_ERROR: Final = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "leader_id": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "records": None,
    "error_message": "the request met an error in the broker; its log has more",
}


def failure_answer(request: Request, error: Exception) -> Response:
    """Logs that a handler failed, and answers its request; a long one closes its connection."""
    # Without the body, which may have passwords.
    logger.error("The handler of %s failed", request, exc_info=error)
    code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if len(request.payload) > _MAX_ANSWERED_BYTES:
        return CloseConnectionResponse(request, f"{request}: {code.name}")
    return error_answer(request, code)


def error_answer(request: Request, code: ErrorCode) -> Response:
    """Answers a request that was parsed before, and failed after that.

    Raises:
        DecodeError: The request is malformed.
    """
    header = request.header
    message, _ = parse_message(
        request_type(header.api_key), request.payload, header.api_version, request.body_offset
    )
    answer = None
    if getattr(message, "acks", None) != 0:
        answer = _filled(response_type(header.api_key), message, header.api_version, code)
    if answer is None:
        return CloseConnectionResponse(request, f"{request}: {code.name}")
    return reply(request, answer)


def _filled(cls: MessageType, asked: Any, version: int, code: ErrorCode) -> Message | None:
    """An answer or a row of one; None if it has no field for the error."""
    fields = {field.name: field for field in cls.wire_fields if version in field.versions}
    values: dict[str, Any] = {name: _WITH_ERROR[name] for name in fields if name in _WITH_ERROR}
    values |= _identity(fields, asked)
    error_field = next((name for name in _ERROR_FIELDS if name in fields), None)
    if error_field is not None:
        values[error_field] = code
    else:
        found = next(_lists_with_errors(fields.values(), version), None)
        if found is None:
            return None
        name, row_type = found
        rows = [_filled(row_type, one, version, code) for one in _list_in(asked, version)]
        values[name] = [row for row in rows if row is not None]
        if not values[name]:
            return None
    answer: Message = cls(**values)
    return answer


def _identity(fields: dict[str, Field], asked: Any) -> dict[str, Any]:
    if not isinstance(asked, Message):
        return {next(name for name in _PLAIN_IDENTITY if name in fields): asked}
    same = {
        field.name: getattr(asked, field.name)
        for field in asked.wire_fields
        if field.name in _IDENTITY and field.name in fields
    }
    if "partition_index" in fields and hasattr(asked, "partition"):
        same["partition_index"] = asked.partition
    return same


def _lists_with_errors(fields: Iterable[Field], version: int) -> Iterator[tuple[str, MessageType]]:
    """Lists whose rows have an error, directly or in inner lists."""
    for field in fields:
        if isinstance(field.type, ArrayOf) and isinstance(field.type.element, MessageType):
            inner = [f for f in field.type.element.wire_fields if version in f.versions]
            if any(f.name in _ERROR_FIELDS for f in inner) or any(
                True for _ in _lists_with_errors(inner, version)
            ):
                yield field.name, field.type.element


def _list_in(asked: Message, version: int) -> Iterable[Any]:
    """The requested elements: the first list of a request or of one of its rows."""
    for field in asked.wire_fields:
        if isinstance(field.type, ArrayOf) and version in field.versions:
            return getattr(asked, field.name) or ()
    return ()
