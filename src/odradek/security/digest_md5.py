"""The client's side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's servers speak it. Pure.

::

    client                                    server
      empty token                     ──►
                                      ◄──     realm, nonce: the challenge
      user, realm, nonces, response   ──►     knows the password, so it can check the response
                                      ◄──     rspauth: it knows the password, too

Neither side sends the password. MD5 is what the protocol has: over links that other programs can
read, use TLS as well.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from odradek.errors import DecodeError
from odradek.lazy_dataclass import dataclass

__all__ = ["DigestMd5", "Login"]

_QOP: Final = "auth"
_FIRST_USE: Final = "00000001"  # How often the nonce was used.
# name=value or name="value", where a backslash quotes the next character.
_DIRECTIVE: Final = re.compile(
    r'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Login:
    """A user and its password, which no message shows."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


class DigestMd5:
    """One exchange.

    Args:
        service: Service and host that the server was started for, `service/host`.
        nonce: Random text that no exchange had before.
    """

    __slots__ = ("_expected", "_login", "_nonce", "_service")

    def __init__(self, login: Login, service: str, nonce: str) -> None:
        self._login = login
        self._service = service
        self._nonce = nonce
        self._expected = ""

    def respond(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge.

        Raises:
            DecodeError: It is no challenge, or one for a variant that is not spoken.
        """
        found = _parse(challenge)
        realm, server_nonce = found.get("realm", ""), found.get("nonce")
        if not server_nonce:
            raise DecodeError("DIGEST-MD5: expected a challenge with a nonce, found none")
        if found.get("algorithm") != "md5-sess":
            raise DecodeError(
                "DIGEST-MD5: expected algorithm md5-sess, found"
                f" {found.get('algorithm', 'none')!r:.40}"
            )
        offered = [each.strip() for each in found.get("qop", _QOP).split(",")]
        if _QOP not in offered:
            raise DecodeError(f"DIGEST-MD5: expected qop auth, found {found['qop']!r:.40}")
        has_utf8 = found.get("charset", "").lower() == "utf-8"
        nonces = f"{server_nonce}:{_FIRST_USE}:{self._nonce}:{_QOP}"
        secret = self._secret(realm, server_nonce)
        self._expected = _keyed(secret, nonces, f":{self._service}")
        response = _keyed(secret, nonces, f"AUTHENTICATE:{self._service}")
        text = ",".join(
            (
                *(("charset=utf-8",) if has_utf8 else ()),
                f"username={_quoted(self._login.username)}",
                f"realm={_quoted(realm)}",
                f"nonce={_quoted(server_nonce)}",
                f"nc={_FIRST_USE}",
                f"cnonce={_quoted(self._nonce)}",
                f"digest-uri={_quoted(self._service)}",
                f"response={response}",
                f"qop={_QOP}",
            )
        )
        try:
            return text.encode("utf-8" if has_utf8 else "latin-1")
        except UnicodeEncodeError:
            raise DecodeError("DIGEST-MD5: the server does not take this user: no UTF-8") from None

    def is_proven_by(self, outcome: bytes) -> bool:
        """Whether the server's last token shows that it knows the password."""
        try:
            proof = _parse(outcome).get("rspauth", "")
        except DecodeError:
            return False
        expected = self._expected
        return bool(expected) and hmac.compare_digest(proof.encode(), expected.encode())

    def _secret(self, realm: str, server_nonce: str) -> str:
        parts = (self._login.username, realm, self._login.password)
        first = _md5(b":".join(map(_narrow, parts))).digest()
        return _md5(first + f":{server_nonce}:{self._nonce}".encode()).hexdigest()


def _keyed(secret: str, nonces: str, subject: str) -> str:
    inner = _md5(subject.encode()).hexdigest()
    return _md5(f"{secret}:{nonces}:{inner}".encode()).hexdigest()


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)


def _narrow(text: str) -> bytes:
    """RFC 2831, 2.1.2.1: hashed as ISO 8859-1 if that has all characters, otherwise as UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _parse(token: bytes) -> Mapping[str, str]:
    try:
        text = token.decode().strip()
    except UnicodeDecodeError:
        raise DecodeError("DIGEST-MD5: a token is not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise DecodeError(f"DIGEST-MD5: expected name=value at {position} of a token")
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        found.setdefault(name.lower(), value)
        position = match.end()
    return found
