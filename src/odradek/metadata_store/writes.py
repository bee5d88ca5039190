"""The controller's changes as writes to a coordination store.

======================================  ====================================  ===================
Change                                  nodes, in this order                  guard
======================================  ====================================  ===================
TopicCreated                            config, topic: one transaction        topic absent
PartitionsAdded, AssignmentChanged      topic                                 its version
PartitionChanged, first                 missing parents, state                state absent
PartitionChanged, later                 state                                 partition version
StoredReassignmentsChanged              the request, or its deletion          none
TopicDeletionRequested / …Cancelled     mark                                  none
TopicRemoved                            states up to the topic, config, mark  none
ConfigSet, QuotaSet, ScramSet/Removed   config, then its notification         version of the node
======================================  ====================================  ===================

A change is written as one transaction, except for TopicRemoved: it deletes children first and the
mark last, so that the next controller can continue an interrupted removal. If the guard fails, the
change is a conflict; if the transaction fails otherwise (a parent or a config node appeared or
vanished meanwhile), it is rendered again.

A broken link leaves the outcome unknown. Then the node is read back: our value at the version our
write would have given it proves the write, anything else is a conflict.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from odradek.coordination.nodes import (
    PartitionStateNode,
    TopicNode,
    encode_config,
    encode_reassignments,
)
from odradek.coordination.paths import (
    REASSIGN_PARTITIONS,
    ConfigNodeType,
    config_path,
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from odradek.coordination.store import (
    ANY_VERSION,
    CoordinationStore,
    Create,
    Operation,
    OperationResult,
    Set,
    Stat,
)
from odradek.errors import (
    ApiError,
    BadNodeData,
    BadVersion,
    ConnectionLost,
    ControllerMoved,
    ErrorCode,
    NodeExists,
    NoNode,
    NotEmpty,
    OdradekError,
    SessionExpired,
    StoreError,
)
from odradek.lazy_dataclass import dataclass
from odradek.metadata.changes import (
    AclAdded,
    AclRemoved,
    AssignmentChanged,
    Atomic,
    Change,
    ConfigSet,
    FeatureSet,
    PartitionChanged,
    PartitionsAdded,
    QuotaSet,
    ScramRemoved,
    ScramSet,
    SingleChange,
    StoredReassignmentsChanged,
    TopicCreated,
    TopicDeletionCancelled,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.ports import (
    CommitOutcome,
    Committed,
    Conflict,
    FailedChange,
    Fence,
    PartitionRecord,
    TopicRecord,
)
from odradek.metadata_store.entity_writes import MAX_RENDERINGS, missing_nodes, write_entity
from odradek.model import TopicPartition

__all__ = ["StoreWriter", "read_partition", "read_topic"]

# Changes in flight at a time: fills several batches of the embedded engine, and keeps the queue of
# either engine short for other writers.
MAX_PIPELINED = 200


# Writes that begin in one turn of the loop. Rendering one takes some 50 us, and the embedded engine
# lets all of them run up to the queue of its transactions.
_BEGUN_PER_TURN = 10

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Operations of a change, and the one among them that is its guard."""

    operations: list[Operation]
    guard_index: int | None  # None: the change cannot conflict.


async def read_topic(store: CoordinationStore, topic: str) -> TopicRecord | None:
    """A topic as it is stored; None if it does not exist or cannot be read."""
    try:
        data, stat = await store.get(topic_path(topic))
        return topic_record(data, stat)
    except (NoNode, BadNodeData):
        return None


def topic_record(data: bytes | None, stat: Stat) -> TopicRecord:
    """Reads a topic node.

    Raises:
        BadNodeData: It is malformed.
    """
    node = TopicNode.parse(data)
    return TopicRecord(
        topic_id=node.topic_id,
        assignment=node.assignment,
        version=stat.version,
        incarnation=stat.czxid,
    )


async def read_partition(store: CoordinationStore, tp: TopicPartition) -> PartitionRecord | None:
    """Leader and ISR as they are stored; None if they do not exist or cannot be read."""
    try:
        data, stat = await store.get(partition_state_path(tp))
        node = PartitionStateNode.parse(data, stat.version)
    except (NoNode, BadNodeData):
        return None
    return PartitionRecord(node.leader_and_isr, node.controller_epoch)


class StoreWriter:
    """Makes changes durable in a store."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        """Writes changes, each with its own outcome.

        Raises:
            ControllerMoved: The fence failed or the session is lost; earlier writes remain.
        """
        outcomes: list[Committed | Conflict | FailedChange] = []
        for start in range(0, len(changes), MAX_PIPELINED):
            portion = changes[start : start + MAX_PIPELINED]
            await self._create_parents(portion, fence)
            outcomes += await _all_of(portion, lambda change: self._outcome(change, fence))
        return CommitOutcome(
            committed=tuple(outcome for outcome in outcomes if isinstance(outcome, Committed)),
            conflicts=tuple(outcome for outcome in outcomes if isinstance(outcome, Conflict)),
            failed=tuple(outcome for outcome in outcomes if isinstance(outcome, FailedChange)),
        )

    async def _create_parents(self, changes: Sequence[Change], fence: Fence) -> None:
        """Makes `partitions` nodes once per topic: otherwise all partitions would race for them."""
        topics = {
            change.tp.topic
            for change in changes
            if isinstance(change, PartitionChanged) and change.is_first
        }
        await _all_of(sorted(topics), lambda topic: self._create_parent(topic, fence))

    async def _create_parent(self, topic: str, fence: Fence) -> None:
        try:
            for operation in await missing_nodes(self._store, [partitions_path(topic)]):
                await self._store.multi([operation], fence=fence)
        except (NodeExists, NoNode, ConnectionLost):
            return  # A missing parent is found again when the state is written.
        except SessionExpired as error:
            raise ControllerMoved(f"the session is over: {error}") from error

    async def _outcome(self, change: Change, fence: Fence) -> Committed | Conflict | FailedChange:
        try:
            match change:
                case TopicRemoved(topic=topic):
                    return await self._remove_topic(change, topic, fence)
                case TopicDeletionCancelled(topic=topic):
                    await self._delete_tree(delete_topic_path(topic), fence)
                    return Committed(change, 0)
                case StoredReassignmentsChanged(reassignments=left):
                    await self._put_reassignments(left, fence)
                    return Committed(change, 0)
                case ConfigSet() | QuotaSet() | ScramSet() | ScramRemoved():
                    await write_entity(self._store, change, fence=fence)
                    return Committed(change, 0)
                case _:
                    return await self._transact(change, fence)
        except SessionExpired as error:
            raise ControllerMoved(f"the session is over: {error}") from error
        except ControllerMoved:
            raise
        except OdradekError as error:
            return FailedChange(change, error)

    async def _transact(self, change: Change, fence: Fence) -> Committed | Conflict:
        parts = change.changes if isinstance(change, Atomic) else (change,)
        for _ in range(MAX_RENDERINGS):
            rendered = [await self._render(part) for part in parts]
            operations = [operation for part in rendered for operation in part.operations]
            guards: dict[int, SingleChange] = {}
            start = 0
            for part, item in zip(parts, rendered, strict=True):
                if item.guard_index is not None:
                    guards[start + item.guard_index] = part
                start += len(item.operations)
            try:
                results = await self._store.multi(operations, fence=fence)
            except ConnectionLost:
                return await self._read_back(change, parts)
            except (NodeExists, NoNode, BadVersion) as error:
                guarded = guards.get(-1 if error.operation_index is None else error.operation_index)
                # A state whose parent is missing is not in conflict with another state.
                if guarded is None or (isinstance(error, NoNode) and _creates(guarded)):
                    continue
                return Conflict(change, await self._found(guarded))
            return Committed(change, _version_of(results, guards))
        raise StoreError(f"{change} could not be written in {MAX_RENDERINGS} attempts")

    async def _render(self, change: SingleChange) -> _Rendered:
        match change:
            case TopicCreated(topic=topic, configs=configs):
                path, data = config_path(ConfigNodeType.TOPIC, topic), encode_config(configs)
                is_left_over = await self._store.exists(path) is not None
                config = Set(path, data, ANY_VERSION) if is_left_over else Create(path, data)
                return _Rendered([config, Create(topic_path(topic), _topic_data(change))], 1)
            case PartitionsAdded(topic=topic) | AssignmentChanged(topic=topic):
                data = _topic_data(change)
                return _Rendered([Set(topic_path(topic), data, change.version)], 0)
            case PartitionChanged(tp=tp, is_first=True):
                parents = [partitions_path(tp.topic), partition_path(tp)]
                missing = await missing_nodes(self._store, parents)
                state = Create(partition_state_path(tp), _state_data(change))
                return _Rendered([*missing, state], len(missing))
            case PartitionChanged(tp=tp, state=state):
                path = partition_state_path(tp)
                return _Rendered([Set(path, _state_data(change), state.partition_version)], 0)
            case TopicDeletionRequested(topic=topic):
                return _Rendered(await missing_nodes(self._store, [delete_topic_path(topic)]), None)
            case AclAdded() | AclRemoved():
                raise ApiError(ErrorCode.SECURITY_DISABLED, "no authorizer stores access rules")
            case FeatureSet():
                raise ApiError(
                    ErrorCode.FEATURE_UPDATE_FAILED, "the store engine finalizes no features"
                )
            case _:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"{type(change).__name__} cannot be part of a group"
                )

    async def _put_reassignments(
        self, left: Mapping[TopicPartition, Sequence[int]], fence: Fence
    ) -> None:
        if not left:
            await self._delete_tree(REASSIGN_PARTITIONS, fence)
            return
        for _ in range(MAX_RENDERINGS):
            try:
                data = encode_reassignments(left)
                await self._store.set(REASSIGN_PARTITIONS, data, ANY_VERSION, fence=fence)
            except NoNode:
                return  # Its writer has withdrawn it.
            except ConnectionLost:
                await self._store.sync()
                continue
            return
        raise StoreError(
            f"{REASSIGN_PARTITIONS} could not be written in {MAX_RENDERINGS} attempts",
            path=REASSIGN_PARTITIONS,
        )

    # What is there instead

    async def _found(self, change: SingleChange) -> TopicRecord | PartitionRecord | None:
        match change:
            case TopicCreated(topic=topic) | PartitionsAdded(topic=topic):
                return await read_topic(self._store, topic)
            case AssignmentChanged(topic=topic):
                return await read_topic(self._store, topic)
            case PartitionChanged(tp=tp):
                return await read_partition(self._store, tp)
            case _:
                return None

    async def _read_back(
        self, change: Change, parts: Sequence[SingleChange]
    ) -> Committed | Conflict:
        """Finds out whether a transaction was applied; one applied part proves all of it."""
        await self._store.sync()
        part = parts[0]
        path, data, version = _expected(part)
        try:
            found_data, stat = await self._store.get(path)
        except NoNode:
            return Conflict(change, None)
        if found_data == data and version in (ANY_VERSION, stat.version):
            return Committed(change, stat.version)
        return Conflict(change, await self._found(part))

    # Removal

    async def _remove_topic(self, change: Change, topic: str, fence: Fence) -> Committed:
        await self._delete_tree(topic_path(topic), fence)
        await self._delete_tree(config_path(ConfigNodeType.TOPIC, topic), fence)
        await self._delete_tree(delete_topic_path(topic), fence)
        return Committed(change, 0)

    async def _delete_tree(self, path: str, fence: Fence) -> None:
        """Deletes a node, children first; missing nodes are skipped."""
        for _ in range(MAX_RENDERINGS):
            try:
                names, _stat = await self._store.children(path)
            except NoNode:
                return
            children = [f"{path}/{name}" for name in names]
            for start in range(0, len(children), MAX_PIPELINED):
                portion = children[start : start + MAX_PIPELINED]
                await _all_of(portion, lambda child: self._delete_tree(child, fence))
            try:
                await self._store.delete(path, ANY_VERSION, fence=fence)
            except NoNode:
                return
            except (NotEmpty, ConnectionLost):
                continue
            return
        raise StoreError(f"{path} could not be deleted in {MAX_RENDERINGS} attempts", path=path)


async def _all_of(items: Sequence[_T], write: Callable[[_T], Awaitable[_R]]) -> list[_R]:
    """Writes items at the same time, and waits for all; raises the first error."""

    async def begin(index: int, item: _T) -> _R:
        for _ in range(index // _BEGUN_PER_TURN):
            await asyncio.sleep(0)
        return await write(item)

    results: list[_R] = []
    for result in await asyncio.gather(
        *(begin(index, item) for index, item in enumerate(items)), return_exceptions=True
    ):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def _topic_data(change: TopicCreated | PartitionsAdded | AssignmentChanged) -> bytes:
    return TopicNode(topic_id=change.topic_id, assignment=change.assignment).encode()


def _state_data(change: PartitionChanged) -> bytes:
    return PartitionStateNode(change.state, change.controller_epoch).encode()


def _creates(change: SingleChange) -> bool:
    return isinstance(change, TopicCreated) or (
        isinstance(change, PartitionChanged) and change.is_first
    )


def _expected(change: SingleChange) -> tuple[str, bytes | None, int]:
    """Node, data and version that prove a change was written."""
    match change:
        case TopicCreated(topic=topic):
            return topic_path(topic), _topic_data(change), 0
        case PartitionsAdded(topic=topic) | AssignmentChanged(topic=topic):
            return topic_path(topic), _topic_data(change), change.version + 1
        case PartitionChanged(tp=tp, state=state, is_first=is_first):
            version = 0 if is_first else state.partition_version + 1
            return partition_state_path(tp), _state_data(change), version
        case TopicDeletionRequested(topic=topic):
            return delete_topic_path(topic), None, ANY_VERSION
        case _:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change} leaves nothing to read back")


def _version_of(results: Sequence[OperationResult], guards: dict[int, SingleChange]) -> int:
    """The version of the node of the last guarded change."""
    if not guards:
        return 0
    result = results[max(guards)]
    stat = result if isinstance(result, Stat) else getattr(result, "stat", None)
    assert isinstance(stat, Stat)
    return stat.version
