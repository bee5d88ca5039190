"""The bytes of ZooKeeper's protocol, without I/O. Pure.

A frame is a 4-byte length and that many bytes; all numbers are big-endian (the format is Jute)::

    string, buffer   4 B length (-1: null), bytes; a string is UTF-8
    vector           4 B count, items
    boolean          1 B
    Stat             czxid 8, mzxid 8, ctime 8, mtime 8, version 4, cversion 4, aversion 4,
                     ephemeral owner 8, data length 4, child count 4, pzxid 8

    connect request  protocol version 4, last zxid seen 8, timeout in ms 4, session id 8,
                     password (buffer), read-only 1
    connect answer   protocol version 4, timeout in ms 4, session id 8 (0: expired), password,
                     read-only 1 (older servers leave it out)
    request          xid 4, operation 4, record
    answer           xid 4, zxid 8 (of the server's last transaction), error 4, record if no error
    notification     an answer with xid -1: event type 4, state 4, path

A transaction has for each operation a header {operation 4, is end 1, error 4} and its record, and
an end header. In the answer to one that failed every record is an error: 0 for the operations
before the one that failed, -2 for those after it. Servers answer a create2 in a transaction as a
plain create, without a Stat.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from odradek.coordination.store import (
    Check,
    Create,
    Created,
    Delete,
    Operation,
    OperationResult,
    Set,
    Stat,
    WatchEvent,
    WatchKind,
)
from odradek.errors import DecodeError

__all__ = [
    "LENGTH",
    "MAX_REQUEST_BYTES",
    "NOTIFICATION_XID",
    "OPEN_ACL",
    "PING_XID",
    "SET_WATCHES_XID",
    "Acl",
    "AclPermission",
    "ConnectResponse",
    "OpCode",
    "OperationFailed",
    "ReplyHeader",
    "WatchLists",
    "ZooKeeperCode",
    "encode_connect",
    "encode_multi",
    "encode_operation",
    "encode_path",
    "encode_read",
    "encode_sasl",
    "encode_set_watches",
    "frame",
    "parse_children",
    "parse_connect_response",
    "parse_created",
    "parse_data",
    "parse_multi",
    "parse_nothing",
    "parse_notification",
    "parse_path",
    "parse_reply",
    "parse_sasl",
    "parse_stat",
]

# The largest request that a server with the default `jute.maxbuffer` reads, header included.
MAX_REQUEST_BYTES: Final = 0xFFFFF

NOTIFICATION_XID: Final = -1
PING_XID: Final = -2
SET_WATCHES_XID: Final = -8

LENGTH: Final = struct.Struct(">i")
_CONNECT = struct.Struct(">iqiq")
_CONNECTED = struct.Struct(">iiq")
_REQUEST = struct.Struct(">ii")
_REPLY = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_MULTI = struct.Struct(">i?i")
_LONG = struct.Struct(">q")
_TRUE, _FALSE = b"\x01", b"\x00"
_EPHEMERAL, _SEQUENTIAL = 1, 2  # Flags of a create.


class OpCode(IntEnum):
    """The operations that are sent."""

    CREATE = 1  # In answers to a transaction.
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15  # As create, but its answer has the node's Stat.
    SET_WATCHES = 101
    SASL = 102
    CLOSE = -11
    ERROR = -1  # In answers to a transaction.


class ZooKeeperCode(IntEnum):
    """The error codes of answers that are told apart."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    SASL_REQUIRED = -124
    QUOTA_EXCEEDED = -125
    THROTTLED = -127


class AclPermission(IntEnum):
    """What an entry of an access list allows."""

    READ = 1
    ALL = 31


class Acl(NamedTuple):
    """An entry of a node's access list."""

    permissions: int
    scheme: str
    id: str


OPEN_ACL: Final = (Acl(AclPermission.ALL, "world", "anyone"),)

_EVENT_KINDS: Final = {
    1: WatchKind.CREATED,
    2: WatchKind.DELETED,
    3: WatchKind.CHANGED,
    4: WatchKind.CHILDREN,
}

# Paths with a watch on data, on the creation of the node, and on children.
WatchLists: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[str]]


class ConnectResponse(NamedTuple):
    """A server's answer to a connect request."""

    timeout_ms: int
    session_id: int  # 0: the session that was asked for has expired.
    password: bytes
    is_read_only: bool

    def __repr__(self) -> str:
        return f"ConnectResponse({self.session_id:#x}, {self.timeout_ms} ms)"


class ReplyHeader(NamedTuple):
    """The head of an answer or a notification."""

    xid: int
    zxid: int
    error: int


class OperationFailed(NamedTuple):
    """The first operation of a transaction that failed."""

    place: int  # From 0.
    error: int


# Requests


def frame(xid: int, operation: int, body: bytes = b"") -> bytes:
    """A request with its length before it."""
    return LENGTH.pack(_REQUEST.size + len(body)) + _REQUEST.pack(xid, operation) + body


def encode_connect(*, last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The first request on a connection, framed; session id 0 asks for a new session."""
    body = _CONNECT.pack(0, last_zxid, timeout_ms, session_id) + _buffer(password) + _FALSE
    return LENGTH.pack(len(body)) + body


def encode_read(path: str, *, is_watched: bool) -> bytes:
    """The record of exists, getData and getChildren2."""
    return _string(path) + (_TRUE if is_watched else _FALSE)


def encode_path(path: str) -> bytes:
    """The record of sync."""
    return _string(path)


def encode_sasl(token: bytes) -> bytes:
    """The record of a step of SASL."""
    return _buffer(token)


def encode_operation(operation: Operation, acl: Iterable[Acl]) -> tuple[OpCode, bytes]:
    """A write, alone or in a transaction.

    Args:
        operation: With the path as the server has it.
        acl: The access list of a node to create.
    """
    match operation:
        case Create():
            flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
            entries = [
                LENGTH.pack(entry.permissions) + _string(entry.scheme) + _string(entry.id)
                for entry in acl
            ]
            parts = (
                _string(operation.path),
                _buffer(operation.data),
                LENGTH.pack(len(entries)),
                *entries,
                LENGTH.pack(flags),
            )
            return OpCode.CREATE2, b"".join(parts)
        case Set():
            head = _string(operation.path) + _buffer(operation.data)
            return OpCode.SET_DATA, head + LENGTH.pack(operation.version)
        case Delete():
            return OpCode.DELETE, _string(operation.path) + LENGTH.pack(operation.version)
        case Check():
            return OpCode.CHECK, _string(operation.path) + LENGTH.pack(operation.version)


def encode_multi(operations: Iterable[tuple[OpCode, bytes]]) -> bytes:
    """The record of a transaction."""
    parts = [_MULTI.pack(code, False, -1) + body for code, body in operations]
    return b"".join([*parts, _MULTI.pack(-1, True, -1)])


def encode_set_watches(last_zxid: int, paths: WatchLists) -> bytes:
    """Arms watches again; those whose node changed after `last_zxid` fire at once."""
    parts = [_LONG.pack(last_zxid)]
    for each in paths:
        parts.append(LENGTH.pack(len(each)))
        parts += map(_string, each)
    return b"".join(parts)


def _string(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes | None) -> bytes:
    return LENGTH.pack(-1) if data is None else LENGTH.pack(len(data)) + data


# Answers. Each function takes the whole record, and raises DecodeError if it is none.


class _Reader:
    """Takes values from the front of a record."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self._position
        end = start + layout.size
        if end > len(self._data):
            raise DecodeError(
                f"ZooKeeper: expected {layout.size} bytes at {start}, found"
                f" {len(self._data) - start}"
            )
        self._position = end
        return layout.unpack_from(self._data, start)

    def number(self) -> int:
        return self.take(LENGTH)[0]

    def buffer(self) -> bytes | None:
        length = self.number()
        if length == -1:
            return None
        start = self._position
        if not 0 <= length <= len(self._data) - start:
            raise DecodeError(
                f"ZooKeeper: expected a length up to {len(self._data) - start} at {start - 4},"
                f" found {length}"
            )
        self._position = start + length
        return self._data[start : self._position]

    def string(self) -> str:
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"ZooKeeper: a string is not UTF-8: {error}") from None

    def stat(self) -> Stat:
        czxid, mzxid, _, _, version, cversion, _, owner, _, _, _ = self.take(_STAT)
        return Stat(czxid, mzxid, version, cversion, owner)

    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def finish(self) -> None:
        if not self.is_at_end():
            raise DecodeError(
                f"ZooKeeper: {len(self._data) - self._position} bytes after the end of an answer"
            )


def parse_connect_response(data: bytes) -> ConnectResponse:
    """The answer to a connect request."""
    reader = _Reader(data)
    _, timeout_ms, session_id = reader.take(_CONNECTED)
    password = reader.buffer() or b""
    is_read_only = not reader.is_at_end() and bool(reader.take(struct.Struct(">?"))[0])
    reader.finish()
    return ConnectResponse(timeout_ms, session_id, password, is_read_only)


def parse_reply(data: bytes) -> tuple[ReplyHeader, bytes]:
    """The head of an answer, and its record."""
    header = ReplyHeader(*_Reader(data).take(_REPLY))
    return header, data[_REPLY.size :]


def parse_notification(record: bytes) -> WatchEvent | None:
    """The event of a notification; None if it is about the session, not about a node."""
    reader = _Reader(record)
    kind, _state = reader.number(), reader.number()
    path = reader.string()
    reader.finish()
    known = _EVENT_KINDS.get(kind)
    return None if known is None else WatchEvent(known, path)


def parse_stat(record: bytes) -> Stat:
    """The answer to exists and setData."""
    reader = _Reader(record)
    stat = reader.stat()
    reader.finish()
    return stat


def parse_data(record: bytes) -> tuple[bytes | None, Stat]:
    """The answer to getData."""
    reader = _Reader(record)
    data, stat = reader.buffer(), reader.stat()
    reader.finish()
    return data, stat


def parse_children(record: bytes) -> tuple[list[str], Stat]:
    """The answer to getChildren2; the names in the server's order."""
    reader = _Reader(record)
    count = reader.number()
    if count > len(record) // 4:
        raise DecodeError(f"ZooKeeper: {count} names in {len(record)} bytes")
    names = [reader.string() for _ in range(count)]
    stat = reader.stat()
    reader.finish()
    return names, stat


def parse_created(record: bytes) -> Created:
    """The answer to create2."""
    reader = _Reader(record)
    created = Created(reader.string(), reader.stat())
    reader.finish()
    return created


def parse_path(record: bytes) -> str:
    """The answer to sync."""
    reader = _Reader(record)
    path = reader.string()
    reader.finish()
    return path


def parse_sasl(record: bytes) -> bytes | None:
    """The answer to a step of SASL: a token; None if the server has none to give."""
    reader = _Reader(record)
    token = reader.buffer()
    reader.finish()
    return token


def parse_nothing(record: bytes) -> None:
    """The answer to delete, and to requests about the session."""
    _Reader(record).finish()


def parse_multi(record: bytes) -> list[OperationResult | str] | OperationFailed:
    """The answer to a transaction: the results of its operations, or which of them failed.

    The result of a create is its path alone if the server does not tell the Stat.
    """
    reader = _Reader(record)
    results: list[OperationResult | str] = []
    failed: OperationFailed | None = None
    for index, code in enumerate(_multi_headers(reader)):
        match code:
            case OpCode.CREATE:
                results.append(reader.string())
            case OpCode.CREATE2:
                results.append(Created(reader.string(), reader.stat()))
            case OpCode.SET_DATA:
                results.append(reader.stat())
            case OpCode.DELETE | OpCode.CHECK:
                results.append(None)
            case OpCode.ERROR:
                error = reader.number()
                if error != ZooKeeperCode.OK and failed is None:
                    failed = OperationFailed(index, error)
            case _:
                raise DecodeError(f"ZooKeeper: operation {code} in the answer to a transaction")
    reader.finish()
    return results if failed is None else failed


def _multi_headers(reader: _Reader) -> Iterator[int]:
    while True:
        code, is_end, _error = reader.take(_MULTI)
        if is_end:
            return
        yield code
