"""Shared by requests that alter settings: their limit, and the writes they are split into."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request

__all__ = ["MAX_ALTERED", "refuse_excess", "write_in_portions"]

# Resources or entities that one request may change: as many as fit into a second of syncs.
MAX_ALTERED: Final = 1_000
# Changes in one transaction of the store: decided, rendered and applied within two milliseconds.
_ALTERED_PER_WRITE: Final = 20

_C = TypeVar("_C")


def refuse_excess(count: int) -> None:
    """Refuses a request that would change the settings of too many resources or entities.

    Raises:
        ApiError: POLICY_VIOLATION.
    """
    if count > MAX_ALTERED:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the request is about {count} resources or entities, {MAX_ALTERED} at most are"
            " allowed; split it",
        )


async def write_in_portions(
    request: Request,
    changes: Sequence[_C],
    write: Callable[[Sequence[_C]], Awaitable[Sequence[ApiError | None]]],
) -> list[ApiError | None]:
    """Writes changes, many in one transaction, as long as the client is connected.

    Returns:
        The error of each change, or None.
    """
    outcomes: list[ApiError | None] = []
    for start in range(0, len(changes), _ALTERED_PER_WRITE):
        if request.connection.is_closed:
            gone = ApiError(ErrorCode.NETWORK_EXCEPTION, "the client hung up before its turn came")
            return outcomes + [gone] * (len(changes) - start)
        outcomes += await write(changes[start : start + _ALTERED_PER_WRITE])
    return outcomes
