"""`Authorizer`, which every handler asks whether a principal may do an operation."""

from typing import Final, Protocol

from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal

__all__ = ["ALLOW_EVERYTHING", "AllowEverything", "Authorizer"]


class Authorizer(Protocol):
    """Decides by a principal and the address it connects from.

    A resource is its type and its own name, never a pattern. The two are separate arguments, since
    the question is asked for each partition of a Produce or Fetch request.
    """

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool: ...


class AllowEverything:
    """The authorizer of a cluster without access rules."""

    __slots__ = ()

    def is_allowed(
        self,
        principal: Principal,  # noqa: ARG002 - every principal has every right
        host: str,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        return True


# The one of a broker without rules: the hottest handlers need not ask it.
ALLOW_EVERYTHING: Final = AllowEverything()
