"""The principal that a connection acts for."""

from typing import Final, NamedTuple

__all__ = ["ANONYMOUS", "USER", "Principal"]

USER: Final = "User"  # The type of every principal that a listener makes.


class Principal(NamedTuple):
    """A type and a name, written `User:alice`.

    Two principals are equal if type and name are: a client that logged in with a token has the
    rights of the token's owner.
    """

    kind: str
    name: str
    is_token_authenticated: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Principal) and self[:2] == other[:2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:2])

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
