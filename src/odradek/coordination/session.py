"""A session with the embedded engine: its states, its listeners, and its calls.

::

    connect → CONNECTED ── close, expire ──► ending ── applied ──► LOST ── replaced ──► CONNECTED
                                                                    └── closed by its owner: stays

Between the call that ends a session and its durable transaction the state is still CONNECTED, but
calls are refused: a later write must not make an ephemeral node that would never be deleted.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from odradek.coordination.store import (
    Create,
    Created,
    Delete,
    Operation,
    OperationResult,
    SessionState,
    Set,
    Stat,
    Watch,
)
from odradek.coordination.tree import TreeNode, check_path
from odradek.coordination.watches import WatchTable
from odradek.errors import NoNode, SessionExpired, StoreError

__all__ = ["EmbeddedSession", "EmbeddedStore"]

logger = logging.getLogger(__name__)


class EmbeddedSession:
    """`odradek.coordination.store.Session`; the engine calls the methods `connect` to `replace`."""

    __slots__ = (
        "_after",
        "_before",
        "_end",
        "_id",
        "_is_ending",
        "_on_state",
        "_state",
        "is_closed",
    )

    def __init__(self, end: "Callable[[EmbeddedSession], Awaitable[None]]") -> None:
        self._end = end
        self._id = 0
        self._state = SessionState.LOST
        self._is_ending = False
        # Whether the owner closed it, so that the engine does not replace it.
        self.is_closed = False
        self._on_state: list[Callable[[SessionState], None]] = []
        self._before: list[Callable[[], Awaitable[None]]] = []
        self._after: list[Callable[[], None]] = []

    @property
    def id(self) -> int:
        return self._id

    @property
    def state(self) -> SessionState:
        return self._state

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._on_state.append(callback)

    def on_replacement(
        self, *, before: Callable[[], Awaitable[None]], after: Callable[[], None]
    ) -> None:
        self._before.append(before)
        self._after.append(after)

    async def close(self) -> None:
        """Ends the session for good and waits until its ephemerals are gone."""
        self.is_closed = True
        await self._end_now()

    async def expire(self) -> None:
        """Ends the session as a failure of its broker would; the engine opens a replacement."""
        await self._end_now()

    async def _end_now(self) -> None:
        if self._state is SessionState.LOST or self._is_ending:
            return
        self._is_ending = True
        with contextlib.suppress(SessionExpired):  # The engine has ended: so has the session.
            await self._end(self)

    def require_connected(self) -> None:
        """Checks that the session may be used.

        Raises:
            SessionExpired: The session has ended or is about to.
        """
        if self._state is not SessionState.CONNECTED or self._is_ending:
            raise SessionExpired(f"session {self._id:#x} has ended")

    def connect(self, session_id: int) -> None:
        """Starts the session under `session_id`."""
        self._id = session_id
        self._is_ending = False
        self._set_state(SessionState.CONNECTED)

    def lose(self) -> None:
        """Ends the session."""
        self._set_state(SessionState.LOST)

    async def prepare_replacement(self) -> None:
        """Waits for the listeners that have to act before a new session starts."""
        for callback in self._before:
            try:
                await callback()
            except Exception:
                logger.exception("a listener failed before the replacement of a session")

    def replace(self, session_id: int) -> None:
        """Continues under a new id."""
        self.connect(session_id)
        for callback in self._after:
            try:
                callback()
            except Exception:
                logger.exception("a listener failed after the replacement of a session")

    def _set_state(self, state: SessionState) -> None:
        self._state = state
        for callback in self._on_state:
            try:
                callback(state)
            except Exception:
                logger.exception("a listener failed on session state %s", state.value)


class _Engine(Protocol):
    """The part of the engine that a store uses."""

    @property
    def watches(self) -> WatchTable: ...

    def read(self, path: str) -> TreeNode | None: ...

    def child_names(self, path: str) -> list[str]: ...

    async def commit(
        self, session: EmbeddedSession, operations: Sequence[Operation] | None, fence: int | None
    ) -> list[OperationResult]: ...


class EmbeddedStore:
    """The calls of one session: a `CoordinationStore`."""

    __slots__ = ("_engine", "_session")

    def __init__(self, engine: _Engine, session: EmbeddedSession) -> None:
        self._engine = engine
        self._session = session

    @property
    def session(self) -> EmbeddedSession:
        return self._session

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        node = self._node(path)
        if watch is not None:
            self._engine.watches.add_data(path, self._session, watch)
        return node.data, node.stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._session.require_connected()
        check_path(path)
        if watch is not None:
            self._engine.watches.add_data(path, self._session, watch)
        node = self._engine.read(path)
        return None if node is None else node.stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        node = self._node(path)
        if watch is not None:
            self._engine.watches.add_child(path, self._session, watch)
        return self._engine.child_names(path), node.stat

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        fence: int | None = None,
    ) -> Created:
        result = await self._single(Create(path, data, ephemeral, sequential), fence)
        assert isinstance(result, Created)
        return result

    async def set(
        self, path: str, data: bytes | None, version: int, *, fence: int | None = None
    ) -> Stat:
        result = await self._single(Set(path, data, version), fence)
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int, *, fence: int | None = None) -> None:
        await self._single(Delete(path, version), fence)

    async def multi(
        self, operations: Sequence[Operation], *, fence: int | None = None
    ) -> list[OperationResult]:
        self._session.require_connected()
        return await self._engine.commit(self._session, tuple(operations), fence)

    async def sync(self) -> None:
        self._session.require_connected()

    async def _single(self, operation: Operation, fence: int | None) -> OperationResult:
        try:
            return (await self.multi((operation,), fence=fence))[0]
        except StoreError as error:
            error.operation_index = None
            raise

    def _node(self, path: str) -> TreeNode:
        self._session.require_connected()
        check_path(path)
        node = self._engine.read(path)
        if node is None:
            raise NoNode(f"no node {path}", path=path)
        return node
