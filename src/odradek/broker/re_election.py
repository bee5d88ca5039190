"""An election of the controller at an operator's request.

The controller gives its leadership up in the store, as if an operator had deleted the node. The
next controller reads all metadata and announces it to every broker, which restores the leader of a
partition whose announcement was lost. The election is complete when this broker has published
metadata of the next controller.
"""

import asyncio
from collections.abc import Mapping

from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.clock import Clock
from odradek.controller import Controller
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import MetadataCache

__all__ = ["re_elect_controller"]

# An election takes a second, loading the metadata of very many partitions some more.
_TIMEOUT_MS = 30_000


async def re_elect_controller(
    controller: Controller, cache: MetadataCache, waiter: MetadataWaiter, *, clock: Clock
) -> Mapping[str, object]:
    """Starts an election; returns the id of the new controller, and the epochs before and after.

    Raises:
        ApiError: This broker is not the controller, or no broker was elected in time.
    """
    started_ms = clock.monotonic_ms()
    old_epoch = await controller.give_up()
    missing: asyncio.Future[frozenset[int]] = asyncio.get_running_loop().create_future()

    def respond(not_seen: frozenset[int]) -> None:
        if not missing.done():  # Otherwise the caller was cancelled.
            missing.set_result(not_seen)

    waiter.park(
        [old_epoch],
        lambda epoch: cache.image.controller_epoch > epoch,
        respond,
        timeout_ms=_TIMEOUT_MS,
        started_ms=started_ms,
    )
    if await missing:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the controller of epoch {old_epoch} has resigned, and metadata of a new one did not"
            f" come within {_TIMEOUT_MS // 1000} s; the broker's log tells why",
        )
    image = cache.image
    return {
        "controller": image.controller_id,
        "old_epoch": old_epoch,
        "new_epoch": image.controller_epoch,
    }
