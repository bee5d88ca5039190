"""Settings of the controller; those it alone reads are declared here under Kafka's names. Pure."""

from dataclasses import field

from odradek.config import key
from odradek.lazy_dataclass import dataclass

__all__ = ["ControllerConfig", "LeaderBalanceConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderBalanceConfig:
    """Balance of leaders."""

    enabled: bool = key(
        "auto.leader.rebalance.enable",
        default=True,
        agreed=True,
        doc="Whether leadership returns to preferred replicas automatically.",
    )
    imbalance_percentage: int = key(
        "leader.imbalance.per.broker.percentage",
        default=10,
        at_least=0,
        doc="Share of a broker's preferred partitions led by others above which it is rebalanced.",
    )
    check_interval_s: int = key(
        "leader.imbalance.check.interval.seconds",
        default=300,
        at_least=1,
        doc="Time between two checks of the balance of leaders.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The settings that the broker hands to its controller."""

    delete_topic_enable: bool = True
    default_partition_count: int = 1
    default_replication_factor: int = 1
    # The listener between brokers; its endpoints are in LeaderAndIsr's list of live leaders.
    inter_broker_listener: str = "PLAINTEXT"
    # A listener for the controller's requests alone, so that they never wait behind others'.
    control_plane_listener: str | None = None
    leader_balance: LeaderBalanceConfig = field(default_factory=LeaderBalanceConfig)

    @property
    def control_listener(self) -> str:
        """The listener of brokers that the controller connects to."""
        return self.control_plane_listener or self.inter_broker_listener
