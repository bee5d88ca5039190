"""Handlers of events about brokers: arrivals, losses, failed directories, reports, shutdowns."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.controller import topic_deletion
from odradek.controller.channels import ControllerChannels
from odradek.controller.context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionStatus,
    ReplicaStatus,
)
from odradek.controller.election import Strategy
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.reassignment_driver import Reassignments
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.ports import Hint, HintKind, RegisteredBroker
from odradek.model import TopicPartition
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrResponse

__all__ = ["BrokerDifference", "BrokerHandlers", "compare_brokers"]

logger = logging.getLogger(__name__)


class BrokerDifference(NamedTuple):
    """How the registered brokers differ from those the controller knows; ids in order."""

    new: list[int]
    dead: list[int]
    bounced: list[int]  # Known, but registered again since: it restarted.
    live: list[int]


def compare_brokers(
    known: Mapping[int, int], registered: Mapping[int, RegisteredBroker]
) -> BrokerDifference:
    """Compares the broker epochs the controller knows with the registered ones."""
    return BrokerDifference(
        new=sorted(registered.keys() - known.keys()),
        dead=sorted(known.keys() - registered.keys()),
        bounced=sorted(
            broker_id
            for broker_id in known.keys() & registered.keys()
            if registered[broker_id].broker_epoch > known[broker_id]
        ),
        live=sorted(registered),
    )


class BrokerHandlers:
    """Handles the events about brokers.

    Args:
        machines: The machines, and their driver.
        deletion: Halts and resumes deletions as replicas go offline and return.
        reassignments: Go on as brokers return and replicas catch up.
        channels: The senders of the active controller.
    """

    def __init__(
        self,
        machines: MachineDriver,
        deletion: TopicDeletions,
        reassignments: Reassignments,
        *,
        channels: Callable[[], ControllerChannels],
    ) -> None:
        self._machines = machines
        self._deletion = deletion
        self._reassignments = reassignments
        self._context: ControllerContext = machines.context
        self._channels = channels

    # Membership

    async def process_broker_change(self) -> None:
        """Handles the hint that brokers registered or left."""
        context, channels = self._context, self._channels()
        registered = (await self._machines.persistence.load(Hint(HintKind.BROKERS))).brokers
        new, dead, bounced, live = compare_brokers(context.live_broker_epochs, registered)
        if not (new or dead or bounced):
            return
        logger.info("brokers new: %s, dead: %s, bounced: %s, live: %s", new, dead, bounced, live)
        for broker_id in new:
            channels.add_broker(registered[broker_id].broker)
        for broker_id in bounced:
            await channels.remove_broker(broker_id)
            channels.add_broker(registered[broker_id].broker)
        for broker_id in dead:
            await channels.remove_broker(broker_id)
        if new:
            context.add_live_brokers({b: registered[b] for b in new})
            await self._on_startup(new)
        if bounced:
            context.remove_live_brokers(bounced)
            await self._on_failure(bounced)
            context.add_live_brokers({b: registered[b] for b in bounced})
            await self._on_startup(bounced)
        if dead:
            context.remove_live_brokers(dead)
            await self._on_failure(dead)

    async def _on_failure(self, broker_ids: list[int]) -> None:
        context = self._context
        for broker_id in broker_ids:
            context.replicas_on_offline_dirs.pop(broker_id, None)
        was_shutting_down = sorted(context.shutting_down_broker_ids.intersection(broker_ids))
        if was_shutting_down:
            logger.info("brokers %s have shut down as announced", was_shutting_down)
        context.shutting_down_broker_ids.difference_update(broker_ids)
        await self.on_replicas_become_offline(context.replicas_on_brokers(broker_ids))

    async def _on_startup(self, broker_ids: list[int]) -> None:
        context, machines = self._context, self._machines
        started = set(broker_ids)
        for broker_id in broker_ids:
            context.replicas_on_offline_dirs.pop(broker_id, None)
        machines.send_update_metadata(context.live_or_shutting_down_broker_ids - started)
        machines.send_update_metadata(started, list(context.partition_leadership))
        replicas = context.replicas_on_brokers(started)
        await machines.move_replicas(replicas, ReplicaStatus.ONLINE)
        await machines.trigger_online()
        await self._reassignments.resume(started)
        waiting, _ = topic_deletion.replicas_of_queued_topics(context, replicas)
        await self._deletion.resume_topics({replica.tp.topic for replica in waiting})

    async def process_broker_modification(self, broker_id: int) -> None:
        """Handles the hint that a broker rewrote its node, perhaps with other endpoints."""
        state = await self._machines.persistence.load(Hint(HintKind.BROKER, broker_id=broker_id))
        registered = state.brokers.get(broker_id)
        known = self._context.live_or_shutting_down_broker(broker_id)
        if registered is None or known is None:
            return
        if registered.broker_epoch != self._context.live_broker_epochs[broker_id]:
            return  # It registered again: process_broker_change handles that.
        if registered.broker.endpoints != known.endpoints:
            logger.info("broker %d has other endpoints", broker_id)
            self._context.update_broker_metadata(known, registered.broker)
            self._machines.send_update_metadata(self._context.live_or_shutting_down_broker_ids)

    # Replicas

    async def on_replicas_become_offline(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Elects new leaders for replicas that went offline, and takes them out of the ISR."""
        context, machines = self._context, self._machines
        queued, others = topic_deletion.replicas_of_queued_topics(context, replicas)
        leaderless = [
            tp
            for tp, record in context.partition_leadership.items()
            if not context.is_replica_online(record.leader_and_isr.leader, tp)
            and not context.is_topic_queued_for_deletion(tp.topic)
        ]
        await machines.move_partitions(leaderless, PartitionStatus.OFFLINE)
        await machines.trigger_online()
        await machines.move_replicas(others, ReplicaStatus.OFFLINE)
        await self._deletion.fail_replicas(queued)
        if not leaderless:
            # No election has announced the lost brokers to the others.
            machines.send_update_metadata(context.live_or_shutting_down_broker_ids)

    async def process_leader_and_isr_response(
        self, broker_id: int, response: LeaderAndIsrResponse
    ) -> None:
        """Handles a broker's answer on which replicas it could start."""
        context = self._context
        if response.error_code != ErrorCode.NONE:
            logger.error("broker %d refused LeaderAndIsr: %d", broker_id, response.error_code)
            return
        offline: set[TopicPartition] = set()
        online: set[TopicPartition] = set()
        for tp, error in self._partition_errors(response):
            if error == ErrorCode.KAFKA_STORAGE_ERROR:
                offline.add(tp)
            elif error == ErrorCode.NONE:
                online.add(tp)
        before = context.replicas_on_offline_dirs.get(broker_id, set())
        after = (before | offline) - online
        if after:
            context.replicas_on_offline_dirs[broker_id] = after
        else:
            context.replicas_on_offline_dirs.pop(broker_id, None)
        newly_offline = sorted(after - before)
        if newly_offline:
            logger.warning(
                "broker %d: replicas on failed directories: %s", broker_id, newly_offline
            )
            await self.on_replicas_become_offline(
                PartitionAndReplica(tp, broker_id) for tp in newly_offline
            )

    def _partition_errors(
        self, response: LeaderAndIsrResponse
    ) -> Iterable[tuple[TopicPartition, int]]:
        names = {topic_id.bytes: name for name, topic_id in self._context.topic_ids.items()}
        for topic in response.topics:
            name = names.get(topic.topic_id)
            if name is not None:  # Else it was deleted meanwhile.
                for partition in topic.partition_errors:
                    yield TopicPartition(name, partition.partition_index), partition.error_code

    async def process_isr_change(self) -> None:
        """Handles the hint that leaders changed the ISR of their partitions."""
        context = self._context
        state = await self._machines.persistence.load(Hint(HintKind.ISR_CHANGES))
        known = {
            tp: record for tp, record in state.partitions.items() if tp in context.partition_states
        }
        context.partition_leadership.update(known)
        if known:
            self._machines.send_update_metadata(context.live_or_shutting_down_broker_ids, known)
            await self._reassignments.maybe_complete(known)

    async def process_log_dir_event(self) -> None:
        """Handles reports of failed directories.

        The brokers get a LeaderAndIsr for all their replicas; their answers name the failed ones.
        """
        state = await self._machines.persistence.load(Hint(HintKind.LOG_DIR_FAILURES))
        replicas = self._context.replicas_on_brokers(state.log_dir_failures)
        await self._machines.move_replicas(
            (r for r in replicas if not self._context.is_topic_queued_for_deletion(r.tp.topic)),
            ReplicaStatus.ONLINE,
        )

    # Controlled shutdown

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        """Moves leadership away from a broker that wants to stop.

        Returns:
            The partitions it still leads.

        Raises:
            ApiError: STALE_BROKER_EPOCH or BROKER_NOT_AVAILABLE.
        """
        context, machines = self._context, self._machines
        known_epoch = context.live_broker_epochs.get(broker_id)
        if known_epoch is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if 0 <= broker_epoch < known_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id}: epoch {broker_epoch} is older than {known_epoch}",
            )
        context.shutting_down_broker_ids.add(broker_id)
        affected = sorted(
            tp
            for tp in context.partitions_on_broker(broker_id)
            if len(context.partition_replica_assignment(tp)) > 1
            and tp in context.partition_leadership
            and not context.is_topic_queued_for_deletion(tp.topic)
        )
        led = [tp for tp in affected if self._leader(tp) == broker_id]
        followed = [tp for tp in affected if self._leader(tp) != broker_id]
        await machines.move_partitions(led, PartitionStatus.ONLINE, Strategy.CONTROLLED_SHUTDOWN)
        await machines.move_replicas(
            [PartitionAndReplica(tp, broker_id) for tp in followed], ReplicaStatus.OFFLINE
        )
        return frozenset(tp for tp in affected if self._leader(tp) == broker_id)

    def _leader(self, tp: TopicPartition) -> int:
        return self._context.partition_leadership[tp].leader_and_isr.leader
