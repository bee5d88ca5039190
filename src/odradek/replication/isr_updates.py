"""ISR changes in flight: sent to the cluster, settled when the answer arrives.

Duties towards the partitions, in order, for each change that one of them proposed:

1. send it, with the epoch of the controller that made the partition's leader;
2. if the outcome is unknown, send the same again after a pause. The port compares versions: it
   recognizes a change that was stored as ours, and stores one that was not;
3. if a refusal follows an unknown outcome, send it again, too: the first request may still arrive
   and be stored, although a later one was refused. Not if the refusal is final (below);
4. hand the outcome to the replica manager. It drops an answer that arrives too late.

A refusal by registration is final if the change names those of all members that it adds: one of
these shuts down, or was registered anew, and registrations only grow; or a member of the old ISR is
dead, and the controller drops it, under a new version. So a copy of the request that is late, since
its answer was lost, is refused, too, and the change is forgotten. Kept, it would be asked for ever
if the member returned as another life, and hold back the high watermark if it did not.

With an engine whose leaders store the ISR themselves, changes are collected in `IsrNotifications`
and announced to the controller from time to time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.clock import Clock
from odradek.errors import OdradekError
from odradek.metadata.ports import (
    AlterIsrOutcome,
    ControllerPort,
    IsrAltered,
    IsrNotAsked,
    IsrOutcomeUnknown,
    IsrRefused,
)
from odradek.model import TopicPartition
from odradek.replication.isr import IsrChange
from odradek.replication.isr_notifications import CHECK_INTERVAL_MS, IsrNotifications
from odradek.replication.partition import Partition
from odradek.replication.replica_manager import ReplicaManager
from odradek.tasks import Tasks

__all__ = ["RETRY_PAUSE_S", "IsrUpdates"]

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
# That the periodic check looks at in one turn of the loop: a few microseconds each.
_PARTITIONS_PER_TURN = 200

Announce = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class IsrUpdates:
    """Carries out the ISR changes that the partitions of a broker propose.

    Args:
        replicas: The partitions; from now on it hands every proposal to this.
        port: The cluster.
        clock: For the age of changes to be announced.
        tasks: Runs the sends and the pauses between them.
        announce: Announces partitions whose ISR was stored to the controller; None if the
            controller stores them and needs no announcement.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        port: ControllerPort,
        *,
        clock: Clock,
        tasks: Tasks,
        announce: Announce | None = None,
    ) -> None:
        self._replicas = replicas
        self._port = port
        self._clock = clock
        self._tasks = tasks
        self._announce = announce
        self.notifications = IsrNotifications(clock.monotonic_ms())
        replicas.use_isr_updates(self.submit)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Begins to store a change that a partition proposed."""
        self._tasks.spawn(self._store(partition, change))

    async def _store(self, partition: Partition, change: IsrChange) -> None:
        is_doubtful = False
        while partition.isr_change is change:
            outcome = await self._alter(partition.tp, change)
            if is_doubtful and isinstance(outcome, IsrRefused):
                is_final = outcome.is_by_registration and change.names_added
                outcome = outcome if is_final else IsrOutcomeUnknown()
            is_new = self._replicas.settle_isr(partition, change, outcome)
            if isinstance(outcome, IsrAltered) and is_new and self._announce is not None:
                self.notifications.record(partition.tp, self._clock.monotonic_ms())
            if isinstance(outcome, IsrOutcomeUnknown):
                is_doubtful = True
            elif not isinstance(outcome, IsrNotAsked):
                return
            await self._tasks.sleep(RETRY_PAUSE_S)

    async def _alter(self, tp: TopicPartition, change: IsrChange) -> AlterIsrOutcome:
        try:
            return await self._port.alter_isr(
                tp,
                change.state,
                controller_epoch=change.controller_epoch,
                broker_epochs=change.broker_epochs,
            )
        except OdradekError as error:
            # Treating it as failed could acknowledge records that a member of the real ISR lacks.
            logger.warning("%s: whether ISR %s was stored is unknown: %s", tp, change.isr, error)
            return IsrOutcomeUnknown()

    # Periodic work

    async def shrink(self) -> None:
        """Proposes the removal of members that stopped keeping up; some partitions per turn."""
        for number, proposed in enumerate(self._replicas.propose_isr_shrinks(), 1):
            if proposed is not None:
                self.submit(*proposed)
            if number % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def announce_due(self) -> None:
        """Announces the stored changes to the controller, if it is time."""
        due = self.notifications.due(self._clock.monotonic_ms())
        if not due or self._announce is None:
            return
        try:
            await self._announce(due)
        except OdradekError as error:
            logger.warning("%d ISR changes are announced later: %s", len(due), error)
            return
        self.notifications.mark_propagated(due, self._clock.monotonic_ms())

    async def run_expiration(self) -> None:
        """Proposes shrinks forever, twice as often as a member may lag."""
        while True:
            await self._tasks.sleep(self._replicas.config.max_lag_ms / 2000)
            await self.shrink()

    async def run_announcements(self) -> None:
        """Announces due changes forever."""
        while True:
            await self._tasks.sleep(CHECK_INTERVAL_MS / 1000)
            await self.announce_due()
