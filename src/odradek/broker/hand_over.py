"""The first step of an orderly stop: the controller moves this broker's leaderships to others.

Without it the partitions of a stopped broker have no leader until the store misses the broker. A
broker that is alone, or that the controller does not know any more, stops without.
"""

import logging
from typing import Final

from odradek.broker.config.inter_broker import InterBrokerSettings
from odradek.errors import ApiError, ErrorCode, StoreError
from odradek.metadata.cache import MetadataCache
from odradek.metadata.ports import ControllerPort
from odradek.tasks import Sleep

__all__ = ["hand_over"]

logger = logging.getLogger(__name__)

# Of a broker that is no longer registered, or registered anew: nothing is left to hand over.
_FINAL: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE})


async def hand_over(
    port: ControllerPort,
    cache: MetadataCache,
    settings: InterBrokerSettings,
    *,
    broker_id: int,
    sleep: Sleep,
) -> bool:
    """Asks the controller until no partition is led here; returns whether that succeeded."""
    if not settings.controlled_shutdown_enabled:
        return False
    for attempt in range(settings.controlled_shutdown_max_retries + 1):
        if attempt:
            await sleep(settings.controlled_shutdown_retry_backoff_ms / 1000)
        if all(broker.id == broker_id for broker in cache.get_alive_brokers()):
            return False
        try:
            remaining = await port.controlled_shutdown(port.broker_epoch)
        except (ApiError, StoreError) as error:
            logger.warning("The controlled shutdown was not carried out: %s", error)
            if isinstance(error, ApiError) and error.code in _FINAL:
                return False
            continue
        if not remaining:
            logger.info("The controller has moved the leaderships of this broker")
            return True
        logger.warning("%d partitions are still led here: %s", len(remaining), sorted(remaining))
    logger.warning("Stopping without a completed controlled shutdown")
    return False
