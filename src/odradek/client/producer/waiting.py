"""Waits for the outcomes of batches."""

import asyncio
from collections.abc import Collection

from odradek.client.errors import CallTimeoutError
from odradek.client.producer.delivery import Outcome
from odradek.client.retry import Deadline

__all__ = ["until_done"]


async def until_done(outcomes: Collection[Outcome], deadline: Deadline) -> None:
    """Waits until all are decided, on the producer's loop.

    Raises:
        CallTimeoutError: Not in time.
    """
    left = len(outcomes)
    done = asyncio.get_running_loop().create_future()

    def one_is_done() -> None:
        nonlocal left
        left -= 1
        if not left and not done.done():
            done.set_result(None)

    for outcome in outcomes:
        outcome.when_done(one_is_done)
    if not outcomes:
        return
    try:
        async with asyncio.timeout(deadline.left_ms() / 1000):
            await done
    except TimeoutError:
        raise CallTimeoutError(
            f"flush: {left} of {len(outcomes)} batches have no outcome after "
            f"{deadline.timeout_ms} ms"
        ) from None
