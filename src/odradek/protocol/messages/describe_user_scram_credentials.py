"""DescribeUserScramCredentials (key 50): users that have SCRAM credentials. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "UserName",
]


class UserName(Message):
    name: str = wire(STRING)


class DescribeUserScramCredentialsRequest(Message, versions="0", flexible="0+"):
    """Users; null or none is all."""

    users: Sequence[UserName] | None = wire(array(UserName), nullable="0+")


class CredentialInfo(Message):
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


class DescribeUserScramCredentialsResult(Message):
    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    credential_infos: Sequence[CredentialInfo] = wire(array(CredentialInfo))


class DescribeUserScramCredentialsResponse(Message, versions="0", flexible="0+"):
    """Mechanisms and iterations, never secrets."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    results: Sequence[DescribeUserScramCredentialsResult] = wire(
        array(DescribeUserScramCredentialsResult)
    )
