"""The coordination store as its users see it: a tree of versioned nodes, sessions and watches.

One `CoordinationStore` is one broker's session with an engine. Every engine guarantees these rules,
and callers may rely on no others:

a. Writes of all sessions are totally ordered by zxid; zxids only grow, also over restarts.
b. A session sees its own finished writes; writes of others may be seen late, but in order.
c. A watch fires once, after the change is visible to its session and before that session reads
   any later state. It fires for own writes, too. It does not say what changed: read again with a
   new watch, then compare.
d. Changes between the firing and the new read are seen by the read, not by events.
e. A `fence` adds a check of the version of `/controller_epoch` to the same transaction; when it
   fails, `ControllerMoved` is raised and nothing is changed.
f. `ConnectionLost` means the outcome is unknown. Reads and `sync` are repeated by the engine; after
   a create, set, delete or multi the caller reads back and compares.
g. There is no recursive delete: callers delete children first, and readers may see a partial tree.

The states of a session:

=========  ========================================================================
CONNECTED  The session exists.
SUSPENDED  The link is lost, the session may still exist: assume nothing.
LOST       The session is over; its ephemerals and watches are gone. The engine opens
           a replacement, unless the owner closed the session.
=========  ========================================================================

A replacement: state LOST → every `before` listener is awaited → new id, state CONNECTED →
every `after` listener is called. Watch, state and `after` callbacks are plain functions on the
event loop and only enqueue.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from odradek.lazy_dataclass import dataclass

__all__ = [
    "ANY_VERSION",
    "CONTROLLER_EPOCH_PATH",
    "MAX_DATA_BYTES",
    "Check",
    "CoordinationStore",
    "Create",
    "Created",
    "Delete",
    "Operation",
    "OperationResult",
    "Session",
    "SessionState",
    "Set",
    "Stat",
    "Watch",
    "WatchEvent",
    "WatchKind",
]

ANY_VERSION = -1  # In set, delete and check: do not compare; as a fence: do not check.
MAX_DATA_BYTES = 1_048_575  # ZooKeeper's limit on a packet (jute.maxbuffer) less one.
CONTROLLER_EPOCH_PATH = "/controller_epoch"


class Stat(NamedTuple):
    """The metadata of a node."""

    czxid: int  # Transaction that created it; a broker's epoch is that of its id node.
    mzxid: int  # Transaction that last wrote its data.
    version: int  # Writes of its data since creation, from 0.
    cversion: int  # Creations plus deletions of its children.
    ephemeral_owner: int  # Id of the session whose end deletes it; 0 = persistent.


class WatchKind(Enum):
    """The kind of change of the watched node."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"  # Its data was written.
    CHILDREN = "children"  # A child was created or deleted.


class WatchEvent(NamedTuple):
    """The event that a watch gets once."""

    kind: WatchKind
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a node; its parent must exist and be persistent."""

    path: str
    data: bytes | None = field(default=None, repr=False)  # May hold passwords.
    ephemeral: bool = False
    # Appends ten digits: a counter of the parent that never falls, so no name is used twice.
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces a node's data, if its version is `version`."""

    path: str
    data: bytes | None = field(repr=False)  # May hold passwords.
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a node without children, if its version is `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Succeeds if the node exists with `version`; changes nothing."""

    path: str
    version: int


Operation: TypeAlias = Create | Set | Delete | Check


class Created(NamedTuple):
    """A new node; `path` is the final one of a sequential node."""

    path: str
    stat: Stat


# Create gives Created, Set gives Stat, Delete and Check give None.
OperationResult: TypeAlias = Created | Stat | None


class SessionState(Enum):
    """The state of a session; see the module's table."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Session(Protocol):
    """The session behind a `CoordinationStore`; after a replacement the same object, a new id."""

    @property
    def id(self) -> int:
        """Owner of this session's ephemeral nodes; never 0."""
        ...

    @property
    def state(self) -> SessionState:
        """The last state announced to `on_state`."""
        ...

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Calls `callback` with every later change of state."""
        ...

    def on_replacement(
        self, *, before: Callable[[], Awaitable[None]], after: Callable[[], None]
    ) -> None:
        """Awaits `before` when a lost session is about to be replaced, and then calls `after`."""
        ...

    async def close(self) -> None:
        """Ends the session and its ephemerals, without a replacement; may be called twice."""
        ...


class CoordinationStore(Protocol):
    """One session's view of the store. Every call may raise `SessionExpired`, `ConnectionLost`."""

    @property
    def session(self) -> Session:
        """The session these calls belong to."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """Data and stat of a node; the watch fires when it is written or deleted.

        Raises:
            NoNode: There is no node; no watch is armed.
        """
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The stat, or None; the watch fires when the node is created, written or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """Sorted names and the parent's stat; the watch fires on child or parent changes.

        Raises:
            NoNode: There is no parent; no watch is armed.
        """
        ...

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        fence: int | None = None,
    ) -> Created:
        """Makes a node.

        Raises:
            NodeExists: The node exists.
            NoNode: Its parent does not exist.
            BadArguments: The path or the data is invalid, or the parent is ephemeral.
            ControllerMoved: The fence failed.
        """
        ...

    async def set(
        self, path: str, data: bytes | None, version: int, *, fence: int | None = None
    ) -> Stat:
        """Replaces a node's data.

        Raises:
            NoNode, BadVersion, BadArguments, ControllerMoved: Nothing is changed.
        """
        ...

    async def delete(self, path: str, version: int, *, fence: int | None = None) -> None:
        """Removes a node.

        Raises:
            NoNode, BadVersion, NotEmpty, ControllerMoved: Nothing is changed.
        """
        ...

    async def multi(
        self, operations: Sequence[Operation], *, fence: int | None = None
    ) -> list[OperationResult]:
        """Executes all operations or none, as one transaction with one zxid.

        Raises:
            StoreError: The error of the first operation that failed; `operation_index` names it.
        """
        ...

    async def sync(self) -> None:
        """Makes later reads of this session see every write finished before the call."""
        ...
