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
        doc="Whether leadership goes back to preferred replicas by itself.",
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
    """What the controller is told by the broker that runs it."""

    delete_topic_enable: bool = True
    default_partition_count: int = 1
    default_replication_factor: int = 1
    # Where brokers reach each other; named in LeaderAndIsr's list of live leaders.
    inter_broker_listener: str = "PLAINTEXT"
    # The controller's own, so that its requests never wait behind others; None if there is none.
    control_plane_listener: str | None = None
    leader_balance: LeaderBalanceConfig = field(default_factory=LeaderBalanceConfig)

    @property
    def control_listener(self) -> str:
        """Where the controller reaches brokers."""
        return self.control_plane_listener or self.inter_broker_listener
