"""The one-shot watches of a ZooKeeper session, as its server has them.

========  ===============================  ==========================================
Table     armed by                         fires on
========  ===============================  ==========================================
data      get, exists of a present node    CHANGED, DELETED of the node
absent    exists of an absent node         CREATED of the node
child     children                         CHILDREN of the node, and its DELETED
========  ===============================  ==========================================

A link takes the server's watches with it. So after each new link `lists` names what is armed here,
and the server compares: a watch whose node changed since the last zxid seen fires, another one is
armed again. No change between two links is missed.

A watch set twice before it fires counts once, and so does one function that watches data and
children of a node when its deletion concerns both.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from odradek.coordination.store import Watch, WatchEvent, WatchKind
from odradek.coordination.zookeeper.wire import WatchLists

__all__ = ["WatchRegistry"]

logger = logging.getLogger(__name__)

# The bytes of paths in one request to arm watches again; far below the limit of a request.
_LIST_BYTES: Final = 128 * 1024

# Watches of one path, in the order they were set.
_Armed: TypeAlias = dict[Watch, None]


class WatchRegistry:
    """Armed watches by path, as callers see paths."""

    __slots__ = ("_absent", "_child", "_data")

    def __init__(self) -> None:
        self._data: dict[str, _Armed] = {}
        self._absent: dict[str, _Armed] = {}
        self._child: dict[str, _Armed] = {}

    def __len__(self) -> int:
        return sum(map(len, (self._data, self._absent, self._child)))

    def add_data(self, path: str, watch: Watch) -> None:
        """Arms a watch on a node that exists."""
        self._data.setdefault(path, {})[watch] = None

    def add_absent(self, path: str, watch: Watch) -> None:
        """Arms a watch on the creation of a node."""
        self._absent.setdefault(path, {})[watch] = None

    def add_child(self, path: str, watch: Watch) -> None:
        """Arms a watch on a node's children."""
        self._child.setdefault(path, {})[watch] = None

    def fire(self, event: WatchEvent) -> None:
        """Calls and disarms the watches of an event. One that raises does not stop the others."""
        hit: _Armed = {}
        if event.kind is not WatchKind.CHILDREN:
            hit.update(self._data.pop(event.path, {}))
            hit.update(self._absent.pop(event.path, {}))
        if event.kind in (WatchKind.CHILDREN, WatchKind.DELETED):
            hit.update(self._child.pop(event.path, {}))
        for watch in hit:
            try:
                watch(event)
            except Exception:
                logger.exception("watch on %s failed on %s", event.path, event.kind.value)

    def clear(self) -> None:
        """Disarms every watch."""
        for table in (self._data, self._absent, self._child):
            table.clear()

    def lists(self, locate: Callable[[str], str]) -> Iterator[WatchLists]:
        """The paths of all watches, in portions that fit into a request each.

        Args:
            locate: The path that the server has for a caller's path.
        """
        portion: tuple[list[str], list[str], list[str]] = ([], [], [])
        size_bytes = 0
        for index, table in enumerate((self._data, self._absent, self._child)):
            for path in table:
                located = locate(path)
                portion[index].append(located)
                size_bytes += len(located) + 4
                if size_bytes >= _LIST_BYTES:
                    yield portion
                    portion, size_bytes = ([], [], []), 0
        if size_bytes:
            yield portion
