"""The metrics of a ZooKeeper session, under Kafka's names."""

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.coordination.store import SessionState
from odradek.metrics import MetricRegistry

__all__ = ["SessionMetrics"]

_STATES: Final = {
    SessionState.CONNECTED: "CONNECTED",
    SessionState.SUSPENDED: "CONNECTING",
    SessionState.LOST: "CLOSED",
}


class SessionMetrics:
    """Counts what happens to a session, and times its requests."""

    __slots__ = ("connects", "disconnects", "expires", "latency")

    def __init__(self, metrics: MetricRegistry, state: Callable[[], SessionState]) -> None:
        session = metrics.group("kafka.server", "SessionExpireListener")
        self.connects = session.meter(
            "ZooKeeperSyncConnectsPerSec",
            "Links to ZooKeeper servers on which the session went on.",
        )
        self.disconnects = session.meter(
            "ZooKeeperDisconnectsPerSec", "Links to ZooKeeper servers that broke."
        )
        self.expires = session.meter(
            "ZooKeeperExpiresPerSec", "Sessions that were lost and replaced."
        )
        for each, name in _STATES.items():
            session.gauge(
                "SessionState",
                partial(_is_in, state, each),
                "1 for the state that the session with ZooKeeper has: CONNECTED; CONNECTING while "
                "the link is broken; CLOSED from the end of a session to its replacement.",
                state=name,
            )
        self.latency = metrics.group("kafka.server", "ZooKeeperClientMetrics").histogram(
            "ZooKeeperRequestLatencyMs", "Time from sending a request to ZooKeeper to its answer."
        )


def _is_in(state: Callable[[], SessionState], wanted: SessionState) -> float:
    return float(state() is wanted)
