"""The embedded engine's tree of nodes and the folding of changes into it, without I/O. Pure.

Decide and apply share one `fold`, so a replayed file gives the tree its writer had. A `TreeDraft`
is a private layer over the tree, or over another draft: transactions are decided on drafts, one
upon the other, and reach the `NodeTree` by `apply` once they are durable.

A node keeps two numbers about its children instead of their names, so that a draft never copies
a directory: `created_count` only grows and numbers sequential children; with `child_count` it
gives the child version as ZooKeeper counts it, creations plus deletions:

    create a, create b, delete a:  created_count 2, child_count 1  →  cversion 2*2 - 1 = 3
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, assert_never

from odradek.coordination.store import Stat, WatchEvent, WatchKind
from odradek.errors import BadArguments, NodeExists, NoNode, NotEmpty

__all__ = [
    "Change",
    "NodeCreated",
    "NodeDeleted",
    "NodeSet",
    "NodeTree",
    "Transaction",
    "TreeDraft",
    "TreeNode",
    "check_path",
    "fold",
    "parent_path",
]


MAX_PATH_BYTES = 0x7FFF  # Fits the file format's 16-bit length; the deepest real path is < 600.
_Key = TypeVar("_Key", str, int)
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def _shown(data: bytes | None) -> str:
    """Data as logs and errors may show it: by its size, since it can contain passwords."""
    return "no data" if data is None else f"{len(data)} bytes"


class TreeNode(NamedTuple):
    """One node; replaced, never edited."""

    data: bytes | None
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int  # 0 = persistent.
    created_count: int  # Children ever created. Invariant: never falls.
    child_count: int  # Present children. Invariant: <= created_count.

    def __repr__(self) -> str:
        return f"Node({_shown(self.data)}, {self.stat})"

    @property
    def stat(self) -> Stat:
        cversion = 2 * self.created_count - self.child_count
        return Stat(self.czxid, self.mzxid, self.version, cversion, self.ephemeral_owner)


ROOT = TreeNode(
    data=None, czxid=0, mzxid=0, version=0, ephemeral_owner=0, created_count=0, child_count=0
)


class NodeCreated(NamedTuple):
    path: str
    data: bytes | None
    ephemeral_owner: int

    def __repr__(self) -> str:
        return f"NodeCreated({self.path!r}, {_shown(self.data)}, {self.ephemeral_owner})"


class NodeSet(NamedTuple):
    path: str
    data: bytes | None

    def __repr__(self) -> str:
        return f"NodeSet({self.path!r}, {_shown(self.data)})"


class NodeDeleted(NamedTuple):
    path: str


Change: TypeAlias = NodeCreated | NodeSet | NodeDeleted


class Transaction(NamedTuple):
    """The changes of one zxid."""

    zxid: int
    changes: tuple[Change, ...]


class _Nodes(Protocol):
    def get(self, path: str) -> TreeNode | None: ...

    def put(self, path: str, node: TreeNode | None) -> None: ...


class TreeDraft:
    """A layer of changes over a tree or another draft."""

    __slots__ = ("_base", "_changed")

    def __init__(self, base: "NodeTree | TreeDraft") -> None:
        self._base = base
        self._changed: dict[str, TreeNode | None] = {}

    def get(self, path: str) -> TreeNode | None:
        if path in self._changed:
            return self._changed[path]
        return self._base.get(path)

    def put(self, path: str, node: TreeNode | None) -> None:
        self._changed[path] = node

    def merge_into_base(self) -> None:
        """Writes the changes into the draft or tree below."""
        for path, node in self._changed.items():
            self._base.put(path, node)


class NodeTree:
    """The durable tree. Invariant: it has exactly the effect of the transactions up to `zxid`."""

    __slots__ = ("_children", "_ephemerals", "_nodes", "zxid")

    def __init__(self) -> None:
        self.zxid = 0  # Of the last transaction applied; 0 = none yet.
        self._nodes: dict[str, TreeNode] = {"/": ROOT}
        self._children: dict[str, dict[str, None]] = {}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> TreeNode | None:
        return self._nodes.get(path)

    def put(self, path: str, node: TreeNode | None) -> None:
        """Sets or removes a node together with the indexes over it."""
        old = self._nodes.get(path)
        if node is None:
            del self._nodes[path]
        else:
            self._nodes[path] = node
        if (old is None) == (node is None) or path == "/":
            return
        parent, name = _split(path)
        owner = (old or node or ROOT).ephemeral_owner
        if node is not None:
            self._children.setdefault(parent, {})[name] = None
            if owner:
                self._ephemerals.setdefault(owner, {})[path] = None
            return
        _discard(self._children, parent, name)
        if owner:
            _discard(self._ephemerals, owner, path)

    def children(self, path: str) -> list[str]:
        """Sorted names below `path`."""
        return sorted(self._children.get(path, ()))

    def ephemerals(self, owner: int | None = None) -> list[str]:
        """Sorted paths of one session's ephemeral nodes, or of all."""
        if owner is not None:
            return sorted(self._ephemerals.get(owner, ()))
        return sorted(path for paths in self._ephemerals.values() for path in paths)

    def items(self) -> Iterator[tuple[str, TreeNode]]:
        """Every node with its path, in no particular order."""
        return iter(self._nodes.items())

    def __len__(self) -> int:
        return len(self._nodes)

    def apply(self, transaction: Transaction) -> list[WatchEvent]:
        """Folds a durable transaction in; returns the events for watches, in order.

        Raises:
            StoreError: The changes do not fit the tree: they were not decided on it.
        """
        events: list[WatchEvent] = []
        for change in transaction.changes:
            fold(self, change, transaction.zxid)
            match change:
                case NodeCreated(path=path):
                    events.append(WatchEvent(WatchKind.CREATED, path))
                    events.append(WatchEvent(WatchKind.CHILDREN, parent_path(path)))
                case NodeSet(path=path):
                    events.append(WatchEvent(WatchKind.CHANGED, path))
                case NodeDeleted(path=path):
                    events.append(WatchEvent(WatchKind.DELETED, path))
                    events.append(WatchEvent(WatchKind.CHILDREN, parent_path(path)))
                case _:
                    assert_never(change)
        self.zxid = transaction.zxid
        return events


def fold(nodes: _Nodes, change: Change, zxid: int) -> None:
    """Applies one change, of a decision or of a file, to a tree or a draft."""
    path = change.path
    node = nodes.get(path)
    if isinstance(change, NodeSet):
        if node is None:
            raise NoNode(f"no node {path}", path=path)
        nodes.put(path, node._replace(data=change.data, mzxid=zxid, version=node.version + 1))
        return
    if path == "/":
        raise BadArguments("the root is neither created nor deleted", path=path)
    above = parent_path(path)
    parent = nodes.get(above)
    if isinstance(change, NodeDeleted):
        if node is None or parent is None:
            raise NoNode(f"no node {path}", path=path)
        if node.child_count:
            raise NotEmpty(f"{path} has {node.child_count} children", path=path)
        nodes.put(path, None)
        nodes.put(above, parent._replace(child_count=parent.child_count - 1))
        return
    if node is not None:
        raise NodeExists(f"{path} exists since zxid {node.czxid}", path=path)
    if parent is None:
        raise NoNode(f"no parent {above} for {path}", path=path)
    if parent.ephemeral_owner:
        raise BadArguments(f"{above} is ephemeral and cannot have a child {path}", path=path)
    nodes.put(
        path,
        ROOT._replace(
            data=change.data, czxid=zxid, mzxid=zxid, ephemeral_owner=change.ephemeral_owner
        ),
    )
    nodes.put(
        above,
        parent._replace(created_count=parent.created_count + 1, child_count=parent.child_count + 1),
    )


def check_path(path: str) -> None:
    """Refuses paths as ZooKeeper does: relative ones, empty, `.` or `..` parts, control characters.

    Raises:
        BadArguments: The message names the path and the reason.
    """
    why: str | None = None
    if path == "/":
        return
    if not path.startswith("/"):
        why = "does not start with /"
    elif path.endswith("/"):
        why = "ends with /"
    elif any(part in ("", ".", "..") for part in path[1:].split("/")):
        why = "has an empty, . or .. part"
    elif _FORBIDDEN.search(path):
        why = "has a control character or a character outside the basic plane"
    elif len(path.encode()) > MAX_PATH_BYTES:
        why = f"is longer than {MAX_PATH_BYTES} bytes"
    if why is not None:
        raise BadArguments(f"path {path[:200]!r} {why}", path=path)


def parent_path(path: str) -> str:
    """The parent of `path`; that of a first-level node is `/`."""
    return path[: path.rfind("/")] or "/"


def _split(path: str) -> tuple[str, str]:
    cut = path.rfind("/")
    return path[:cut] or "/", path[cut + 1 :]


def _discard(index: dict[_Key, dict[str, None]], key: _Key, member: str) -> None:
    members = index[key]
    del members[member]
    if not members:
        del index[key]
