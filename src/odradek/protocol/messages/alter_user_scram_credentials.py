"""AlterUserScramCredentials (key 51): set or delete SCRAM credentials. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import BYTES, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "AlterUserScramCredentialsResult",
    "ScramCredentialDeletion",
    "ScramCredentialUpsertion",
]


class ScramCredentialDeletion(Message):
    name: str = wire(STRING)
    mechanism: int = wire(INT8)


class ScramCredentialUpsertion(Message):
    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES, is_secret=True)
    salted_password: bytes = wire(BYTES, is_secret=True)


class AlterUserScramCredentialsRequest(Message, versions="0", flexible="0+"):
    """Credentials to delete and to set; the password arrives salted."""

    deletions: Sequence[ScramCredentialDeletion] = wire(array(ScramCredentialDeletion))
    upsertions: Sequence[ScramCredentialUpsertion] = wire(array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Message):
    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


class AlterUserScramCredentialsResponse(Message, versions="0", flexible="0+"):
    """The outcome per user."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[AlterUserScramCredentialsResult] = wire(
        array(AlterUserScramCredentialsResult)
    )
