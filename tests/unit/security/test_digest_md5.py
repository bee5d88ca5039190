"""The client's side of DIGEST-MD5."""

import pytest

from odradek.errors import DecodeError
from odradek.security.digest_md5 import DigestMd5, Login

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)
RESPONSE = "d388dad90d4bbd760a152321f2143af7"
OUTCOME = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def exchange(username: str = "chris", password: str = "secret") -> DigestMd5:
    return DigestMd5(Login(username, password), "imap/elwood.innosoft.com", "OA6MHXh6VqTrRk")


def test_the_example_of_the_standard() -> None:
    """RFC 2831, section 4."""
    digest = exchange()
    assert digest.respond(CHALLENGE).decode().split(",") == [
        "charset=utf-8",
        'username="chris"',
        'realm="elwood.innosoft.com"',
        'nonce="OA6MG9tEQGm2hh"',
        "nc=00000001",
        'cnonce="OA6MHXh6VqTrRk"',
        'digest-uri="imap/elwood.innosoft.com"',
        f"response={RESPONSE}",
        "qop=auth",
    ]
    assert digest.is_proven_by(OUTCOME)


@pytest.mark.parametrize(
    "outcome",
    [b"", b"rspauth=", OUTCOME[:-1] + b"e", b'rspauth="', b"\xff", b"response=" + OUTCOME],
)
def test_a_server_that_does_not_know_the_password_is_found_out(outcome: bytes) -> None:
    digest = exchange()
    assert not digest.is_proven_by(OUTCOME), "before the exchange nothing is proven"
    digest.respond(CHALLENGE)
    assert not digest.is_proven_by(outcome)


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "a nonce, found none"),
        (b'realm="r",algorithm=md5-sess', "a nonce, found none"),
        (b'nonce="n"', "expected algorithm md5-sess, found 'none'"),
        (b'nonce="n",algorithm=md5', "found 'md5'"),
        (b'nonce="n",algorithm=md5-sess,qop="auth-int,auth-conf"', "expected qop auth"),
        (b'nonce="n', "expected name=value at 0"),
        (b'nonce="n";x', "expected name=value at 0"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_challenge_that_cannot_be_answered(challenge: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        exchange().respond(challenge)


def test_marks_in_a_name_are_quoted() -> None:
    answer = exchange('a"b\\c').respond(CHALLENGE)
    assert rb'username="a\"b\\c"' in answer


def test_without_utf8_names_are_latin() -> None:
    latin = CHALLENGE.replace(b",charset=utf-8", b"")
    answer = exchange("müller").respond(latin)
    assert b"charset" not in answer
    assert 'username="müller"'.encode("latin-1") in answer
    assert 'username="müller"'.encode() in exchange("müller").respond(CHALLENGE)
    with pytest.raises(DecodeError, match="no UTF-8"):
        exchange("日本").respond(latin)


def test_no_message_shows_a_password() -> None:
    assert "secret" not in repr(Login("chris", "secret"))
