"""`MetadataPersistence` over a coordination store; the embedded engine and ZooKeeper share it.

The ephemeral node /controller names the controller; /controller_epoch counts the elections, and its
data version fences every write of a controller.

The election, in which a broker takes part for as long as it iterates `events`:

1. Read /controller, leaving a watch. It names another broker: wait for the watch.
2. It does not exist: one transaction {create /controller; set /controller_epoch to old + 1
   expecting the version read}. If it fails, another broker was faster, unless the node belongs to
   our session: then we won and only the answer was lost.
3. The watch fires: read again. If we led and the node is no longer ours: LeadershipLost. If it does
   not exist: step 2. A node whose data names another broker deposes us, but no election follows
   until it is deleted.
4. Another program wrote to one of the two nodes: ours cannot be read, or the fence refuses our
   writes although the node is ours. It would name us for as long as we live, and no controller
   would do any work. So we delete it: LeadershipLost, and an election follows.

A lost session deposes us before anything else happens: its replacement waits until the iterator of
`events` has processed LeadershipLost. Then the broker registers again, and step 1 follows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import field
from typing import TypeAlias

from odradek.clock import Clock
from odradek.coordination.nodes import (
    ControllerNode,
    encode_controller_epoch,
    parse_controller_epoch,
)
from odradek.coordination.paths import CONTROLLER, CONTROLLER_EPOCH
from odradek.coordination.store import (
    ANY_VERSION,
    CoordinationStore,
    Create,
    Created,
    Operation,
    Set,
    Stat,
    WatchEvent,
)
from odradek.errors import (
    BadNodeData,
    BadVersion,
    ConnectionLost,
    ControllerMoved,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreError,
    StoreUnreachable,
)
from odradek.lazy_dataclass import dataclass
from odradek.metadata.changes import Change
from odradek.metadata.ports import (
    CommitOutcome,
    ControllerState,
    Fence,
    Hint,
    LeadershipLost,
    LeadershipWon,
    PersistenceEvent,
)
from odradek.metadata_store.bootstrap import write_features
from odradek.metadata_store.patience import PatientStore
from odradek.metadata_store.reads import StoreReader
from odradek.metadata_store.writes import StoreWriter
from odradek.model import NO_CONTROLLER
from odradek.protocol.inter_broker import NEWEST_NODE_FORMS, NodeForms

__all__ = ["ELECTION_PAUSE_S", "StorePersistence"]

logger = logging.getLogger(__name__)

# Pause after giving leadership up, or after an election that could not be held: other brokers can
# win first, and a permanent failure does not spin.
ELECTION_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class _ControllerNodeChanged:
    """The watch on /controller has fired."""


@dataclass(frozen=True, slots=True)
class _Fenced:
    """A write of ours was refused as one of a former controller."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class _SessionLost:
    handled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class _SessionReplaced:
    pass


_Item: TypeAlias = Hint | _ControllerNodeChanged | _Fenced | _SessionLost | _SessionReplaced


class StorePersistence:
    """Durable metadata in a coordination store.

    Args:
        store: This broker's session.
        broker_id: This broker.
        clock: For the timestamp in /controller.
        reregister: Registers the broker again after its session was replaced.
        nodes: The forms of nodes to write.
        sleep: Waits before another election after a failure.
    """

    raises_leader_epoch_on_isr_change = True

    def __init__(
        self,
        store: CoordinationStore,
        broker_id: int,
        *,
        clock: Clock,
        reregister: Callable[[], Awaitable[object]] | None = None,
        nodes: NodeForms = NEWEST_NODE_FORMS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._reregister = reregister
        self._nodes = nodes
        self._sleep = sleep
        self._patient = PatientStore(store, sleep=sleep)
        self._writer = StoreWriter(self._patient)
        self._reader = StoreReader(self._patient, self._put)
        self._queue: deque[_Item] = deque()
        self._is_filled = asyncio.Event()
        self._leadership: LeadershipWon | None = None
        self._node_czxid = 0  # Of the /controller node by which we lead.
        self._is_iterated = False
        self._has_resigned = False
        store.session.on_replacement(before=self._before_replacement, after=self._after_replacement)

    # Leadership and hints

    async def events(self) -> AsyncIterator[PersistenceEvent]:
        self._is_iterated = True
        try:
            won = await self._campaign()
            if won is not None:
                yield won
            while True:
                while not self._queue:
                    self._is_filled.clear()
                    await self._is_filled.wait()
                item = self._queue.popleft()
                match item:
                    case Hint():
                        yield item
                    case _SessionLost(handled=handled):
                        self._leadership = None
                        self._reader.forget()
                        yield LeadershipLost()
                        handled.set()
                    case _SessionReplaced():
                        await self._register_again()
                        won = await self._campaign()
                        if won is not None:
                            yield won
                    case _Fenced(fence=fence):
                        if await self._is_stuck(fence):
                            yield LeadershipLost()
                    case _ControllerNodeChanged():
                        if await self._is_deposed():
                            yield LeadershipLost()
                        won = await self._campaign()
                        if won is not None:
                            yield won
        finally:
            self._is_iterated = False
            for item in self._queue:
                if isinstance(item, _SessionLost):
                    item.handled.set()
            self._queue.clear()

    async def _is_deposed(self) -> bool:
        """Whether we led until now and the node is no longer ours."""
        if self._leadership is None:
            return False
        try:
            controller_id, stat = await self._read_controller()
        except (SessionExpired, ConnectionLost):
            return False  # The loss of the session, or the next watch, decides.
        is_ours = stat is not None and stat.czxid == self._node_czxid
        if is_ours and controller_id == self._broker_id:
            return False
        if is_ours and controller_id == NO_CONTROLLER:
            await self._delete_own_node(f"{CONTROLLER} cannot be read any more")
        self._leadership = None
        return True

    async def _is_stuck(self, fence: Fence) -> bool:
        """Whether we led behind this fence, and no other controller replaced us: so another may."""
        if self._leadership is None or self._leadership.fence != fence:
            return False
        try:
            _, stat = await self._read_controller(self._patient)
        except StoreError:
            return False  # The loss of the session decides.
        if stat is None or stat.czxid != self._node_czxid:
            return False  # The watch decides.
        await self._delete_own_node(f"{CONTROLLER_EPOCH} was changed by another program")
        self._leadership = None
        return True

    async def _delete_own_node(self, why: str) -> None:
        logger.warning("%s: this broker gives leadership up, an election follows", why)
        try:
            await self._patient.delete(CONTROLLER, ANY_VERSION)
        except StoreError as error:
            logger.warning("%s could not be deleted: %s", CONTROLLER, error)

    async def _campaign(self) -> LeadershipWon | None:
        """Tries to win while there is no controller; None: another broker leads, or no session."""
        while True:
            try:
                _, stat = await self._read_controller()
                if stat is not None:
                    return None
                if self._has_resigned:
                    self._has_resigned = False
                    await self._sleep(ELECTION_PAUSE_S)
                    continue
                won = await self._elect()
            except SessionExpired:
                return None  # The replacement of the session starts another campaign.
            except StoreError as error:
                logger.warning("no election could be held, will retry: %s", error)
                await self._sleep(ELECTION_PAUSE_S)
                continue
            if won is not None:
                self._leadership = won
                return won

    async def _read_controller(
        self, store: CoordinationStore | None = None
    ) -> tuple[int, Stat | None]:
        """The id of the controller, and the node's stat; NO_CONTROLLER if it cannot be read."""
        store = store or self._store
        stat = await store.exists(CONTROLLER, self._on_controller_node)
        if stat is None:
            return NO_CONTROLLER, None
        try:
            data, stat = await store.get(CONTROLLER)
            return ControllerNode.parse(data).broker_id, stat
        except NoNode:
            return NO_CONTROLLER, None
        except BadNodeData as error:
            logger.warning("%s: %s", CONTROLLER, error)
            return NO_CONTROLLER, stat

    async def _elect(self) -> LeadershipWon | None:
        """Tries to become controller; None: another broker is, or was a moment ago."""
        epoch, version = await self._read_epoch()
        node = ControllerNode(self._broker_id, self._clock.now_ms())
        operations: list[Operation] = [
            Create(CONTROLLER, node.encode(), ephemeral=True),
            Set(CONTROLLER_EPOCH, encode_controller_epoch(epoch + 1), version),
        ]
        try:
            made, raised = await self._store.multi(operations)
        except (NodeExists, BadVersion, NoNode, ConnectionLost):
            await self._store.sync()
            return await self._find_out(epoch + 1)
        assert isinstance(made, Created)
        assert isinstance(raised, Stat)
        self._node_czxid = made.stat.czxid
        return LeadershipWon(epoch + 1, Fence(raised.version))

    async def _find_out(self, epoch: int) -> LeadershipWon | None:
        """Finds out after a refusal or a broken link whether the node exists and is ours."""
        controller_id, stat = await self._read_controller()
        if stat is None or stat.ephemeral_owner != self._store.session.id:
            logger.debug("broker %d was elected instead of us", controller_id)
            return None
        current_epoch, version = await self._read_epoch()
        if controller_id != self._broker_id or current_epoch != epoch:
            # Ours, but unusable: after its deletion all brokers start another election.
            await self._store.delete(CONTROLLER, ANY_VERSION)
            return None
        self._node_czxid = stat.czxid
        return LeadershipWon(epoch, Fence(version))

    async def _read_epoch(self) -> tuple[int, int]:
        """The controller epoch and its version; a missing node is created with epoch 0."""
        while True:
            try:
                data, stat = await self._store.get(CONTROLLER_EPOCH)
                return parse_controller_epoch(data), stat.version
            except NoNode:
                try:
                    await self._store.create(CONTROLLER_EPOCH, encode_controller_epoch(0))
                except (NodeExists, ConnectionLost):
                    continue

    async def resign(self, fence: Fence) -> None:
        self._has_resigned = True
        try:
            controller_id, _ = await self._read_controller(self._patient)
            if controller_id == self._broker_id:
                await self._patient.delete(CONTROLLER, ANY_VERSION, fence=fence)
            else:
                logger.warning("not resigning: broker %d is the controller", controller_id)
        except (NoNode, ControllerMoved, SessionExpired, ConnectionLost) as error:
            logger.warning("leadership could not be given up: %s", error)

    # Reading and writing

    async def load(self, hint: Hint | None = None) -> ControllerState:
        leadership = self._leadership
        if leadership is None:
            raise ControllerMoved("only the controller loads its state")
        try:
            if hint is None:
                await write_features(self._patient, leadership.fence, self._nodes)
                return await self._reader.load_all(leadership.fence)
            return await self._reader.load(hint, leadership.fence)
        except SessionExpired as error:
            raise ControllerMoved(f"the session is over: {error}") from error
        except ControllerMoved as error:
            self._note_fenced(leadership.fence, error)
            raise

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        try:
            return await self._writer.commit(changes, fence)
        except ControllerMoved as error:
            self._note_fenced(fence, error)
            raise

    def _note_fenced(self, fence: Fence, error: ControllerMoved) -> None:
        if self._is_iterated and not isinstance(error, StoreUnreachable):
            self._put(_Fenced(fence))

    # What the session and its watches tell

    def _on_controller_node(self, _event: WatchEvent) -> None:
        self._put(_ControllerNodeChanged())

    def _put(self, item: _Item) -> None:
        self._queue.append(item)
        self._is_filled.set()

    async def _before_replacement(self) -> None:
        if self._is_iterated:
            lost = _SessionLost()
            # Before all other items: hints of a session that is over are void.
            self._queue.clear()
            self._put(lost)
            await lost.handled.wait()

    def _after_replacement(self) -> None:
        if self._is_iterated:
            self._put(_SessionReplaced())

    async def _register_again(self) -> None:
        if self._reregister is None:
            return
        while True:
            try:
                await self._reregister()
            except SessionExpired:
                return  # The next replacement tries again.
            except StoreError as error:
                logger.warning("the broker could not be registered again, will retry: %s", error)
                await self._sleep(ELECTION_PAUSE_S)
                continue
            return
