"""The controller's own metrics, under Kafka's names."""

from collections.abc import Callable, Mapping

from odradek.controller.context import ControllerContext, ReplicaStatus
from odradek.controller.events import ControllerActivity
from odradek.metrics import MetricRegistry

__all__ = ["ControllerStats", "register_gauges", "remove_gauges"]


class ControllerStats:
    """Timers of event states, and the meter of unclean elections."""

    def __init__(self, metrics: MetricRegistry) -> None:
        group = metrics.group("kafka.controller", "ControllerStats")
        self.unclean_leader_elections = group.meter(
            "UncleanLeaderElectionsPerSec",
            "Leaders taken from outside the ISR; each may have lost acknowledged records.",
        )
        self.timers = {
            state: group.timer(state.metric_name)
            for state in ControllerActivity
            if state.metric_name is not None
        }


def register_gauges(
    metrics: MetricRegistry,
    context: ControllerContext,
    *,
    is_active: Callable[[], bool],
    state: Callable[[], ControllerActivity],
) -> None:
    """Registers gauges that are computed when read; without leadership the context gives 0."""
    group = metrics.group("kafka.controller", "KafkaController")
    gauges: Mapping[str, Callable[[], float]] = {
        "ActiveControllerCount": lambda: int(is_active()),
        "ControllerState": lambda: state().value,
        "OfflinePartitionsCount": lambda: context.offline_partition_count,
        "PreferredReplicaImbalanceCount": lambda: _imbalance(context),
        "GlobalTopicCount": lambda: len(context.all_topics),
        "GlobalPartitionCount": lambda: len(context.partition_leadership),
        "TopicsToDeleteCount": lambda: len(context.topics_to_be_deleted),
        "ReplicasToDeleteCount": lambda: sum(
            found is not ReplicaStatus.DELETION_SUCCESSFUL for found in _queued(context)
        ),
        "TopicsIneligibleToDeleteCount": lambda: len(context.topics_ineligible_for_deletion),
        "ReplicasIneligibleToDeleteCount": lambda: _queued(context).count(
            ReplicaStatus.DELETION_INELIGIBLE
        ),
    }
    for name, read in gauges.items():
        group.gauge(name, read)


def remove_gauges(metrics: MetricRegistry) -> None:
    """Removes the gauges that `register_gauges` registered."""
    metrics.group("kafka.controller", "KafkaController").remove()


def _imbalance(context: ControllerContext) -> int:
    """Partitions that are not led by their preferred replica."""
    return sum(
        context.partition_replica_assignment(tp)[:1] != (record.leader_and_isr.leader,)
        for tp, record in context.partition_leadership.items()
        if not context.is_topic_queued_for_deletion(tp.topic)
    )


def _queued(context: ControllerContext) -> list[ReplicaStatus]:
    """States of the replicas of topics that are queued for deletion."""
    return [
        context.replica_state(replica)
        for topic in context.topics_to_be_deleted
        for replica in context.replicas_for_topic(topic)
    ]
