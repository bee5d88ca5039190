"""Driver of topic deletion: carries out, step by step, what `topic_deletion` plans.

Every step ends in a state from which the next step, or the next controller, can continue.
"""

import logging
from collections.abc import Iterable, Mapping

from odradek.controller import topic_deletion
from odradek.controller.context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionStatus,
    ReplicaStatus,
)
from odradek.controller.machine_driver import MachineDriver
from odradek.errors import ErrorCode
from odradek.metadata.changes import TopicDeletionCancelled, TopicRemoved
from odradek.metadata.ports import Hint, HintKind
from odradek.model import TopicPartition

__all__ = ["TopicDeletions"]

logger = logging.getLogger(__name__)


class TopicDeletions:
    """Deletes topics that are marked for it.

    Args:
        machines: The machines, and their driver.
        is_enabled: Whether topics may be deleted; if not, marks are removed.
    """

    def __init__(self, machines: MachineDriver, *, is_enabled: bool) -> None:
        self._machines = machines
        self._context: ControllerContext = machines.context
        self.is_enabled = is_enabled

    async def start(self, marked: Iterable[str]) -> None:
        """Queues the topics that a new controller finds marked; `resume` starts to delete them."""
        topics = sorted(marked)
        if not self.is_enabled:
            await self.cancel(topics)
            return
        self._context.queue_topic_deletion(topics)
        ineligible = topic_deletion.initially_ineligible(self._context, topics)
        topic_deletion.mark_ineligible(self._context, ineligible)

    async def cancel(self, topics: Iterable[str]) -> None:
        """Removes the marks of topics."""
        await self._machines.commit([TopicDeletionCancelled(topic) for topic in sorted(topics)])

    async def process_topic_deletion(self) -> None:
        """Handles the hint that topics were marked for deletion."""
        state = await self._machines.persistence.load(Hint(HintKind.DELETIONS))
        unknown = state.deletions - self._context.all_topics
        if unknown:
            logger.warning("marks of unknown topics are removed: %s", sorted(unknown))
            await self.cancel(unknown)
        marked = state.deletions - unknown
        if not self.is_enabled:
            await self.cancel(marked)
        elif marked - self._context.topics_to_be_deleted:
            await self.enqueue(marked)

    async def enqueue(self, topics: Iterable[str]) -> None:
        """Begins the deletion of marked topics, as far as it is possible now."""
        queued = sorted(topics)
        self._context.queue_topic_deletion(queued)
        reassigned = {tp.topic for tp in self._context.partitions_being_reassigned}
        self._halt(reassigned.intersection(queued), "topic reassignment in progress")
        await self.resume()

    async def resume_topics(self, topics: Iterable[str]) -> None:
        """Resumes the deletion of topics whose replicas or reassignments may permit it again."""
        if self.is_enabled and topic_deletion.resume_topics(self._context, topics):
            await self.resume()

    async def fail_replicas(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Halts the deletion of topics with replicas that could not be deleted."""
        failed, _ = topic_deletion.replicas_of_queued_topics(self._context, replicas)
        if not failed:
            return
        await self._machines.move_replicas(failed, ReplicaStatus.DELETION_INELIGIBLE)
        self._halt({replica.tp.topic for replica in failed}, "replica deletion failure")
        await self.resume()

    async def complete_replicas(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Records that brokers have deleted replicas."""
        await self._machines.move_replicas(replicas, ReplicaStatus.DELETION_SUCCESSFUL)
        await self.resume()

    async def process_stop_replica_response(
        self,
        broker_id: int,
        request_error: ErrorCode,
        partition_errors: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        """Handles a broker's answer to StopReplica with delete."""
        is_refused = request_error is not ErrorCode.NONE
        failed = [
            PartitionAndReplica(tp, broker_id)
            for tp, error in partition_errors.items()
            if is_refused or error is not ErrorCode.NONE
        ]
        done = [
            PartitionAndReplica(tp, broker_id)
            for tp in partition_errors
            if PartitionAndReplica(tp, broker_id) not in failed
        ]
        # An answer about a replica that has left this state meanwhile is outdated.
        started = ReplicaStatus.DELETION_STARTED
        failed = [r for r in failed if self._context.replica_state(r) is started]
        done = [r for r in done if self._context.replica_state(r) is started]
        await self.fail_replicas(failed)
        await self.complete_replicas(done)

    async def resume(self) -> None:
        """Advances every queued topic by one step."""
        plan = topic_deletion.plan_resume(self._context)
        for topic in plan.complete:
            await self._complete(topic)
        ineligible = ReplicaStatus.DELETION_INELIGIBLE
        retried = [
            replica
            for topic in plan.retry
            for replica in self._context.replicas_in_state(topic, ineligible)
        ]
        await self._machines.move_replicas(retried, ReplicaStatus.OFFLINE)
        if plan.start:
            await self._start_deletion(plan.start)

    async def _start_deletion(self, topics: list[str]) -> None:
        context = self._context
        unseen = [t for t in topics if not context.is_topic_deletion_in_progress(t)]
        fresh = [tp for topic in unseen for tp in context.partitions_for_topic(topic)]
        await self._machines.move_partitions(fresh, PartitionStatus.OFFLINE)
        await self._machines.move_partitions(fresh, PartitionStatus.NON_EXISTENT)
        context.begin_topic_deletion(unseen)
        partitions = [tp for topic in topics for tp in context.partitions_for_topic(topic)]
        self._machines.send_update_metadata(context.live_or_shutting_down_broker_ids, partitions)
        plan = topic_deletion.plan_partition_deletion(context, topics)
        await self._machines.move_replicas(plan.ineligible, ReplicaStatus.DELETION_INELIGIBLE)
        await self._machines.move_replicas(plan.to_delete, ReplicaStatus.OFFLINE)
        await self._machines.move_replicas(plan.to_delete, ReplicaStatus.DELETION_STARTED)
        self._halt(plan.halted, "offline replicas")

    async def _complete(self, topic: str) -> None:
        change = TopicRemoved(topic, self._context.topic_ids.get(topic))
        outcome = await self._machines.commit([change])
        for failed in outcome.failed:
            # The topic stays queued with all its replicas deleted: the next step tries again.
            logger.error("topic %s could not be removed: %s", topic, failed.error)
            return
        logger.info("topic %s is deleted", topic, extra={"topic": topic})

    def _halt(self, topics: Iterable[str], reason: str) -> None:
        halted = topic_deletion.mark_ineligible(self._context, topics)
        if halted:
            logger.info("deletion of topics %s is halted: %s", halted, reason)
