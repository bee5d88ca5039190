"""A mapping that is never edited: an edited copy shares all unchanged parts with it.

A trie over the bits of the keys' hashes, six per level, whose leaves are small dicts::

    up to 256 entries    one dict: a look-up is that of a dict
    above                64 branches by the lowest six bits of the hash, each one a dict of up to
                         256 entries, or 64 branches by the next six bits, and so on

`edited` copies the dicts and branch lists on the way to the keys it changes, each of them once, and
no other. Example with 10,000 keys: 64 branches are dicts of some 156 entries each; to put one key,
the list of 64 and a dict of 156 are copied instead of a dict of 10,000. An edit that is about most
of the map builds a new one.

Hashes of texts differ from process to process, so iteration is in the order of sorted keys: no
trace, answer or file depends on a hash. Sorting 10,000 keys takes some milliseconds; callers that
need all of them often keep the sorted list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

__all__ = ["PersistentMap", "as_persistent"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_D = TypeVar("_D")

_BITS: Final = 6
_MASK: Final = (1 << _BITS) - 1
_LEAF_ENTRIES: Final = 256  # A dict with more is split, unless no bits of the hashes are left.
_LAST_SHIFT: Final = 60  # Hashes have 61 bits and a sign.

# A leaf, or branches; a recursive type would cost a check at each level.
_Node: TypeAlias = "dict[Any, Any] | list[Any]"


class PersistentMap(Mapping[_K, _V], Generic[_K, _V]):
    """An immutable mapping.

    Args:
        entries: Its contents.
        order: Sorts the keys of an iteration, where they cannot be compared themselves.
    """

    __slots__ = ("_count", "_order", "_root")

    def __init__(
        self, entries: Mapping[_K, _V] | None = None, *, order: Callable[[_K], Any] | None = None
    ) -> None:
        self._order = order
        own = dict(entries or {})
        self._root: _Node = _built(own, 0)
        self._count = len(own)

    def edited(
        self, put: Mapping[_K, _V] | None = None, *, remove: Iterable[_K] = ()
    ) -> "PersistentMap[_K, _V]":
        """The map without the keys of `remove`, then with the entries of `put`."""
        put = put or {}
        edit = _Edit(self._root, self._count)
        for key in remove:
            edit.remove(key)
        if put and len(put) > edit.count // 2:
            entries: dict[_K, _V] = {}
            for leaf in _leaves(edit.root):
                entries.update(leaf)
            entries.update(put)
            return PersistentMap(entries, order=self._order)
        for key, value in put.items():
            edit.put(key, value)
        if not edit.is_changed:
            return self
        made: PersistentMap[_K, _V] = PersistentMap.__new__(PersistentMap)
        made._order = self._order
        made._root = edit.root
        made._count = edit.count
        return made

    def _leaf(self, key: object) -> dict[_K, _V]:
        node = self._root
        if type(node) is not dict:
            bits = hash(key)
            while type(node) is not dict:
                node = node[bits & _MASK]
                bits >>= _BITS
        return node

    def get(self, key: _K, default: _V | _D | None = None) -> _V | _D | None:  # type: ignore[override]  # one signature instead of three overloads
        node = self._root
        if type(node) is not dict:  # As `_leaf`, without the call: requests use this method.
            bits = hash(key)
            while type(node) is not dict:
                node = node[bits & _MASK]
                bits >>= _BITS
        return node.get(key, default)

    def __getitem__(self, key: _K) -> _V:
        return self._leaf(key)[key]

    def __contains__(self, key: object) -> bool:
        return key in self._leaf(key)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_K]:
        keys: list[_K] = []
        for leaf in _leaves(self._root):
            keys += leaf
        keys.sort(key=self._order)
        return iter(keys)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"


def as_persistent(
    values: Mapping[_K, _V], *, order: Callable[[_K], Any] | None = None
) -> PersistentMap[_K, _V]:
    """The mapping itself, or a copy of one of another kind."""
    return values if isinstance(values, PersistentMap) else PersistentMap(values, order=order)


def _leaves(root: _Node) -> Iterator[dict[Any, Any]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if type(node) is dict:
            yield node
        else:
            waiting += node


def _built(entries: dict[Any, Any], shift: int) -> _Node:
    """A trie of entries whose hashes have the lowest `shift` bits in common."""
    if len(entries) <= _LEAF_ENTRIES or shift > _LAST_SHIFT:
        return entries
    return [_built(branch, shift + _BITS) for branch in _split(entries, shift)]


def _split(entries: dict[Any, Any], shift: int) -> list[dict[Any, Any]]:
    branches: list[dict[Any, Any]] = [{} for _ in range(_MASK + 1)]
    for key, value in entries.items():
        branches[(hash(key) >> shift) & _MASK][key] = value
    return branches


class _Edit:
    """An edit under way: nodes made by it are changed in place, others are copied first."""

    __slots__ = ("_own", "count", "is_changed", "root")

    def __init__(self, root: _Node, count: int) -> None:
        self.root: _Node = root
        self.count = count
        self.is_changed = False
        self._own: set[int] = set()  # By id; all of them are part of the tree below `root`.

    def put(self, key: object, value: object) -> None:
        leaf, parent, index, shift = self._own_leaf(key)
        before = len(leaf)
        leaf[key] = value
        self.count += len(leaf) - before
        self.is_changed = True
        if len(leaf) > _LEAF_ENTRIES and shift <= _LAST_SHIFT:
            branches = _split(leaf, shift)
            self._own.discard(id(leaf))  # The id may be reused for another object.
            self._own.add(id(branches))
            self._own.update(map(id, branches))
            self._place(branches, parent, index)

    def remove(self, key: object) -> None:
        node, bits = self.root, hash(key)
        while type(node) is not dict:
            node = node[bits & _MASK]
            bits >>= _BITS
        if key in node:
            leaf, _, _, _ = self._own_leaf(key)
            del leaf[key]
            self.count -= 1
            self.is_changed = True

    def _own_leaf(self, key: object) -> tuple[dict[Any, Any], list[Any] | None, int, int]:
        """The leaf for a key, its branches and its place among them, and the hash bits used."""
        node, bits = self.root, hash(key)
        parent: list[Any] | None = None
        index = shift = 0
        while True:
            if id(node) not in self._own:
                node = node.copy()
                self._own.add(id(node))
                self._place(node, parent, index)
            if type(node) is dict:
                return node, parent, index, shift
            assert isinstance(node, list)
            parent, index = node, (bits >> shift) & _MASK
            node = parent[index]
            shift += _BITS

    def _place(self, node: _Node, parent: list[Any] | None, index: int) -> None:
        if parent is None:
            self.root = node
        else:
            parent[index] = node
