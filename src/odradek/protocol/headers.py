"""The headers before every request and response body.

Request header, after the frame's length::

    offset  size  field
    0       2     api key
    2       2     api version
    4       4     correlation id
    8       2+n   client id, nullable string with an int16 length   (v1, v2)
    ..      1+    tagged fields                                     (v2)

v2 goes with flexible versions, v0 with ControlledShutdown 0 alone, v1 with everything else. The
client id is never compact, so that it can be read before the version is known to be served.

Response header::

    0       4     correlation id
    4       1+    tagged fields                                     (v1)

v1 goes with flexible versions, except that ApiVersions always has v0: a client must be able to
read the answer to a version that the broker does not know.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Final, cast, final

from odradek.errors import DecodeError, UnsupportedRequestError
from odradek.protocol.api_keys import API_SUPPORT, ApiKey, is_flexible
from odradek.protocol.primitives import (
    MAX_STRING_BYTES,
    Buffer,
    fail_length,
    fail_string,
    skip_tagged_fields,
)

__all__ = [
    "RequestHeader",
    "RequestHeaderReader",
    "encode_request_header",
    "encode_response_header",
    "parse_request_header",
    "parse_response_header",
    "request_header_version",
    "response_header_version",
]

_FIXED: Final = Struct(">hhi")
_FIXED_AND_CLIENT_ID_LENGTH: Final = Struct(">hhih")
# The same with key and version as one number. A bound method: it is called for every request.
_UNPACK_START: Final = Struct(">Iih").unpack_from
# Longer client ids are parsed anew for each request.
_MAX_KNOWN_BYTES: Final = 64
_CORRELATION_ID: Final = Struct(">i")
_CORRELATION_ID_NO_TAGS: Final = Struct(">ix")


@final
class RequestHeader:
    """The header of a request. Replaced, never edited; not a dataclass: each request makes one."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(
        self, api_key: ApiKey, api_version: int, correlation_id: int, client_id: str
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id  # Empty when the client sent none.

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RequestHeader)
            and self.api_key == other.api_key
            and self.api_version == other.api_version
            and self.correlation_id == other.correlation_id
            and self.client_id == other.client_id
        )

    def __hash__(self) -> int:
        return hash((self.api_key, self.api_version, self.correlation_id, self.client_id))

    def __repr__(self) -> str:
        return (
            f"RequestHeader({self.api_key!r}, {self.api_version}, {self.correlation_id},"
            f" {self.client_id!r})"
        )


def request_header_version(api_key: ApiKey, version: int) -> int:
    """The version of the header that precedes such a request."""
    if is_flexible(api_key, version):
        return 2
    return 0 if api_key is ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: ApiKey, version: int) -> int:
    """The version of the header that precedes the response to such a request."""
    return int(api_key is not ApiKey.API_VERSIONS and is_flexible(api_key, version))


# Of all accepted requests, key and version as one number: (key as enum, version, header version).
_ACCEPTED: Final = {
    int(key) << 16 | version: (key, version, request_header_version(key, version))
    for key, support in API_SUPPORT.items()
    for version in range(support.accepted.first, support.accepted.last + 1)
}


# Of the responses to all accepted requests.
_RESPONSE_HEADER_VERSIONS: Final = {
    (int(key), version): response_header_version(key, version)
    for key, support in API_SUPPORT.items()
    for version in range(support.accepted.first, support.accepted.last + 1)
}


def parse_request_header(payload: Buffer) -> tuple[RequestHeader, int]:
    """Reads the header of a request a broker received; returns it and where the body begins.

    An ApiVersions request of unknown version is accepted, since it must be answered; its body
    cannot be read, so the position returned is the end. Only the correlation id is used: client id
    and tags may have an unknown form.

    Raises:
        UnsupportedRequestError: The key or the version is not served; no answer is possible.
        DecodeError: The bytes are not a request header.
    """
    try:
        key_and_version, correlation_id, length = _UNPACK_START(payload)
        accepted = _ACCEPTED.get(key_and_version)
        if accepted is None:
            return _unknown_request(payload)
        key, version, header_version = accepted
        if header_version == 0:
            return RequestHeader(key, version, correlation_id, ""), _FIXED.size
        position = 10
        client_id = ""
        if length > 0:
            position += length
            if position > len(payload):
                fail_length("client_id", length, 10, len(payload))
            client_id = str(payload[10:position], "utf-8")
        elif length < -1:
            fail_length("client_id", length, 10, len(payload))
        if header_version == 2:
            tag_count = payload[position]
            position += 1
            if tag_count:
                position = skip_tagged_fields(payload, position, tag_count)
        return RequestHeader(key, version, correlation_id, client_id), position
    except (struct_error, IndexError):
        return _short_header(payload)
    except UnicodeDecodeError as error:
        raise DecodeError("the client id of a request header is no UTF-8") from error


class RequestHeaderReader:
    """Reads the headers of the requests of one connection, as `parse_request_header` does.

    A client sends the same client id with every request. So the layout of the last header is
    expected again, and one `unpack` finds everything; any other header is parsed.
    """

    __slots__ = ("_client_bytes", "_client_id", "_length", "_unpack")

    def __init__(self) -> None:
        # Of the last request.
        self._length = 0
        self._client_bytes = b""
        self._client_id = ""
        self._unpack = _unpack_known(0)

    def read(self, payload: Buffer) -> tuple[RequestHeader, int]:
        """Reads the next header; returns it and where the body begins.

        Raises:
            UnsupportedRequestError: The key or the version is not served; no answer is possible.
            DecodeError: The bytes are not a request header.
        """
        expected = self._length
        if len(payload) > 10 + expected:
            key_and_version, correlation_id, length, client_bytes, tag_count = self._unpack(payload)
            if length == expected and client_bytes == self._client_bytes:
                accepted = _ACCEPTED.get(key_and_version)
                if accepted is not None:
                    key, version, header_version = accepted
                    if header_version == 1:
                        header = RequestHeader(key, version, correlation_id, self._client_id)
                        return header, 10 + length
                    if header_version == 2 and not tag_count:
                        header = RequestHeader(key, version, correlation_id, self._client_id)
                        return header, 11 + length
        header, position = parse_request_header(payload)
        client_bytes = header.client_id.encode()
        if 0 < len(client_bytes) <= _MAX_KNOWN_BYTES:
            self._length = len(client_bytes)
            self._client_bytes = client_bytes
            self._client_id = header.client_id
            self._unpack = _unpack_known(self._length)
        return header, position


@lru_cache(_MAX_KNOWN_BYTES + 1)
def _unpack_known(length: int) -> Callable[[Buffer], tuple[int, int, int, bytes, int]]:
    """Unpacks a header with a client id of that length, and the count of its tags."""
    return cast(
        "Callable[[Buffer], tuple[int, int, int, bytes, int]]",
        Struct(f">Iih{length}sB").unpack_from,
    )


def _unknown_request(payload: Buffer) -> tuple[RequestHeader, int]:
    api_key, version, correlation_id, length = _FIXED_AND_CLIENT_ID_LENGTH.unpack_from(payload)
    if api_key == ApiKey.API_VERSIONS:
        header = RequestHeader(ApiKey.API_VERSIONS, version, correlation_id, "")
        return header, len(payload)
    client_id = bytes(payload[10 : 10 + max(length, 0)]).decode("utf-8", "replace")
    raise UnsupportedRequestError(api_key, version, client_id)


def _short_header(payload: Buffer) -> tuple[RequestHeader, int]:
    """A header too short for a client id: right in ControlledShutdown 0, and never elsewhere."""
    if len(payload) >= _FIXED.size:
        api_key, version, correlation_id = _FIXED.unpack_from(payload)
        if (api_key, version) == (ApiKey.CONTROLLED_SHUTDOWN, 0):
            header = RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, correlation_id, "")
            return header, _FIXED.size
        if api_key == ApiKey.API_VERSIONS and version not in API_SUPPORT[api_key].accepted:
            header = RequestHeader(ApiKey.API_VERSIONS, version, correlation_id, "")
            return header, len(payload)
    raise DecodeError(f"a request of {len(payload)} bytes ends inside its header")


def encode_request_header(header: RequestHeader) -> bytes:
    """Writes the header of a request."""
    header_version = request_header_version(header.api_key, header.api_version)
    if header_version == 0:
        return _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    client_id = header.client_id.encode()
    if len(client_id) > MAX_STRING_BYTES:
        fail_string("client_id", client_id)
    fixed = _FIXED_AND_CLIENT_ID_LENGTH.pack(
        header.api_key, header.api_version, header.correlation_id, len(client_id)
    )
    return fixed + client_id + (b"\0" if header_version == 2 else b"")


def encode_response_header(api_key: ApiKey, version: int, correlation_id: int) -> bytes:
    """Writes the header of the response to such a request."""
    header_version = _RESPONSE_HEADER_VERSIONS.get((api_key, version))
    if header_version is None:
        header_version = response_header_version(api_key, version)
    if header_version:
        return _CORRELATION_ID_NO_TAGS.pack(correlation_id)
    return _CORRELATION_ID.pack(correlation_id)


def parse_response_header(payload: Buffer, api_key: ApiKey, version: int) -> tuple[int, int]:
    """Reads the correlation id of a response; returns it and where the body begins.

    Raises:
        DecodeError: The bytes are not a response header.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(payload)
        position = 4
        if response_header_version(api_key, version):
            tag_count = payload[4]
            position = skip_tagged_fields(payload, 5, tag_count) if tag_count else 5
    except (struct_error, IndexError) as error:
        raise DecodeError(f"a response of {len(payload)} bytes ends inside its header") from error
    return correlation_id, position
