"""Any bytes of a ZooKeeper server give a value or DecodeError."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.coordination.zookeeper import wire
from odradek.errors import DecodeError
from odradek.security.digest_md5 import DigestMd5, Login

PARSERS: list[Callable[[bytes], object]] = [
    wire.parse_children,
    wire.parse_connect_response,
    wire.parse_created,
    wire.parse_data,
    wire.parse_multi,
    wire.parse_nothing,
    wire.parse_notification,
    wire.parse_path,
    wire.parse_reply,
    wire.parse_sasl,
    wire.parse_stat,
]

# Small numbers reach far into a record, before the first one that cannot be.
BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [
                *(
                    b"\x00\x00\x00\x01",
                    b"\x00\x00\x00\x02",
                    b"\x00\x00\x00\x0f",
                    b"\xff\xff\xff\xff",
                ),
                *(b"\x00", b"\x01", b"/a", b"\xff", bytes(8), bytes(68)),
            ]
        ),
        max_size=30,
    ).map(b"".join),
)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@settings(max_examples=300)
@example(data=b"\x00\x00\x00\x01\x00" + bytes(4) + b"\xff" * 9)
@given(data=BYTES)
def test_any_bytes_give_a_value_or_a_decode_error(
    parse: Callable[[bytes], object], data: bytes
) -> None:
    with contextlib.suppress(DecodeError):
        parse(data)


CHALLENGE = b'realm="r",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess'


@settings(max_examples=300)
@given(
    token=st.one_of(
        st.binary(max_size=100),
        st.tuples(st.integers(0, len(CHALLENGE)), st.binary(max_size=3)).map(
            lambda edit: CHALLENGE[: edit[0]] + edit[1] + CHALLENGE[edit[0] + len(edit[1]) :]
        ),
    )
)
def test_any_challenge_gives_an_answer_or_a_decode_error(token: bytes) -> None:
    digest = DigestMd5(Login("kafka", "secret"), "zookeeper/zk-sasl-md5", "nonce")
    with contextlib.suppress(DecodeError):
        digest.respond(token)
    assert not digest.is_proven_by(token)
