"""Whole requests and responses: header and body, without the frame's length."""

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message, parse_message
from odradek.protocol.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
)
from odradek.protocol.primitives import Buffer
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import Message

__all__ = ["encode_request", "encode_response", "parse_request", "parse_response"]


def parse_request(payload: Buffer) -> tuple[RequestHeader, Message]:
    """Reads a request; bytes after it are ignored, as Kafka does.

    An ApiVersions request of an unknown version is returned as an empty request.

    Raises:
        UnsupportedRequestError: Its key or version is not served.
        DecodeError: The bytes are not such a request.
    """
    header, position = parse_request_header(payload)
    cls = request_type(header.api_key)
    if header.api_version not in cls.wire_versions:
        return header, cls()
    request, _ = parse_message(cls, payload, header.api_version, position)
    return header, request


def encode_request(header: RequestHeader, request: Message) -> bytes:
    """Writes a request.

    Raises:
        ApiError: UNSUPPORTED_VERSION, if the version lacks a field that is set.
    """
    return encode_request_header(header) + encode_message(request, header.api_version)


def parse_response(payload: Buffer, api_key: ApiKey, version: int) -> tuple[int, Message]:
    """Reads the response to a request of `version`; returns its correlation id and body.

    A broker that does not know an ApiVersions version answers in the layout of 0, which the
    error code at the start of all its layouts reveals.

    Raises:
        DecodeError: The bytes are not such a response.
    """
    correlation_id, position = parse_response_header(payload, api_key, version)
    if api_key is ApiKey.API_VERSIONS and payload[position : position + 2] == _UNSUPPORTED_VERSION:
        version = 0
    response, _ = parse_message(response_type(api_key), payload, version, position)
    return correlation_id, response


_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def encode_response(header: RequestHeader, response: Message) -> bytes:
    """Writes the response to the request that `header` came with.

    The answer to an ApiVersions request of an unknown version is written as version 0.

    Raises:
        ApiError: UNSUPPORTED_VERSION, if the version lacks a field that is set.
    """
    version = header.api_version
    if header.api_key is ApiKey.API_VERSIONS and version not in type(response).wire_versions:
        version = 0
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return start + encode_message(response, version)
