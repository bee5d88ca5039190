"""One-shot watches of all sessions of the embedded engine.

========  ========================  ===============================================
Watch     set by                    fires on
========  ========================  ===============================================
data      get, exists               CREATED, CHANGED, DELETED of the node
child     children                  CHILDREN of the node, and its DELETED
========  ========================  ===============================================

A watch set twice by a session before it fires counts once, and so does one function that watches
data and children of a node when its deletion concerns both.
"""

import logging
from collections.abc import Iterable
from typing import TypeAlias

from odradek.coordination.store import Watch, WatchEvent, WatchKind

__all__ = ["WatchTable"]

logger = logging.getLogger(__name__)

# (owner, watch) in the order they were set.
_Armed: TypeAlias = dict[tuple[object, Watch], None]


class WatchTable:
    """Armed watches by path. An owner is an object that identifies a session."""

    __slots__ = ("_child", "_data")

    def __init__(self) -> None:
        self._data: dict[str, _Armed] = {}
        self._child: dict[str, _Armed] = {}

    def add_data(self, path: str, owner: object, watch: Watch) -> None:
        """Arms a watch on the node itself."""
        self._data.setdefault(path, {})[owner, watch] = None

    def add_child(self, path: str, owner: object, watch: Watch) -> None:
        """Arms a watch on the node's children."""
        self._child.setdefault(path, {})[owner, watch] = None

    def fire(self, events: Iterable[WatchEvent]) -> None:
        """Calls and disarms the watches of `events`. One that raises does not stop the others."""
        for event in events:
            hit: _Armed = {}
            if event.kind is not WatchKind.CHILDREN:
                hit.update(self._data.pop(event.path, {}))
            if event.kind in (WatchKind.CHILDREN, WatchKind.DELETED):
                hit.update(self._child.pop(event.path, {}))
            for _, watch in hit:
                try:
                    watch(event)
                except Exception:
                    logger.exception("watch on %s failed on %s", event.path, event.kind.value)

    def drop(self, owner: object) -> None:
        """Disarms every watch of `owner`."""
        for table in (self._data, self._child):
            for path in list(table):
                armed = {key: None for key in table[path] if key[0] is not owner}
                if armed:
                    table[path] = armed
                else:
                    del table[path]
