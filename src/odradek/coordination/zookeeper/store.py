"""The calls of a ZooKeeper session: a `CoordinationStore`.

Paths of callers are below the chroot and never have it. Every write is one request: with a fence a
transaction whose first operation checks the version of /controller_epoch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from odradek.coordination.paths import CONSUMERS
from odradek.coordination.store import (
    ANY_VERSION,
    CONTROLLER_EPOCH_PATH,
    Check,
    Create,
    Created,
    Delete,
    Operation,
    OperationResult,
    Set,
    Stat,
    Watch,
)
from odradek.coordination.tree import check_path
from odradek.coordination.zookeeper.session import ZooKeeperSession
from odradek.coordination.zookeeper.wire import (
    MAX_REQUEST_BYTES,
    OPEN_ACL,
    Acl,
    AclPermission,
    OpCode,
    OperationFailed,
    ReplyHeader,
    ZooKeeperCode,
    encode_multi,
    encode_operation,
    encode_path,
    encode_read,
    parse_children,
    parse_created,
    parse_data,
    parse_multi,
    parse_nothing,
    parse_path,
    parse_stat,
)
from odradek.errors import (
    BadArguments,
    BadVersion,
    ControllerMoved,
    DecodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
)

__all__ = ["Chroot", "ZooKeeperStore"]

_T = TypeVar("_T")

_REQUEST_HEAD_BYTES: Final = 8  # Xid and operation.

_REFUSALS: Final[dict[int, type[StoreError]]] = {
    ZooKeeperCode.NO_NODE: NoNode,
    ZooKeeperCode.NODE_EXISTS: NodeExists,
    ZooKeeperCode.BAD_VERSION: BadVersion,
    ZooKeeperCode.NOT_EMPTY: NotEmpty,
    ZooKeeperCode.NO_CHILDREN_FOR_EPHEMERALS: BadArguments,
    ZooKeeperCode.BAD_ARGUMENTS: BadArguments,
}

# Only the creator may read what is below these: passwords and keys.
_SECRET_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token")
_CREATOR_ALL: Final = Acl(AclPermission.ALL, "auth", "")
_WORLD_READ: Final = Acl(AclPermission.READ, "world", "anyone")


class Chroot:
    """The node below which a cluster's nodes are; empty for the root."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def locate(self, path: str) -> str:
        """The path that the servers have for a caller's path."""
        if not self._path:
            return path
        return self._path if path == "/" else self._path + path

    def relative(self, path: str) -> str:
        """The path that a caller has for a server's path."""
        return path.removeprefix(self._path) or "/"


class ZooKeeperStore:
    """One session's view of the ensemble.

    Args:
        session: Started by the owner of this store.
        has_acl: Whether only the creator may change new nodes; it must have proven its identity.
    """

    __slots__ = ("_chroot", "_has_acl", "_session")

    def __init__(self, session: ZooKeeperSession, chroot: Chroot, *, has_acl: bool) -> None:
        self._session = session
        self._chroot = chroot
        self._has_acl = has_acl

    @property
    def session(self) -> ZooKeeperSession:
        return self._session

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        def complete(header: ReplyHeader, record: bytes) -> tuple[bytes | None, Stat]:
            _refuse(header.error, path)
            found = parse_data(record)
            if watch is not None:
                self._session.watches.add_data(path, watch)
            return found

        return await self._read(OpCode.GET_DATA, path, watch, complete)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def complete(header: ReplyHeader, record: bytes) -> Stat | None:
            if header.error == ZooKeeperCode.NO_NODE:
                if watch is not None:
                    self._session.watches.add_absent(path, watch)
                return None
            _refuse(header.error, path)
            stat = parse_stat(record)
            if watch is not None:
                self._session.watches.add_data(path, watch)
            return stat

        return await self._read(OpCode.EXISTS, path, watch, complete)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        def complete(header: ReplyHeader, record: bytes) -> tuple[list[str], Stat]:
            _refuse(header.error, path)
            names, stat = parse_children(record)
            if watch is not None:
                self._session.watches.add_child(path, watch)
            return sorted(names), stat

        return await self._read(OpCode.GET_CHILDREN2, path, watch, complete)

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
        self._session.require_live()
        encoded: list[tuple[OpCode, bytes]] = []
        for index, operation in enumerate(operations):
            try:
                encoded.append(self._encode(operation))
            except BadArguments as error:
                error.operation_index = index
                raise
        return await self._transact(operations, encoded, fence)

    async def sync(self) -> None:
        def complete(header: ReplyHeader, record: bytes) -> str:
            _refuse(header.error, "/")
            return parse_path(record)

        body = encode_path(self._chroot.locate("/"))
        await self._session.call(OpCode.SYNC, body, complete, is_write=False)

    async def _read(
        self,
        code: OpCode,
        path: str,
        watch: Watch | None,
        complete: Callable[[ReplyHeader, bytes], _T],
    ) -> _T:
        self._session.require_live()
        check_path(path)
        body = encode_read(self._chroot.locate(path), is_watched=watch is not None)
        return await self._session.call(code, body, complete, is_write=False)

    async def _single(self, operation: Operation, fence: int | None) -> OperationResult:
        self._session.require_live()
        code, body = self._encode(operation)
        if fence is not None and fence != ANY_VERSION:
            try:
                return (await self._transact([operation], [(code, body)], fence))[0]
            except StoreError as error:
                error.operation_index = None
                raise
        _check_size(body, operation.path)

        def complete(header: ReplyHeader, record: bytes) -> OperationResult:
            _refuse(header.error, operation.path)
            match operation:
                case Create():
                    return self._created(parse_created(record))
                case Set():
                    return parse_stat(record)
                case _:
                    parse_nothing(record)
                    return None

        return await self._session.call(code, body, complete, is_write=True)

    async def _transact(
        self,
        operations: Sequence[Operation],
        encoded: Sequence[tuple[OpCode, bytes]],
        fence: int | None,
    ) -> list[OperationResult]:
        """Executes all operations or none; the fence is checked before them."""
        checks: list[tuple[OpCode, bytes]] = []
        if fence is not None and fence != ANY_VERSION:
            checks.append(self._encode(Check(CONTROLLER_EPOCH_PATH, fence)))
        if not checks and not encoded:
            return []
        body = encode_multi([*checks, *encoded])
        _check_size(body, operations[-1].path if operations else CONTROLLER_EPOCH_PATH)

        def complete(header: ReplyHeader, record: bytes) -> list[OperationResult]:
            _refuse(header.error, operations[0].path if operations else "/")
            outcome = parse_multi(record)
            if not isinstance(outcome, OperationFailed):
                return self._results(operations, outcome[len(checks) :], header.zxid)
            if outcome.place < len(checks):
                raise ControllerMoved(
                    f"expected version {fence} of {CONTROLLER_EPOCH_PATH}, found"
                    f" {'no node' if outcome.error == ZooKeeperCode.NO_NODE else 'another'}",
                    path=CONTROLLER_EPOCH_PATH,
                )
            index = outcome.place - len(checks)
            path = operations[index].path if index < len(operations) else "/"
            raise _refusal(outcome.error, path, index)

        return await self._session.call(OpCode.MULTI, body, complete, is_write=True)

    def _results(
        self,
        operations: Sequence[Operation],
        answered: Sequence[OperationResult | str],
        zxid: int,
    ) -> list[OperationResult]:
        """The results of a transaction; a Stat that the server left out follows from the rest.

        The answer to a write has the zxid of that write, and a node is new when it is created.
        """
        if len(answered) != len(operations):
            raise DecodeError(f"ZooKeeper: {len(answered)} results of {len(operations)} operations")
        results: list[OperationResult] = []
        for operation, result in zip(operations, answered, strict=True):
            if isinstance(result, str):
                is_ephemeral = isinstance(operation, Create) and operation.ephemeral
                owner = self._session.id if is_ephemeral else 0
                result = Created(result, Stat(zxid, zxid, 0, 0, owner))
            results.append(self._created(result) if isinstance(result, Created) else result)
        return results

    def _encode(self, operation: Operation) -> tuple[OpCode, bytes]:
        path = operation.path
        is_sequential = isinstance(operation, Create) and operation.sequential
        check_path(path + "0" * 10 if is_sequential else path)
        located = replace(operation, path=self._chroot.locate(path))
        return encode_operation(located, self._acl(path))

    def _acl(self, path: str) -> tuple[Acl, ...]:
        # Consumers of old write below the node of theirs.
        if not self._has_acl or path == CONSUMERS:
            return OPEN_ACL
        is_secret = any(path == each or path.startswith(f"{each}/") for each in _SECRET_PATHS)
        return (_CREATOR_ALL,) if is_secret else (_CREATOR_ALL, _WORLD_READ)

    def _created(self, created: Created) -> Created:
        return Created(self._chroot.relative(created.path), created.stat)


def _check_size(body: bytes, path: str) -> None:
    """Refuses what a server would answer by closing the connection."""
    size_bytes = len(body) + _REQUEST_HEAD_BYTES
    if size_bytes > MAX_REQUEST_BYTES:
        raise BadArguments(
            f"a request of {size_bytes} bytes up to {path}: ZooKeeper takes {MAX_REQUEST_BYTES}",
            path=path,
        )


def _refuse(error: int, path: str) -> None:
    if error != ZooKeeperCode.OK:
        raise _refusal(error, path, None)


def _refusal(error: int, path: str, index: int | None) -> StoreError:
    try:
        name = ZooKeeperCode(error).name
    except ValueError:
        name = "unknown error"
    kind = _REFUSALS.get(error, StoreError)
    hint = ""
    if error == ZooKeeperCode.NO_AUTH:
        hint = "; the node's access list does not allow it to this broker"
    elif error == ZooKeeperCode.INVALID_ACL:
        hint = (
            "; zookeeper.set.acl needs a client certificate that the ensemble trusts, or a login by"
            " SASL"
        )
    elif error == ZooKeeperCode.SASL_REQUIRED:
        hint = "; ZooKeeper serves only clients that log in: java.security.auth.login.config"
    return kind(f"{path}: {name} ({error}){hint}", path=path, operation_index=index)
