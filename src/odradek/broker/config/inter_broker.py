"""Settings of the requests that brokers send to each other, under Kafka's names."""

from odradek.config import Kind, key
from odradek.lazy_dataclass import dataclass
from odradek.protocol.inter_broker import (
    INTER_BROKER_VERSIONS,
    NEWEST_INTER_BROKER_VERSION,
    InterBrokerVersions,
)

__all__ = ["InterBrokerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBrokerSettings:
    """Versions, times and retries of requests between brokers."""

    protocol_version: str = key(
        "inter.broker.protocol.version",
        default=NEWEST_INTER_BROKER_VERSION,
        one_of=tuple(INTER_BROKER_VERSIONS),
        doc="The Kafka release whose requests brokers send to each other; in a rolling upgrade the "
        "oldest release of the cluster, until all brokers are upgraded.",
    )
    controller_socket_timeout_ms: int = key(
        "controller.socket.timeout.ms",
        default=30_000,
        at_least=1,
        doc="How long the controller waits for a broker's answer, and a broker for the "
        "controller's, before it connects and sends again.",
    )
    controlled_shutdown_enabled: bool = key(
        "controlled.shutdown.enable",
        default=True,
        doc="Whether a broker that stops asks the controller to move its leaderships first.",
    )
    controlled_shutdown_max_retries: int = key(
        "controlled.shutdown.max.retries",
        default=3,
        at_least=0,
        doc="How often a broker that stops asks again if it still leads partitions.",
    )
    controlled_shutdown_retry_backoff_ms: int = key(
        "controlled.shutdown.retry.backoff.ms",
        kind=Kind.LONG,
        default=5_000,
        at_least=0,
        doc="The pause before it asks again.",
    )

    @property
    def versions(self) -> InterBrokerVersions:
        """The versions of the requests that are sent."""
        return INTER_BROKER_VERSIONS[self.protocol_version]
