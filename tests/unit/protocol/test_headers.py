"""Request and response headers."""

import re

import pytest

from odradek.errors import DecodeError, OdradekError, UnsupportedRequestError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import (
    RequestHeader,
    RequestHeaderReader,
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize(
    ("key", "version", "request_version", "response_version"),
    [
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 4, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.OFFSET_DELETE, 0, 1, 0),
        (ApiKey.DESCRIBE_CLUSTER, 0, 2, 1),
    ],
)
def test_header_versions(
    key: ApiKey, version: int, request_version: int, response_version: int
) -> None:
    assert request_header_version(key, version) == request_version
    assert response_header_version(key, version) == response_version


@pytest.mark.parametrize(
    ("header", "hexadecimal"),
    [
        (RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, 7, ""), "0007000000000007"),
        (RequestHeader(ApiKey.METADATA, 1, 7, "c1"), "000300010000000700026331"),
        (RequestHeader(ApiKey.METADATA, 12, -1, "c1"), "0003000cffffffff0002633100"),
        (RequestHeader(ApiKey.METADATA, 12, 7, ""), "0003000c00000007000000"),
    ],
)
def test_request_header(header: RequestHeader, hexadecimal: str) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert encode_request_header(header) == encoded
    for payload in (encoded, bytearray(encoded + b"body"), memoryview(encoded + b"body")):
        assert parse_request_header(payload) == (header, len(encoded))


@pytest.mark.parametrize(
    "second",
    [
        pytest.param("0003000100000008000263311234", id="the-same-client"),
        pytest.param("0003000c0000000800026331001234", id="the-same-client-flexible"),
        pytest.param("0003000c000000080002633101 0503 aabbcc", id="tags"),
        pytest.param("0003000c00000008000263320012", id="another-client"),
        pytest.param("0003000100000008000363313112", id="a-longer-client-id"),
        pytest.param("0003000100000008000163", id="a-shorter-client-id"),
        pytest.param("00030001000000080000", id="none-and-no-body"),
        pytest.param("000300010000000800001234", id="an-empty-client-id"),
        pytest.param("0003000100000008ffff1234", id="no-client-id"),
        pytest.param("00030001000000080002c3281234", id="no-UTF-8"),
        pytest.param("0003000100000008000263", id="cut-short"),
        pytest.param("0003000100000008000a6331000000", id="a-length-beyond-the-end"),
        pytest.param("0007000000000007", id="controlled-shutdown"),
        pytest.param("001200630000000900026331001234", id="api-versions-of-an-unknown-version"),
        pytest.param("7fff00000000000700026331001234", id="an-unknown-key"),
    ],
)
@pytest.mark.parametrize(
    "first", ["", "0003000100000007000263311234", "0003000c0000000700026331001234"]
)
def test_a_reader_of_many_headers_reads_each_as_if_it_were_the_first(
    first: str, second: str
) -> None:
    reader = RequestHeaderReader()
    if first:
        reader.read(memoryview(bytes.fromhex(first)))
    payload = memoryview(bytes.fromhex(second))
    try:
        expected = parse_request_header(payload)
    except OdradekError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            reader.read(payload)
    else:
        assert reader.read(payload) == expected
        assert reader.read(payload) == expected


def test_null_client_id_counts_as_empty() -> None:
    header, position = parse_request_header(bytes.fromhex("0003000100000007ffff"))
    assert (header.client_id, position) == ("", 10)


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    header, position = parse_request_header(bytes.fromhex("0003000c000000070002633101 0503 aabbcc"))
    assert (header.client_id, position) == ("c1", 18)


@pytest.mark.parametrize(
    ("hexadecimal", "key", "version"),
    [
        pytest.param("0003006300000007 0002 6331", 3, 99, id="version"),
        pytest.param("03e7000000000007 0002 6331", 999, 0, id="key"),
        pytest.param("0003ffff00000007 0002 6331", 3, -1, id="negative-version"),
        pytest.param("0004000100000007 0002 6331", 4, 1, id="parsed-but-not-accepted"),
        pytest.param("0003006300000007 7fff 6331", 3, 99, id="client-id-cut-short"),
        pytest.param("0001001300000007 ffff", 1, 19, id="newer-than-ours"),
    ],
)
def test_what_is_not_served_is_named(hexadecimal: str, key: int, version: int) -> None:
    with pytest.raises(UnsupportedRequestError) as caught:
        parse_request_header(bytes.fromhex(hexadecimal))
    assert (caught.value.api_key, caught.value.api_version) == (key, version)
    assert caught.value.client_id in ("c1", "")


@pytest.mark.parametrize("version", [5, 99, -1, 32767])
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("0002633100", id="client-id"),
        pytest.param("00026331ffffffffff", id="tags-nobody-can-read"),
        pytest.param("7fff", id="client-id-cut-short"),
        pytest.param("", id="nothing"),
    ],
)
def test_unknown_api_versions_request_needs_a_correlation_id_only(version: int, rest: str) -> None:
    """It is to be answered, whatever follows the correlation id."""
    payload = (
        (18).to_bytes(2, "big")
        + version.to_bytes(2, "big", signed=True)
        + (7).to_bytes(4, "big")
        + bytes.fromhex(rest)
    )
    header, position = parse_request_header(payload)
    assert header == RequestHeader(ApiKey.API_VERSIONS, version, 7, "")
    assert position == len(payload)


@pytest.mark.parametrize(
    "hexadecimal",
    [
        "",
        "0003",
        "0003000100000007",
        "000300010000000700",
        "00030001000000070003 6331",
        "0003000100000007fffe",
        "0003000100000007 0002 ffff",
        "0003000c00000007 0002 6331",
        "0003000c00000007 0002 6331 01",
        "0003000c00000007 0002 6331 ffffffffff",
    ],
)
def test_what_is_no_header_is_refused(hexadecimal: str) -> None:
    with pytest.raises(DecodeError):
        parse_request_header(bytes.fromhex(hexadecimal))


@pytest.mark.parametrize(
    ("key", "version", "hexadecimal"),
    [
        (ApiKey.METADATA, 8, "00000007"),
        (ApiKey.METADATA, 9, "0000000700"),
        (ApiKey.API_VERSIONS, 3, "00000007"),
    ],
)
def test_response_header(key: ApiKey, version: int, hexadecimal: str) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert encode_response_header(key, version, 7) == encoded
    assert parse_response_header(encoded + b"body", key, version) == (7, len(encoded))


def test_response_header_with_tags() -> None:
    encoded = bytes.fromhex("00000007 01 05 01 aa")
    assert parse_response_header(encoded, ApiKey.METADATA, 9) == (7, len(encoded))


@pytest.mark.parametrize("hexadecimal", ["", "000000", "00000007", "0000000701", "000000070100ff"])
def test_what_is_no_response_header_is_refused(hexadecimal: str) -> None:
    with pytest.raises(DecodeError):
        parse_response_header(bytes.fromhex(hexadecimal), ApiKey.METADATA, 9)
