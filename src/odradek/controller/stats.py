"""The controller's own metrics, under Kafka's names."""

from odradek.controller.events import ControllerState
from odradek.metrics import MetricRegistry

__all__ = ["ControllerStats"]


class ControllerStats:
    """Timers of event states, and the meter nobody wants to see move."""

    def __init__(self, metrics: MetricRegistry) -> None:
        group = metrics.group("kafka.controller", "ControllerStats")
        self.unclean_leader_elections = group.meter(
            "UncleanLeaderElectionsPerSec",
            "Leaders taken from outside the ISR; each may have lost acknowledged records.",
        )
        self.timers = {
            state: group.timer(state.metric_name)
            for state in ControllerState
            if state.metric_name is not None
        }
