"""Decisions on transactions: operations on a draft of the tree, without I/O. Pure.

`decide` runs the operations on a new draft over its `base`. It returns the node changes to make
durable and the results to answer with, or raises for the whole transaction; in a batch, the base of
a transaction is the draft of the one before.
"""

from collections.abc import Sequence
from typing import assert_never

from odradek.coordination.store import (
    ANY_VERSION,
    CONTROLLER_EPOCH_PATH,
    MAX_DATA_BYTES,
    Check,
    Create,
    Created,
    Delete,
    Operation,
    OperationResult,
    Set,
)
from odradek.coordination.tree import (
    Change,
    NodeCreated,
    NodeDeleted,
    NodeSet,
    NodeTree,
    TreeDraft,
    check_path,
    fold,
    parent_path,
)
from odradek.errors import BadArguments, BadVersion, ControllerMoved, NoNode, StoreError
from odradek.lazy_dataclass import dataclass

__all__ = ["TransactionDecision", "decide"]


@dataclass(frozen=True, slots=True)
class TransactionDecision:
    """The changes of a transaction, and the results for its caller once they are durable."""

    changes: tuple[Change, ...]
    results: list[OperationResult]


def decide(
    base: NodeTree | TreeDraft,
    operations: Sequence[Operation],
    *,
    zxid: int,
    session_id: int,
    fence: int | None,
) -> tuple[TransactionDecision, TreeDraft]:
    """Decides one transaction on top of `base`; the returned draft has its effect.

    Raises:
        ControllerMoved: The fence failed.
        StoreError: The error of the first operation that failed; `operation_index` names it.
    """
    _check_size(operations)
    draft = TreeDraft(base)
    _check_fence(draft, fence)
    changes: list[Change] = []
    results: list[OperationResult] = []
    for index, operation in enumerate(operations):
        try:
            change = _decide_one(draft, operation, session_id)
            if change is not None:
                fold(draft, change, zxid)
                changes.append(change)
        except StoreError as error:
            error.operation_index = index
            raise
        results.append(_result_of(draft, operation, change))
    return TransactionDecision(tuple(changes), results), draft


def _check_size(operations: Sequence[Operation]) -> None:
    """Limits a transaction to the size of one packet, as ZooKeeper does."""
    size_bytes = 0
    for operation in operations:
        data = operation.data if isinstance(operation, Create | Set) else None
        size_bytes += len(data or b"")
        if size_bytes > MAX_DATA_BYTES:
            raise BadArguments(
                f"more than {MAX_DATA_BYTES} bytes of data up to {operation.path}",
                path=operation.path,
            )


def _check_fence(draft: TreeDraft, fence: int | None) -> None:
    if fence is None or fence == ANY_VERSION:
        return
    node = draft.get(CONTROLLER_EPOCH_PATH)
    found = "no node" if node is None else f"version {node.version}"
    if node is None or node.version != fence:
        raise ControllerMoved(
            f"expected version {fence} of {CONTROLLER_EPOCH_PATH}, found {found}",
            path=CONTROLLER_EPOCH_PATH,
        )


def _decide_one(draft: TreeDraft, operation: Operation, session_id: int) -> Change | None:
    """The change that an operation makes to the draft, None for a check."""
    match operation:
        case Create(path=path, data=data):
            check_path(path + "0" * 10 if operation.sequential else path)
            if operation.sequential:
                parent = draft.get(parent_path(path + "0"))
                path += f"{parent.created_count if parent else 0:010d}"
            return NodeCreated(path, data, session_id if operation.ephemeral else 0)
        case Set(path=path, data=data, version=version):
            _expect_version(draft, path, version)
            return NodeSet(path, data)
        case Delete(path=path, version=version):
            _expect_version(draft, path, version)
            return NodeDeleted(path)
        case Check(path=path, version=version):
            _expect_version(draft, path, version)
            return None
        case _:
            assert_never(operation)


def _result_of(draft: TreeDraft, operation: Operation, change: Change | None) -> OperationResult:
    if change is None or isinstance(operation, Delete):
        return None
    node = draft.get(change.path)
    assert node is not None
    return Created(change.path, node.stat) if isinstance(operation, Create) else node.stat


def _expect_version(draft: TreeDraft, path: str, version: int) -> None:
    check_path(path)
    node = draft.get(path)
    if node is None:
        raise NoNode(f"no node {path}", path=path)
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(f"{path}: expected version {version}, found {node.version}", path=path)
