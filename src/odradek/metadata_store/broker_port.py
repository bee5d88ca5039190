"""`ControllerPort` over a coordination store: the writes of a broker itself.

These writes are guarded by the version of their own node, not by the controller's fence: any broker
makes them, active controller or not. ISR changes and producer ids go to the active controller
instead if the brokers' protocol has requests for them (08:K-3).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from odradek.clock import Clock
from odradek.coordination.nodes import (
    BrokerNode,
    FeatureNode,
    PartitionStateNode,
    ProducerIdBlock,
    encode_log_dir_event,
    encode_partitions,
)
from odradek.coordination.paths import (
    FEATURE,
    ISR_CHANGE_PREFIX,
    LOG_DIR_EVENT_PREFIX,
    PRODUCER_ID_BLOCK,
    broker_path,
    partition_state_path,
)
from odradek.coordination.store import (
    ANY_VERSION,
    CoordinationStore,
    SessionState,
    WatchEvent,
)
from odradek.errors import (
    ApiError,
    BadVersion,
    ConnectionLost,
    ErrorCode,
    NodeExists,
    NoNode,
    OdradekError,
    SessionExpired,
    StoreError,
    without_traceback,
)
from odradek.metadata.changes import AclAdded, AclRemoved, ConfigEdit, FeatureSet, QuotaSet
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import (
    NO_EPOCHS,
    AlterIsrOutcome,
    AskIsr,
    AskProducerIds,
    ControlledShutdownCall,
    IsrAltered,
    IsrConflict,
    IsrNotAsked,
    IsrOutcomeUnknown,
    ProducerIds,
)
from odradek.metadata_store.entity_writes import (
    EntityEdit,
    as_api_error,
    edit_of,
    write_entities,
)
from odradek.metadata_store.writes import read_partition
from odradek.model import LeaderAndIsr, TopicPartition
from odradek.protocol.inter_broker import NEWEST_NODE_FORMS, NodeForms

__all__ = ["PRODUCER_ID_BLOCK_SIZE", "StoreControllerPort"]

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = (1 << 63) - 1
# ZooKeeper's default session timeout and a second: a node of this broker's former process may stay
# that long.
REGISTRATION_TIMEOUT_S = 19.0
MAX_ATTEMPTS = 100  # Of a compare-and-set that other brokers win: more than there are brokers.


class StoreControllerPort:
    """The requests of one broker to its cluster, in store mode.

    Args:
        store: This broker's session.
        broker_id: This broker.
        clock: For the timestamp of its registration.
        controlled_shutdown: Asks the active controller (broker id, broker epoch).
        registration_timeout_s: How long the node of this broker's former process may stay.
        nodes: The forms of nodes to write.
    """

    def __init__(
        self,
        store: CoordinationStore,
        broker_id: int,
        *,
        clock: Clock,
        controlled_shutdown: ControlledShutdownCall,
        registration_timeout_s: float = REGISTRATION_TIMEOUT_S,
        nodes: NodeForms = NEWEST_NODE_FORMS,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._controlled_shutdown = controlled_shutdown
        self._registration_timeout_s = registration_timeout_s
        self._nodes = nodes
        self._broker: LiveBroker | None = None
        self._broker_epoch = -1
        self._altering = asyncio.Lock()
        self._ask_isr: AskIsr | None = None
        self._ask_producer_ids: AskProducerIds | None = None
        # Called when the session of this broker is over: it is no longer registered.
        self.on_session_lost: Callable[[], None] = lambda: None
        store.session.on_state(self._on_state)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.on_session_lost()

    @property
    def broker_epoch(self) -> int:
        """The epoch of the last registration; -1 before the first."""
        return self._broker_epoch

    def use_controller(
        self, *, ask_isr: AskIsr | None, ask_producer_ids: AskProducerIds | None
    ) -> None:
        """Has the controller asked, instead of writing the store; None: the store is written."""
        self._ask_isr = ask_isr
        self._ask_producer_ids = ask_producer_ids

    # Registration

    async def register(self, broker: LiveBroker) -> int:
        """Announces the broker; returns its epoch.

        Raises:
            NodeExists: Another process is registered under this id and stays so.
        """
        assert broker.id == self._broker_id
        self._broker = broker
        path, data = broker_path(self._broker_id), self._node_of(broker)
        try:
            async with asyncio.timeout(self._registration_timeout_s):
                while (epoch := await self._try_register(path, data)) is None:
                    await self._wait_for_end(path)
        except TimeoutError:
            raise NodeExists(
                f"{path}: another broker with id {self._broker_id} stays registered; give each"
                " broker an id of its own",
                path=path,
            ) from None
        self._broker_epoch = epoch
        return epoch

    async def register_again(self) -> int:
        """Announces the broker after its session was replaced; its epoch grows.

        Does nothing before the first registration.
        """
        return -1 if self._broker is None else await self.register(self._broker)

    async def update_registration(self, broker: LiveBroker) -> None:
        """Announces other endpoints of a broker that is registered; its epoch stays."""
        assert broker.id == self._broker_id
        self._broker = broker
        path, data = broker_path(self._broker_id), self._node_of(broker)
        try:
            await self._store.set(path, data, ANY_VERSION)
        except StoreError as error:
            # Without a session there is no node: the next registration has the new endpoints.
            logger.warning("%s: not written anew: %s", path, error)

    def _node_of(self, broker: LiveBroker) -> bytes:
        node = BrokerNode(
            endpoints=broker.endpoints, timestamp_ms=self._clock.now_ms(), rack=broker.rack
        )
        return node.encode(self._nodes.registration)

    async def _try_register(self, path: str, data: bytes) -> int | None:
        """The epoch, or None while the node of another session exists."""
        try:
            return (await self._store.create(path, data, ephemeral=True)).stat.czxid
        except (NodeExists, ConnectionLost):
            stat = await self._store.exists(path)
        if stat is not None and stat.ephemeral_owner == self._store.session.id:
            return stat.czxid  # Our node: the answer was lost, or it was registered before.
        return None

    async def _wait_for_end(self, path: str) -> None:
        changed = asyncio.Event()

        def fired(_event: WatchEvent) -> None:
            changed.set()

        if await self._store.exists(path, fired) is not None:
            logger.info("%s belongs to another session, waiting for its end", path)
            await changed.wait()

    # Partitions

    async def alter_isr(
        self,
        tp: TopicPartition,
        state: LeaderAndIsr,
        *,
        controller_epoch: int,
        broker_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> AlterIsrOutcome:
        """Stores a new ISR if the partition still has `state.partition_version`.

        The controller is asked if brokers speak a protocol that has the request; otherwise this
        broker writes the partition's node.
        """
        if self._ask_isr is not None:
            return await self._ask_isr(tp, state, broker_epochs)
        return await self._write_isr(tp, state, controller_epoch)

    async def _write_isr(
        self, tp: TopicPartition, state: LeaderAndIsr, controller_epoch: int
    ) -> AlterIsrOutcome:
        path = partition_state_path(tp)
        data = PartitionStateNode(state, controller_epoch).encode()
        try:
            stat = await self._store.set(path, data, state.partition_version)
        except (BadVersion, NoNode):
            return await self._compare_isr(tp, state)
        except ConnectionLost:
            return await self._find_out_isr(tp, state)
        except SessionExpired:
            return IsrOutcomeUnknown()
        return IsrAltered(stat.version)

    async def _find_out_isr(self, tp: TopicPartition, state: LeaderAndIsr) -> AlterIsrOutcome:
        """Finds out after a broken link what is stored."""
        try:
            await self._store.sync()
            return await self._compare_isr(tp, state)
        except (ConnectionLost, SessionExpired):
            return IsrOutcomeUnknown()

    async def _compare_isr(self, tp: TopicPartition, state: LeaderAndIsr) -> AlterIsrOutcome:
        """Compares the stored state with ours; if they are equal, our write succeeded."""
        record = await read_partition(self._store, tp)
        if record is None:
            return IsrConflict()
        found = record.leader_and_isr
        wanted = (state.leader, state.leader_epoch, state.isr)
        if (found.leader, found.leader_epoch, found.isr) == wanted:
            return IsrAltered(found.partition_version)
        if found.partition_version == state.partition_version:
            return IsrNotAsked()
        return IsrConflict()

    async def notify_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Tells the controller which partitions' ISR was changed."""
        changed = sorted(set(partitions))
        if changed:
            await self._store.create(ISR_CHANGE_PREFIX, encode_partitions(changed), sequential=True)

    async def report_log_dir_failure(self) -> None:
        """Tells the controller that replicas of this broker went offline."""
        await self._store.create(
            LOG_DIR_EVENT_PREFIX, encode_log_dir_event(self._broker_id), sequential=True
        )

    async def controlled_shutdown(self, broker_epoch: int) -> frozenset[TopicPartition]:
        """Asks to move leadership away; returns the partitions this broker still leads."""
        return await self._controlled_shutdown(self._broker_id, broker_epoch)

    # Producer ids

    async def allocate_producer_ids(self) -> ProducerIds:
        """Takes the next block of producer ids for this broker, from the controller or the store.

        Raises:
            ApiError: The controller cannot be reached, all ids are used up, or the block node
                cannot be written.
        """
        if self._ask_producer_ids is not None:
            return await self._ask_producer_ids()
        return await self.take_producer_ids(self._broker_id)

    async def take_producer_ids(self, broker_id: int) -> ProducerIds:
        """Takes the next block for a broker from the store; one whose answer is lost is never used.

        Raises:
            ApiError: All ids are used up, or the block node cannot be written.
        """
        for _ in range(MAX_ATTEMPTS):
            data, stat = await self._store.get(PRODUCER_ID_BLOCK)
            last = ProducerIdBlock.parse(data)
            first_id = 0 if last is None else last.last_id + 1
            if first_id > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
            block = ProducerIdBlock(
                broker_id=broker_id,
                first_id=first_id,
                last_id=first_id + PRODUCER_ID_BLOCK_SIZE - 1,
            )
            try:
                await self._store.set(PRODUCER_ID_BLOCK, block.encode(), stat.version)
            except (BadVersion, ConnectionLost):
                continue  # Another broker was faster, or a block is skipped: both are harmless.
            return ProducerIds(block.first_id, block.last_id)
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"no producer ids after {MAX_ATTEMPTS} attempts"
        )

    # Configuration

    async def alter_configs(self, edits: Sequence[ConfigEdit]) -> list[ApiError | None]:
        """Edits stored overrides in one write, and notifies all brokers."""
        return await self._alter(edits)

    async def alter_quotas(self, changes: Sequence[QuotaSet]) -> list[ApiError | None]:
        """Writes client quotas in one write and notifies all brokers."""
        return await self._alter(changes)

    async def alter_features(
        self, changes: Sequence[FeatureSet], *, is_checked_only: bool = False
    ) -> list[ApiError | None]:
        """Finalizes features in one write; a lower level needs permission in its change."""
        try:
            for _ in range(MAX_ATTEMPTS):
                data, stat = await self._store.get(FEATURE)
                node = FeatureNode.parse(data)
                levels, errors = _next_levels(node, changes)
                if is_checked_only or levels == dict(node.levels):
                    return errors
                try:
                    next_node = FeatureNode(levels, is_enabled=True, version=node.version)
                    await self._store.set(FEATURE, next_node.encode(), stat.version)
                except (BadVersion, ConnectionLost):
                    continue  # Another administrator came between, or it is not known.
                return errors
        except StoreError as error:
            failure = ApiError(ErrorCode.FEATURE_UPDATE_FAILED, str(error))
            return [failure for _ in changes]
        failure = ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED, f"not written in {MAX_ATTEMPTS} attempts"
        )
        return [failure for _ in changes]

    async def alter_acls(self, changes: Sequence[AclAdded | AclRemoved]) -> list[ErrorCode]:
        """Refuses access rules: without an authorizer they would have no effect."""
        return [ErrorCode.SECURITY_DISABLED for _ in changes]

    async def _alter(self, changes: Sequence[ConfigEdit | QuotaSet]) -> list[ApiError | None]:
        """Writes changes; returns the error of each, or None."""
        outcomes: list[ApiError | None] = [None] * len(changes)
        edits: dict[int, EntityEdit] = {}
        for index, change in enumerate(changes):
            try:
                edits[index] = edit_of(change)
            except ApiError as error:
                outcomes[index] = without_traceback(error)
        # One at a time: concurrent requests of this broker would only conflict with each other.
        async with self._altering:
            written = await self._write(list(edits.values()))
        for index, failure in zip(edits, written, strict=True):
            outcomes[index] = None if failure is None else as_api_error(failure)
        return outcomes

    async def _write(self, edits: Sequence[EntityEdit]) -> list[OdradekError | None]:
        """Writes all at once; if the store refuses that, one by one, to find the one it refuses."""
        try:
            return await write_entities(self._store, edits)
        except StoreError as error:
            if len(edits) > 1 and not isinstance(error, (SessionExpired, ConnectionLost)):
                return [(await self._write([edit]))[0] for edit in edits]
            # The entities only: values may be secrets.
            names = ", ".join(edit.entity for edit in edits)
            logger.warning("%s could not be stored: %s", names, error)
            return [without_traceback(error)] * len(edits)


def _next_levels(
    node: FeatureNode, changes: Sequence[FeatureSet]
) -> tuple[dict[str, int], list[ApiError | None]]:
    """The levels after the changes that are possible, and the error of each other one."""
    levels = dict(node.levels)
    errors: list[ApiError | None] = []
    for change in changes:
        present = levels.get(change.feature, 0)
        error = None
        if not node.is_enabled:
            error = ApiError(
                ErrorCode.FEATURE_UPDATE_FAILED,
                "features do not count under this inter.broker.protocol.version",
            )
        elif change.level < present and not change.may_lower:
            error = ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{change.feature} is at level {present}: a downgrade to {change.level} must be"
                " asked for as such",
            )
        elif change.level:
            levels[change.feature] = change.level
        else:
            levels.pop(change.feature, None)
        errors.append(error)
    return levels, errors
