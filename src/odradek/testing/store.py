"""A coordination store with a faulty link: behaves as ZooKeeper may, on the embedded engine.

The embedded engine never loses a link, never serves an old read and never suspends a session. Code
that was only tested on it would break on ZooKeeper, so `FaultyStore` wraps a session and adds all
three on request:

* `cut_next_write`: the next write ends in `ConnectionLost`, applied or not as the test chooses.
* `suspend` and `resume`: the session is SUSPENDED; writes end in `ConnectionLost` and are not
  applied, reads wait for the link (engines repeat them), watches fire after it is back.
* `hold_reads`: reads return the tree of that moment and watches do not fire, until `sync`,
  `release_reads` or a write of this session brings it up to date.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from odradek.coordination.store import (
    CoordinationStore,
    Created,
    Operation,
    OperationResult,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
    WatchKind,
)
from odradek.errors import ConnectionLost, NoNode

__all__ = ["FaultySession", "FaultyStore"]

_T = TypeVar("_T")


class _HeldNode(NamedTuple):
    data: bytes | None
    stat: Stat
    children: list[str]


class FaultySession:
    """The wrapped session, which a test can also suspend."""

    def __init__(self, store: CoordinationStore) -> None:
        self._session = store.session
        self._is_suspended = False
        self._callbacks: list[Callable[[SessionState], None]] = []

    @property
    def id(self) -> int:
        return self._session.id

    @property
    def state(self) -> SessionState:
        is_connected = self._session.state is SessionState.CONNECTED
        return (
            SessionState.SUSPENDED if self._is_suspended and is_connected else self._session.state
        )

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)
        self._session.on_state(callback)

    def on_replacement(
        self, *, before: Callable[[], Awaitable[None]], after: Callable[[], None]
    ) -> None:
        self._session.on_replacement(before=before, after=after)

    async def close(self) -> None:
        await self._session.close()

    def set_suspended(self, is_suspended: bool) -> None:
        """Changes the state and calls the listeners."""
        if is_suspended != self._is_suspended:
            self._is_suspended = is_suspended
            for callback in self._callbacks:
                callback(self.state)


class FaultyStore:
    """A `CoordinationStore` around another one; see the module's docstring."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self._session = FaultySession(store)
        self._link = asyncio.Event()
        self._link.set()
        # Whether the next write, which loses its answer, is applied; None: no write loses it.
        self._cut: bool | None = None
        self._held: dict[str, _HeldNode] | None = None
        self._late_events: list[tuple[Watch, WatchEvent]] = []
        # (path, watch, whether on children) of watches set by a held read.
        self._late_watches: list[tuple[str, Watch, bool]] = []
        # One wrapper per watch, so that a watch set twice still fires once.
        self._gates: dict[Watch, Watch] = {}

    # Faults

    def cut_next_write(self, *, applied: bool) -> None:
        """Makes the next write lose its answer, and its effect unless `applied`."""
        self._cut = applied

    def suspend(self) -> None:
        """Breaks the link; the session lives on."""
        self._link.clear()
        self._session.set_suspended(True)

    def resume(self) -> None:
        """Restores the link; watches that fired meanwhile are called now."""
        self._session.set_suspended(False)
        self._link.set()
        self._tell_late_events()

    async def hold_reads(self) -> None:
        """Freezes the tree that this session reads."""
        held: dict[str, _HeldNode] = {}
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            data, stat = await self._store.get(path)
            names, _ = await self._store.children(path)
            held[path] = _HeldNode(data, stat, names)
            waiting += [f"{path.rstrip('/')}/{name}" for name in names]
        self._held = held

    async def release_reads(self) -> None:
        """Lets this session read the current tree, and calls watches that fired meanwhile."""
        held, self._held = self._held, None
        late, self._late_watches = self._late_watches, []
        self._tell_late_events()
        for path, watch, on_children in late:
            old = (held or {}).get(path)
            now = await self._store.exists(path, None if on_children else self._gate(watch))
            if now != (old.stat if old else None):
                watch(WatchEvent(_kind_of_change(old.stat if old else None, now), path))
            elif on_children:
                await self._store.children(path, self._gate(watch))

    # The store

    @property
    def session(self) -> FaultySession:
        return self._session

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        await self._link.wait()
        if self._held is None:
            return await self._store.get(path, self._gate(watch))
        node = self._held_node(path)
        self._arm_late(path, watch, on_children=False)
        return node.data, node.stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._link.wait()
        if self._held is None:
            return await self._store.exists(path, self._gate(watch))
        self._arm_late(path, watch, on_children=False)
        node = self._held.get(path)
        return node.stat if node else None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        await self._link.wait()
        if self._held is None:
            return await self._store.children(path, self._gate(watch))
        node = self._held_node(path)
        self._arm_late(path, watch, on_children=True)
        return list(node.children), node.stat

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        fence: int | None = None,
    ) -> Created:
        return await self._write(
            lambda: self._store.create(
                path, data, ephemeral=ephemeral, sequential=sequential, fence=fence
            )
        )

    async def set(
        self, path: str, data: bytes | None, version: int, *, fence: int | None = None
    ) -> Stat:
        return await self._write(lambda: self._store.set(path, data, version, fence=fence))

    async def delete(self, path: str, version: int, *, fence: int | None = None) -> None:
        await self._write(lambda: self._store.delete(path, version, fence=fence))

    async def multi(
        self, operations: Sequence[Operation], *, fence: int | None = None
    ) -> list[OperationResult]:
        return await self._write(lambda: self._store.multi(operations, fence=fence))

    async def sync(self) -> None:
        await self._link.wait()
        await self._store.sync()
        await self.release_reads()

    # Implementation of the faults

    async def _write(self, write: Callable[[], Awaitable[_T]]) -> _T:
        cut, self._cut = self._cut, None
        if cut is False or not self._link.is_set():
            raise ConnectionLost("the link broke before the request was sent")
        result = await write()
        if cut:
            raise ConnectionLost("the link broke before the answer came")
        await self.release_reads()
        return result

    def _held_node(self, path: str) -> _HeldNode:
        assert self._held is not None
        if path not in self._held:
            raise NoNode(f"no node {path}", path=path)
        return self._held[path]

    def _arm_late(self, path: str, watch: Watch | None, *, on_children: bool) -> None:
        if watch is not None:
            self._late_watches.append((path, watch, on_children))

    def _gate(self, watch: Watch | None) -> Watch | None:
        """A watch that is delayed while reads are held or the link is broken."""
        if watch is None:
            return None

        def gate(event: WatchEvent) -> None:
            if self._held is None and self._link.is_set():
                watch(event)
            else:
                self._late_events.append((watch, event))

        return self._gates.setdefault(watch, gate)

    def _tell_late_events(self) -> None:
        if self._held is None and self._link.is_set():
            events, self._late_events = self._late_events, []
            for watch, event in events:
                watch(event)


def _kind_of_change(old: Stat | None, now: Stat | None) -> WatchKind:
    if now is None:
        return WatchKind.DELETED
    if old is None or old.czxid != now.czxid:
        return WatchKind.CREATED
    return WatchKind.CHANGED if old.mzxid != now.mzxid else WatchKind.CHILDREN
