"""Whole requests and responses; the byte vectors are in test_byte_vectors.py."""

import pytest

from odradek.errors import DecodeError, ErrorCode, UnsupportedRequestError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request, encode_response, parse_request, parse_response
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.protocol.messages.metadata import MetadataRequest


def test_bytes_behind_a_request_are_ignored() -> None:
    payload = bytes.fromhex("000300010000000700026331ffffffff") + b"xyz"
    header, request = parse_request(payload)
    assert header == RequestHeader(ApiKey.METADATA, 1, 7, "c1")
    assert request == MetadataRequest(topics=None)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_of_a_version_nobody_knows(version: int) -> None:
    """The request is not read, the answer has layout 0, and clients of any version read it."""
    payload = (
        bytes.fromhex("0012")
        + version.to_bytes(2, "big", signed=True)
        + bytes.fromhex("00000007ff")
    )
    header, request = parse_request(payload)
    assert header.api_version == version
    assert request == ApiVersionsRequest()
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
    )
    encoded = encode_response(header, response)
    assert encoded.hex() == "00000007002300000001001200000004"
    correlation_id, read = parse_response(encoded, ApiKey.API_VERSIONS, 4)
    assert correlation_id == 7
    assert isinstance(read, ApiVersionsResponse)
    assert read.error_code == 35
    assert list(read.api_keys) == list(response.api_keys)


def test_refused_software_name_is_answered_in_the_version_asked() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 3, 7, "c1")
    response = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    assert encode_response(header, response).hex() == "00000007002a010000000000"


def test_controlled_shutdown_0_has_no_client_id() -> None:
    header = RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, 7, "")
    request = ControlledShutdownRequest(broker_id=3)
    payload = encode_request(header, request)
    assert payload.hex() == "000700000000000700000003"
    assert parse_request(payload) == (header, request)


def test_a_malformed_body_is_refused() -> None:
    with pytest.raises(DecodeError):
        parse_request(bytes.fromhex("0003000100000007000263317fffffff"))


@pytest.mark.parametrize("start", ["00030063", "03e70000"])
def test_an_unknown_layout_is_refused(start: str) -> None:
    with pytest.raises(UnsupportedRequestError, match="client 'c1' sent api key"):
        parse_request(bytes.fromhex(start + "0000000700026331"))
