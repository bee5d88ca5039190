"""The bytes of the embedded engine's two files, without I/O. Pure.

``coordination.journal``: 8 bytes `odrjrnl1`, then one record per transaction (big-endian)::

    offset  size  field
    0       4     length of the bytes after the CRC
    4       4     CRC32C of the length field and of the bytes after the CRC
    8       8     zxid; consecutive from record to record
    16      8     durable zxid: the highest one synced when this record was written
    24      4     number of changes
    28      …     changes: kind 1 B, path (2 B length, UTF-8), then by kind
                  1 created: owner 8 B, data · 2 set: data · 3 deleted: nothing
                  data = 4 B length, -1 for null, bytes

``coordination.snapshot``::

    0       8     `odrsnap1`
    8       8     zxid of the last transaction in it
    16      4     number of nodes
    20      …     nodes sorted by path: path, data, then 8 B each czxid, mzxid, version, owner,
                  children ever created
    end-4   4     CRC32C of everything before

The first bad record ends the journal. Either it is *torn*: the process died before the sync of its
batch, no caller got an answer, and it is cut off. Or it is *damaged*: then opening is refused,
since an acknowledged transaction is lost. The durable zxid distinguishes them: a later intact
record with a durable zxid above the last good zxid proves that the bad one had been synced.

    good 1..7, bad, intact record zxid 9 with durable zxid 7: 8 and 9 were one batch  → cut at 8
    good 1..7, bad, intact record zxid 9 with durable zxid 8: 8 was acknowledged      → refuse
"""

import struct

import crc32c

from odradek.coordination.tree import (
    ROOT,
    Change,
    NodeCreated,
    NodeDeleted,
    NodeSet,
    NodeTree,
    Transaction,
    TreeNode,
    check_path,
    parent_path,
)
from odradek.errors import StoreCorruptError, StoreError

__all__ = [
    "JOURNAL_HEAD",
    "encode_record",
    "encode_snapshot",
    "parse_snapshot",
    "replay",
    "seal_record",
    "seal_snapshot",
]

JOURNAL_HEAD = b"odrjrnl1"
_SNAPSHOT_HEAD = b"odrsnap1"

_FRAME = struct.Struct(">II")  # Length, CRC32C.
_RECORD = struct.Struct(">QQI")  # Zxid, durable zxid, number of changes.
_SNAPSHOT = struct.Struct(">8sQI")  # Head, zxid, number of nodes.
_NODE = struct.Struct(">QQQQQ")  # Czxid, mzxid, version, owner, children ever created.
_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_CREATED, _SET, _DELETED = 1, 2, 3


def encode_record(transaction: Transaction, durable_zxid: int) -> bytes:
    """One framed journal record."""
    parts = [_RECORD.pack(transaction.zxid, durable_zxid, len(transaction.changes))]
    for change in transaction.changes:
        match change:
            case NodeCreated(path=path, data=data, ephemeral_owner=owner):
                parts += (_U8.pack(_CREATED), _string(path), _U64.pack(owner), _blob(data))
            case NodeSet(path=path, data=data):
                parts += (_U8.pack(_SET), _string(path), _blob(data))
            case NodeDeleted(path=path):
                parts += (_U8.pack(_DELETED), _string(path))
    return seal_record(b"".join(parts))


def seal_record(payload: bytes) -> bytes:
    """Puts length and CRC before a record."""
    return _FRAME.pack(len(payload), _record_crc(payload)) + payload


def replay(data: bytes, tree: NodeTree, file: str) -> tuple[int, int]:
    """Applies the journal `data` to `tree`; returns the end of its good part, and its record count.

    Raises:
        StoreCorruptError: Damage before the end; the message names `file` and offset.
    """
    if data[: len(JOURNAL_HEAD)] != JOURNAL_HEAD:
        raise StoreCorruptError(
            f"{file} at offset 0: expected {JOURNAL_HEAD!r}, found {data[: len(JOURNAL_HEAD)]!r}"
        )
    view = memoryview(data)
    position = len(JOURNAL_HEAD)
    record_count = 0
    while position < len(data):
        payload = _payload_at(view, position)
        if payload is None:
            _refuse_damage(data, position, tree.zxid, file)
            return position, record_count
        zxid = _RECORD.unpack_from(payload)[0]
        if zxid > tree.zxid:
            _apply_record(payload, tree, f"{file} at offset {position}")
        position += _FRAME.size + len(payload)
        record_count += 1
    return position, record_count


def _apply_record(payload: memoryview, tree: NodeTree, place: str) -> None:
    zxid = _RECORD.unpack_from(payload)[0]
    if zxid != tree.zxid + 1:
        raise StoreCorruptError(f"{place}: expected zxid {tree.zxid + 1}, found {zxid}")
    try:
        tree.apply(parse_record(payload))
    except (ValueError, StoreError) as error:
        raise StoreCorruptError(f"{place}: zxid {zxid} cannot be applied: {error}") from error


def _payload_at(view: memoryview, position: int) -> memoryview | None:
    """The record at `position`, or None if there is no intact one."""
    start = position + _FRAME.size
    if start > len(view):
        return None
    length, crc = _FRAME.unpack_from(view, position)
    payload = view[start : start + length]
    if length < _RECORD.size or len(payload) < length or _record_crc(payload) != crc:
        return None
    return payload


def _refuse_damage(data: bytes, position: int, last_zxid: int, file: str) -> None:
    """Raises if an intact record behind `position` proves that the one there had been synced.

    Only records near `last_zxid` are looked for: their zxids share its upper bytes, or the next
    value of these, which makes the search a scan for eight bytes at the speed of `bytes.find`.
    """
    view = memoryview(data)
    zxid_offset = _FRAME.size
    for upper in {(last_zxid + 1) >> 24, ((last_zxid + 1) >> 24) + 1}:
        pattern = _U64.pack(upper << 24)[:5]
        found = data.find(pattern, position + zxid_offset)
        while found >= 0:
            payload = _payload_at(view, found - zxid_offset)
            if payload is not None:
                zxid, durable_zxid, _ = _RECORD.unpack_from(payload)
                if durable_zxid > last_zxid:
                    raise StoreCorruptError(
                        f"{file} at offset {position}: no intact record of zxid {last_zxid + 1}, "
                        f"although zxid {zxid} at offset {found - zxid_offset} was written after "
                        f"zxid {durable_zxid} was durable"
                    )
            found = data.find(pattern, found + 1)


def parse_record(payload: memoryview) -> Transaction:
    """Parses the payload of a record.

    Raises:
        ValueError: The bytes are not a record.
    """
    reader = _Reader(payload)
    zxid, _, count = reader.unpack(_RECORD)
    changes: list[Change] = []
    for _ in range(count):
        (kind,) = reader.unpack(_U8)
        path = reader.path()
        if kind == _CREATED:
            (owner,) = reader.unpack(_U64)
            changes.append(NodeCreated(path, reader.blob(), owner))
        elif kind == _SET:
            changes.append(NodeSet(path, reader.blob()))
        elif kind == _DELETED:
            changes.append(NodeDeleted(path))
        else:
            raise ValueError(f"expected a kind of change from 1 to 3, found {kind}")
    reader.expect_end()
    return Transaction(zxid, tuple(changes))


def encode_snapshot(tree: NodeTree) -> bytes:
    """The whole snapshot file."""
    parts = [_SNAPSHOT.pack(_SNAPSHOT_HEAD, tree.zxid, len(tree))]
    for path, node in sorted(tree.items()):
        numbers = (node.czxid, node.mzxid, node.version, node.ephemeral_owner, node.created_count)
        parts += (_string(path), _blob(node.data), _NODE.pack(*numbers))
    return seal_snapshot(b"".join(parts))


def seal_snapshot(body: bytes) -> bytes:
    """Puts the CRC behind a snapshot."""
    return body + _U32.pack(crc32c.crc32c(body))


def parse_snapshot(data: bytes, file: str) -> NodeTree:
    """Reads a snapshot file.

    Raises:
        StoreCorruptError: The file is damaged; the message names `file` and the damage.
    """
    try:
        if data[: len(_SNAPSHOT_HEAD)] != _SNAPSHOT_HEAD or len(data) < _SNAPSHOT.size + _U32.size:
            raise ValueError(f"expected {_SNAPSHOT_HEAD!r}, found {data[: len(_SNAPSHOT_HEAD)]!r}")
        body = memoryview(data)[: -_U32.size]
        (crc,) = _U32.unpack_from(data, len(body))
        if crc32c.crc32c(body) != crc:
            raise ValueError(f"expected CRC {crc:#x}, found {crc32c.crc32c(body):#x}")
        return _parse_nodes(_Reader(body))
    except (ValueError, StoreError) as error:
        raise StoreCorruptError(f"{file}: {error}") from error


def _parse_nodes(reader: "_Reader") -> NodeTree:
    """Rebuilds the tree; parents come before their children, since paths are sorted."""
    _, zxid, count = reader.unpack(_SNAPSHOT)
    tree = NodeTree()
    for _ in range(count):
        path = reader.path()
        data = reader.blob()
        czxid, mzxid, version, owner, created_count = reader.unpack(_NODE)
        tree.put(path, TreeNode(data, czxid, mzxid, version, owner, created_count, 0))
        if path == "/":
            continue
        above = parent_path(path)
        parent = tree.get(above)
        if parent is None or parent.ephemeral_owner:
            raise ValueError(f"{path} has no persistent parent before it")
        if parent.child_count == parent.created_count:
            raise ValueError(f"{above} has more children than it ever had created")
        tree.put(above, parent._replace(child_count=parent.child_count + 1))
    reader.expect_end()
    if len(tree) != count or (tree.get("/") or ROOT).ephemeral_owner:
        raise ValueError(f"expected {count} nodes with a persistent root, found {len(tree)}")
    tree.zxid = zxid
    return tree


class _Reader:
    """Reads fields one after the other; running out of bytes is a ValueError."""

    __slots__ = ("_position", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._position = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self._view, self._position)
        except struct.error as error:
            raise ValueError(f"at byte {self._position}: {error}") from None
        self._position += layout.size
        return values

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._view):
            raise ValueError(f"at byte {self._position}: {length} bytes announced, fewer left")
        data = bytes(self._view[self._position : end])
        self._position = end
        return data

    def path(self) -> str:
        path = self.take(self.unpack(_U16)[0]).decode()
        check_path(path)
        return path

    def blob(self) -> bytes | None:
        (length,) = self.unpack(_I32)
        if length < -1:
            raise ValueError(f"at byte {self._position}: data of {length} bytes")
        return None if length == -1 else self.take(length)

    def expect_end(self) -> None:
        if self._position != len(self._view):
            raise ValueError(f"{len(self._view) - self._position} bytes behind the end")


def _record_crc(payload: "bytes | memoryview") -> int:
    return crc32c.crc32c(payload, crc32c.crc32c(_U32.pack(len(payload))))


def _string(text: str) -> bytes:
    data = text.encode()
    return _U16.pack(len(data)) + data


def _blob(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data
