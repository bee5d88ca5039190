"""The embedded coordination store: one process, one or several brokers, durable on local disk.

`EmbeddedEngine` owns the tree and its files; `connect` gives each broker its own session as an
`EmbeddedStore`. One task commits, in turns of decide → persist → apply:

1. Takes the queued transactions and decides them, one upon the other, against the durable tree.
2. Makes the batch durable with one write and one sync on the executor.
3. Applies it in order: after each transaction its watches fire and its caller is answered.

Nothing is visible to a reader, a watcher or a caller before it is durable. That includes refusals:
a `NodeExists` may be due to a transaction of the same batch. Reads never wait.

A session ends by `close`, or by `expire` when its broker failed or a test calls it; there is no
session timeout, since no link can break inside one process. When the disk fails there is no retry:
all sessions are LOST and leaving the engine's ``async with`` raises `StorageError`.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from odradek.coordination.journal import Journal, lock_directory
from odradek.coordination.session import EmbeddedSession, EmbeddedStore
from odradek.coordination.store import (
    ANY_VERSION,
    Delete,
    Operation,
    OperationResult,
    SessionState,
)
from odradek.coordination.transactions import decide
from odradek.coordination.tree import NodeCreated, NodeTree, Transaction, TreeDraft, TreeNode
from odradek.coordination.watches import WatchTable
from odradek.errors import SessionExpired, StorageError, StoreError, without_traceback
from odradek.files import Disk

__all__ = ["EmbeddedEngine", "EmbeddedStore"]

# Transactions between two snapshots: bounds the journal to a few MB and the replay to 0.25 s.
SNAPSHOT_INTERVAL = 10_000
# Transactions made durable by one sync. Deciding and applying one takes 30 µs of the event loop, so
# a full batch occupies it for less than a millisecond at a time.
MAX_BATCH_TRANSACTIONS = 50
# Callers beyond this wait to enqueue. Far more than all brokers of a process have in flight.
MAX_QUEUED_TRANSACTIONS = 10_000

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Request:
    """A queued transaction; `operations` is None for the end of the session."""

    session: EmbeddedSession
    session_id: int
    operations: Sequence[Operation] | None
    fence: int | None
    answer: asyncio.Future[list[OperationResult]]
    # Set by decide: the transaction to apply (None: nothing) and the answer.
    transaction: Transaction | None = None
    outcome: list[OperationResult] | StoreError = field(default_factory=list)


class EmbeddedEngine:
    """The store of one directory; use it as ``async with``.

    Args:
        directory: An existing directory; the engine keeps three plain files in it.
        disk: The disk seam.
        executor: Runs blocking calls; None is the event loop's default.
        snapshot_interval: Transactions between two snapshots.
    """

    def __init__(
        self,
        directory: str,
        *,
        disk: Disk | None = None,
        executor: Executor | None = None,
        snapshot_interval: int = SNAPSHOT_INTERVAL,
    ) -> None:
        self._directory = directory
        self._disk = disk or Disk()
        self._executor = executor
        self._snapshot_interval = snapshot_interval
        self._queue: asyncio.Queue[_Request | None] = asyncio.Queue(MAX_QUEUED_TRANSACTIONS)
        self._sessions: list[EmbeddedSession] = []
        # Ids of sessions that may still write; changes in the order of decide.
        self._live_ids: set[int] = set()
        self._session_count = 0
        self._watches = WatchTable()
        self._tree = NodeTree()
        self._replacements: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Opens the files and deletes all ephemeral nodes: their sessions ended with a process.

        Raises:
            LogDirLockedError: Another engine has the directory; the message names its process.
            StoreCorruptError: The files are damaged.
            OSError: The disk failed.
        """
        self._lock_fd = lock_directory(self._directory)
        try:
            self._journal, self._tree = await self._blocking(
                lambda: Journal.open(self._directory, self._disk)
            )
            try:
                await self._purge_ephemerals()
            except BaseException:
                self._journal.close()
                raise
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._first_session_id = (self._tree.zxid + 1) << 24
        self._is_open = True
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._committer = self._tasks.create_task(self._commit_forever(), name="store-committer")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commits the queued transactions, ends all sessions, closes the files.

        Raises:
            StorageError: The disk had failed.
        """
        self._is_open = False
        try:
            try:
                if not self._committer.done():
                    await self._queue.put(None)
                    await asyncio.wait([self._committer])
            except asyncio.CancelledError as cancelled:
                # Passed to the task group, which ends its tasks before it raises it again.
                kind, error, traceback = type(cancelled), cancelled, cancelled.__traceback__
            for task in self._replacements:
                task.cancel()
            if not isinstance(error, asyncio.CancelledError):
                # Any other error of the body is raised as it is, not wrapped into a group.
                kind, error, traceback = None, None, None
            await self._tasks.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            failures = group.subgroup(StorageError)
            if failures is None:
                raise
            raise failures.exceptions[0] from group
        finally:
            self._journal.close()
            os.close(self._lock_fd)

    def connect(self) -> "EmbeddedStore":
        """Opens a session.

        Raises:
            SessionExpired: The engine is closed or failed.
        """
        if not self._is_open:
            raise SessionExpired(f"the embedded store in {self._directory} is closed")
        session = EmbeddedSession(self._end_session)
        self._sessions.append(session)
        session.connect(self._new_session_id())
        return EmbeddedStore(self, session)

    @property
    def last_zxid(self) -> int:
        """The zxid of the last durable transaction."""
        return self._tree.zxid

    # What stores and sessions ask for

    def read(self, path: str) -> TreeNode | None:
        """The durable node at `path`."""
        return self._tree.get(path)

    def child_names(self, path: str) -> list[str]:
        """Sorted names below `path`."""
        return self._tree.children(path)

    @property
    def watches(self) -> WatchTable:
        """The armed watches of all sessions."""
        return self._watches

    async def commit(
        self, session: EmbeddedSession, operations: Sequence[Operation] | None, fence: int | None
    ) -> list[OperationResult]:
        """Queues a transaction (None: the end of the session) and waits for its outcome."""
        answer: asyncio.Future[list[OperationResult]] = asyncio.get_running_loop().create_future()
        if not self._is_open:
            raise SessionExpired(f"the embedded store in {self._directory} is closed")
        await self._queue.put(_Request(session, session.id, operations, fence, answer))
        if self._committer.done():  # It ended while the caller waited for room in the queue.
            raise SessionExpired(f"the embedded store in {self._directory} has ended")
        return await answer

    async def _end_session(self, session: EmbeddedSession) -> None:
        await self.commit(session, None, None)

    def _new_session_id(self) -> int:
        self._session_count += 1
        session_id = self._first_session_id + self._session_count
        self._live_ids.add(session_id)
        return session_id

    # The committer

    async def _commit_forever(self) -> None:
        batch: list[_Request] = []
        try:
            is_running = True
            while is_running:
                batch, is_running = await self._next_batch()
                self._decide_batch(batch)
                await self._persist(batch)
                for request in batch:
                    self._apply(request)
                if self._journal.record_count >= self._snapshot_interval:
                    await self._blocking(lambda: self._journal.compact(self._tree))
        except OSError as error:
            message = f"embedded store in {self._directory} failed: {error}"
            raise StorageError(self._directory, message) from error
        finally:
            self._is_open = False
            self._refuse(batch)
            self._lose_all_sessions()

    async def _next_batch(self) -> tuple[list[_Request], bool]:
        """The queued requests, at least one, and whether more may follow."""
        batch: list[_Request] = []
        request = await self._queue.get()
        while request is not None:
            batch.append(request)
            if self._queue.empty() or len(batch) == MAX_BATCH_TRANSACTIONS:
                return batch, True
            request = self._queue.get_nowait()
        return batch, False

    def _decide_batch(self, batch: list[_Request]) -> None:
        """Sets transaction and outcome of each request; the tree does not change."""
        draft = TreeDraft(self._tree)
        zxid = self._tree.zxid
        for index, request in enumerate(batch):
            if request.session_id not in self._live_ids:
                request.outcome = SessionExpired(f"session {request.session_id:#x} has ended")
                continue
            operations = request.operations
            if operations is None:
                self._live_ids.discard(request.session_id)
                operations = self._deletions_for_end(request.session_id, batch[:index], draft)
            try:
                decision, top = decide(
                    draft,
                    operations,
                    zxid=zxid + 1,
                    session_id=request.session_id,
                    fence=request.fence,
                )
            except StoreError as error:
                request.outcome = without_traceback(error)
                continue
            request.outcome = decision.results
            if decision.changes:
                top.merge_into_base()
                zxid += 1
                request.transaction = Transaction(zxid, decision.changes)

    def _deletions_for_end(
        self, session_id: int, earlier: Sequence[_Request], draft: TreeDraft
    ) -> list[Operation]:
        """Deletions of an ended session's ephemerals, those of the same batch included."""
        paths = set(self._tree.ephemerals(session_id))
        for request in earlier:
            changes = request.transaction.changes if request.transaction else ()
            paths.update(change.path for change in changes if isinstance(change, NodeCreated))
        nodes = ((path, draft.get(path)) for path in sorted(paths))
        return [
            Delete(path, ANY_VERSION)
            for path, node in nodes
            if node is not None and node.ephemeral_owner == session_id
        ]

    async def _persist(self, batch: list[_Request]) -> None:
        transactions = [r.transaction for r in batch if r.transaction is not None]
        if transactions:
            await self._blocking(lambda: self._journal.append(transactions))

    def _apply(self, request: _Request) -> None:
        outcome = request.outcome
        is_end = request.operations is None and not isinstance(outcome, StoreError)
        if is_end:  # Its watches end first and do not see the deletion of its ephemerals.
            self._watches.drop(request.session)
        if request.transaction is not None:
            self._watches.fire(self._tree.apply(request.transaction))
        if is_end:
            self._lose_session(request.session)
        if request.answer.done():  # The caller was cancelled meanwhile.
            return
        if isinstance(outcome, StoreError):
            request.answer.set_exception(outcome)
        else:
            request.answer.set_result(outcome)

    # Ends

    def _lose_session(self, session: EmbeddedSession) -> None:
        session.lose()
        if session.is_closed or not self._is_open:
            self._sessions.remove(session)
        else:
            task = self._tasks.create_task(self._replace(session), name="store-session-replacement")
            self._replacements.add(task)
            task.add_done_callback(self._replacements.discard)

    async def _replace(self, session: EmbeddedSession) -> None:
        await session.prepare_replacement()
        if session.is_closed or not self._is_open:
            self._sessions.remove(session)
        else:
            session.replace(self._new_session_id())

    def _lose_all_sessions(self) -> None:
        self._live_ids.clear()
        for session in self._sessions:
            self._watches.drop(session)
            if session.state is not SessionState.LOST:
                session.lose()

    def _refuse(self, batch: list[_Request]) -> None:
        """Answers the callers that still wait when the committer has ended."""
        while not self._queue.empty():
            request = self._queue.get_nowait()
            if request is not None:
                batch.append(request)
        for request in batch:
            if not request.answer.done():
                request.answer.set_exception(
                    SessionExpired(f"the embedded store in {self._directory} has ended")
                )

    async def _purge_ephemerals(self) -> None:
        operations = [Delete(path, ANY_VERSION) for path in self._tree.ephemerals()]
        if not operations:
            return
        zxid = self._tree.zxid + 1
        decision, _ = decide(self._tree, operations, zxid=zxid, session_id=0, fence=None)
        transaction = Transaction(zxid, decision.changes)
        await self._blocking(lambda: self._journal.append([transaction]))
        self._tree.apply(transaction)

    async def _blocking(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)
