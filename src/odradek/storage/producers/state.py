"""The producers of one partition: detects duplicates, gaps and zombies; tracks transactions.

**Deciding** (`check_append`), in this order; a producer's entry holds its epoch and its newest five
batches:

| # | batch of a producer that has an entry                     | answer                         |
|---|-----------------------------------------------------------|--------------------------------|
| 1 | same epoch, same first and last sequence as a cached one  | that batch: it is a duplicate  |
| 2 | transactional, none is open in its epoch, and its         | 48 INVALID_TXN_STATE           |
|   | coordinator has not verified one (`verifications`)        |                                |
|   | verified, but an earlier batch waits for it, too          | 45 OUT_OF_ORDER_SEQUENCE_NUMBER|
| 3 | lower epoch                                               | 47 INVALID_PRODUCER_EPOCH      |
| 4 | entry without an epoch                                    | any sequence is accepted       |
|   | higher epoch, first sequence not 0                        | 45                             |
|   | same epoch, first sequence does not follow the last one   | 45                             |
| 5 | a transaction is open, the batch is not transactional     | 48 INVALID_TXN_STATE           |

A producer without an entry may continue with any sequence: its state may have expired or been lost
with deleted records, which is not its fault (KIP-360); row 2 is the exception. Sequences are
checked for clients only, the epoch also for coordinators; a follower accepts every batch that its
leader has accepted.

**Applying** (`apply_append`) follows the batch that is in the segment, checked or not, so that
replaying the log gives the state that appending to it gave. `map_end_offset` says up to where.

**Snapshots** shorten the replay. Log start moves past a producer's last batch without an effect on
its entry: the producer is alive, and without it its duplicates would be written (KAFKA-7190).

Other modules check whether a client's batch is well-formed and may be transactional, ask the
coordinator of a transaction before its first batch here, read markers, write the transaction
index, and replay batches after `truncate_and_reload`. There is no lock: only the thread that owns
the log calls. Other threads read producers in a view (`views`), whose entries are replaced, not
edited.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.errors import ApiError, CorruptSnapshotError, ErrorCode
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import CONTROL_MASK, MAX_SEQUENCE, TRANSACTIONAL_MASK, BatchHeader
from odradek.records.control import EndTransactionMarker
from odradek.storage.producers import snapshot_files
from odradek.storage.producers.entry import (
    NO_EPOCH,
    NO_SEQUENCE,
    CachedBatch,
    ProducerEntry,
)
from odradek.storage.producers.unstable_transactions import (
    CompletedTransaction,
    UnstableTransactions,
)
from odradek.storage.producers.verifications import (
    Verifications,
    VerificationSwitch,
    is_first_of_transaction,
)
from odradek.storage.producers.views import ProducerView

__all__ = [
    "FIRST_VERSION_WITH_EPOCHS",
    "CachedBatch",
    "CompletedTransaction",
    "ProducerEntry",
    "ProducerStateManager",
]

logger = logging.getLogger(__name__)

# The transaction.version from which on each transaction has an epoch of its own.
FIRST_VERSION_WITH_EPOCHS: Final = 2


class ProducerStateManager:
    """The producers of one partition, up to `map_end_offset`.

    Args:
        topic_partition: For messages.
        directory: The partition directory, where snapshots are; it need not exist yet.
        disk: Where the files live.
        expiration_ms: How long a producer is kept after its newest batch or marker.
        verification_switch: Whether the first batch of a transaction is refused unless its
            coordinator has verified it; off if not given.

    Attributes:
        producers: Producer id -> entry. Read by others, changed here; an entry only if it is
            `own`.
        views: Those that other threads may still read.
        snapshots: The files.
        map_end_offset: The end of the applied part of the log, exclusive.
        last_snapshot_offset: No snapshot is needed up to here.
    """

    __slots__ = (
        "_transactions",
        "expiration_ms",
        "last_snapshot_offset",
        "map_end_offset",
        "producers",
        "snapshots",
        "topic_partition",
        "verification_switch",
        "verifications",
        "views",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        disk: Disk,
        expiration_ms: int,
        verification_switch: VerificationSwitch | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.snapshots = snapshot_files.SnapshotFiles(disk, directory)
        self.expiration_ms = expiration_ms
        self.verification_switch = verification_switch or VerificationSwitch()
        self.verifications = Verifications()
        self.producers: dict[int, ProducerEntry] = {}
        self.views: list[ProducerView] = []
        self.map_end_offset = 0
        self.last_snapshot_offset = 0
        self._transactions = UnstableTransactions()

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._transactions

    def view(self) -> ProducerView:
        """The producers as of now, for another thread."""
        view = ProducerView(self.producers)
        self.views.append(view)
        return view

    def own(self, entry: ProducerEntry) -> ProducerEntry:
        """The entry to edit: a copy that takes the place of one that another thread may read."""
        views = self.views
        while views and not views[-1].is_read:
            views.pop()
        if not views or views[-1].entries.get(entry.producer_id) is not entry:
            return entry
        copy = self.producers[entry.producer_id] = entry.copy()
        return copy

    # Appending

    def check_append(self, header: BatchHeader, origin: AppendOrigin) -> CachedBatch | None:
        """Decides on a batch of data with a producer id; changes nothing.

        Returns:
            None if it is to be written; otherwise the batch that it repeats, whose offsets are the
            answer.

        Raises:
            ApiError: 45, 47 or 48, by the table above.
        """
        entry = self.producers.get(header.producer_id)
        if header.attributes & TRANSACTIONAL_MASK and self.verification_switch.is_on:
            self.verifications.check(self.topic_partition, header, entry, origin)
        if entry is None:
            return None
        if origin is AppendOrigin.CLIENT:
            if header.producer_epoch == entry.producer_epoch:
                batches = entry.batches
                last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
                # The mask lets 0 follow the largest sequence. A batch that follows the newest one
                # is not a duplicate: the sequences of five batches never wrap around.
                if header.base_sequence != (last_sequence + 1) & MAX_SEQUENCE:
                    duplicate = entry.find_batch(header.base_sequence, header.last_sequence)
                    if duplicate is not None:
                        return duplicate
                    self._check_sequence(header, entry, (last_sequence + 1) & MAX_SEQUENCE)
            else:
                self._check_epoch(header, entry, origin)
                if header.base_sequence != 0:
                    self._check_sequence(header, entry, 0)
        else:
            self._check_epoch(header, entry, origin)
            if origin is AppendOrigin.REPLICATION:
                return None
        if entry.current_transaction_first_offset is not None and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self.topic_partition}: expected a transactional batch from producer "
                f"{header.producer_id}, whose transaction is open since offset "
                f"{entry.current_transaction_first_offset}; found one that is not",
            )
        return None

    def needs_verification(self, header: BatchHeader, *, adds: bool = False) -> bool:
        """Whether a transactional batch may be appended only after its coordinator was asked.

        A group's batch is given without a sequence. `adds`: the coordinator learns of the partition
        by the question alone, and is asked even where nothing is verified.
        """
        entry = self.producers.get(header.producer_id)
        return (adds or self.verification_switch.is_on) and is_first_of_transaction(
            header, entry, is_sequenced=header.base_sequence >= 0
        )

    def check_marker(
        self,
        header: BatchHeader,
        marker: EndTransactionMarker,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        transaction_version: int = 0,
    ) -> None:
        """Decides on the batch of a transaction marker; changes nothing.

        Under transaction version 2 each transaction has an epoch of its own, and its marker carries
        the next one. Then a marker of the producer's present epoch is late: it would end a later
        transaction. With no transaction open it is a repeated one, and is accepted (KAFKA-19999).

        Raises:
            ApiError: 47 for a stale producer epoch, 52 for a stale coordinator epoch.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(header, entry, origin)
        if (
            transaction_version >= FIRST_VERSION_WITH_EPOCHS
            and header.producer_epoch == entry.producer_epoch
            and entry.current_transaction_first_offset is not None
        ):
            self._refuse(
                origin,
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"expected a marker of an epoch above {entry.producer_epoch} of producer "
                f"{header.producer_id}, whose transaction is open since offset "
                f"{entry.current_transaction_first_offset}; found {header.producer_epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            self._refuse(
                origin,
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"expected a marker of coordinator epoch {entry.coordinator_epoch} or later for "
                f"producer {header.producer_id}, found {marker.coordinator_epoch}",
            )

    def _check_epoch(self, header: BatchHeader, entry: ProducerEntry, origin: AppendOrigin) -> None:
        if header.producer_epoch < entry.producer_epoch:
            self._refuse(
                origin,
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"expected epoch {entry.producer_epoch} or later of producer "
                f"{header.producer_id}, found {header.producer_epoch}",
            )

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry, expected: int) -> None:
        if entry.producer_epoch == NO_EPOCH:
            return
        self._refuse(
            AppendOrigin.CLIENT,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"expected sequence {expected} of producer {header.producer_id} epoch "
            f"{header.producer_epoch}, found {header.base_sequence}; its entry is {entry}",
        )

    def _refuse(self, origin: AppendOrigin, code: ErrorCode, why: str) -> None:
        """Raises; for a batch that the leader has accepted already, only logs."""
        if origin is not AppendOrigin.REPLICATION:
            raise ApiError(code, f"{self.topic_partition}: {why}")
        logger.info("%s: replicated, since the leader accepted it: %s", self.topic_partition, why)

    def apply_append(
        self,
        header: BatchHeader,
        *,
        first_offset: int,
        last_offset: int,
        marker: EndTransactionMarker | None = None,
    ) -> CompletedTransaction | None:
        """Applies a batch that is in the segment, appended now or replayed.

        Args:
            header: As it was written, with its final timestamps.
            first_offset: As it was written; a client's header has none of its own.
            last_offset: Likewise.
            marker: The marker of a control batch. None for one that the cleaner has emptied.

        Returns:
            The transaction that a marker has ended, if any. It stays unstable until
            `complete_transaction`, which follows once an aborted one is in the index.
        """
        self.map_end_offset = last_offset + 1
        attributes = header.attributes  # Bits instead of properties: this runs for each batch.
        if attributes & CONTROL_MASK:
            return None if marker is None else self._apply_marker(header, last_offset, marker)
        producer_epoch = header.producer_epoch
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(header.producer_id, producer_epoch)
            self.producers[header.producer_id] = entry
        else:
            if self.views:
                entry = self.own(entry)
            if entry.producer_epoch != producer_epoch:
                entry.producer_epoch = producer_epoch
                entry.batches.clear()
        timestamp = header.max_timestamp
        entry.last_timestamp = timestamp
        entry.batches.append(
            CachedBatch(header.last_sequence, last_offset, last_offset - first_offset, timestamp)
        )
        if attributes & TRANSACTIONAL_MASK:
            self.verifications.forget(header.producer_id)
            if entry.current_transaction_first_offset is None:
                entry.current_transaction_first_offset = first_offset
                self._transactions.begin(header.producer_id, first_offset)
        return None

    def apply_plain(
        self,
        base_offset: int,
        last_offset_delta: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> None:
        """`apply_append` of a stored data batch with a producer id and without a transaction."""
        last_offset = base_offset + last_offset_delta
        self.map_end_offset = last_offset + 1
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, producer_epoch)
        else:
            if self.views:
                entry = self.own(entry)
            if entry.producer_epoch != producer_epoch:
                entry.producer_epoch = producer_epoch
                entry.batches.clear()
        entry.last_timestamp = max_timestamp
        last_sequence = base_sequence
        if base_sequence >= 0:  # The mask lets 0 follow the largest.
            last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE
        entry.batches.append(
            CachedBatch(last_sequence, last_offset, last_offset_delta, max_timestamp)
        )

    def _apply_marker(
        self, header: BatchHeader, offset: int, marker: EndTransactionMarker
    ) -> CompletedTransaction | None:
        producer_id = header.producer_id
        self.verifications.forget(producer_id)
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        else:
            if self.views:
                entry = self.own(entry)
            if entry.producer_epoch != header.producer_epoch:
                entry.producer_epoch = header.producer_epoch
                entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        # A marker keeps the entry alive: without the entry, an older coordinator's marker would be
        # accepted (KAFKA-9144).
        entry.last_timestamp = header.max_timestamp
        first_offset = entry.current_transaction_first_offset
        if first_offset is None:
            return None
        entry.current_transaction_first_offset = None
        return CompletedTransaction(producer_id, first_offset, offset, not marker.is_commit)

    def update_map_end_offset(self, offset: int) -> None:
        """Sets the end of the applied log after batches without a producer, exclusive."""
        self.map_end_offset = offset

    def adopt(self, other: "ProducerStateManager") -> bool:
        """Takes over the state of a log with the same records, which is not used any more.

        Returns whether it has producers that the records alone do not show: those of records that
        retention or compaction removed.
        """
        is_richer = other.producers.keys() > self.producers.keys()
        self.producers = other.producers
        self.views.extend(other.views)  # Some of its entries are in them.
        self.verifications = other.verifications  # Questions under way hold that one.
        self._transactions = other._transactions  # noqa: SLF001 - of the same class
        self.map_end_offset = other.map_end_offset
        return is_richer

    # Transactions

    @property
    def is_stable(self) -> bool:
        """Whether no transaction is open or waits for its marker to be replicated."""
        return self._transactions.first_offset is None

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or whose marker is not replicated.

        May lie below the log start, if records of an open transaction were deleted.
        """
        return self._transactions.first_offset

    def last_stable_offset_for(self, completed: CompletedTransaction) -> int:
        """The last stable offset that goes into the index entry of a transaction just ended."""
        return self._transactions.last_stable_offset_for(completed)

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Marks an ended transaction: it is unstable only until its marker is replicated."""
        self._transactions.complete(completed)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Drops the transactions whose markers are replicated: those below `high_watermark`."""
        self._transactions.forget_replicated(high_watermark)

    # Expiry and truncation

    def remove_expired(self, now_ms: int) -> int:
        """Drops idle producers without an open transaction; returns how many.

        Idle time is counted from timestamps in the log: producers of old data are dropped at once.
        """
        expired = [entry for entry in self.producers.values() if self._is_expired(entry, now_ms)]
        for entry in expired:
            del self.producers[entry.producer_id]
        self.verifications.forget_before(now_ms - self.expiration_ms)
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.current_transaction_first_offset is None
            and now_ms - entry.last_timestamp >= self.expiration_ms
        )

    def truncate_and_reload(
        self, log_start_offset: int, log_end_offset: int, now_ms: int, *, oldest: int | None = None
    ) -> None:
        """Sets the state to that of an offset within the log, after it was loaded or truncated.

        Snapshots below `oldest`, the base of the first segment, or above the end are deleted: the
        one at that base has producers whose records are deleted. Unless the state is that of
        `log_end_offset` already, it is read from the newest valid snapshot, or is empty at the log
        start; the caller then has to replay batches from `map_end_offset` on.

        Raises:
            OSError: The disk refused.
        """
        lowest = log_start_offset + 1 if oldest is None else oldest
        self.snapshots.keep_between(lowest, log_end_offset)
        if self.map_end_offset == log_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        for offset in self.reload(log_start_offset, log_end_offset, now_ms, oldest=oldest):
            self.snapshots.delete(offset)

    def reload(
        self, log_start_offset: int, end_offset: int, now_ms: int, *, oldest: int | None = None
    ) -> list[int]:
        """Reads the state from the newest valid snapshot in [oldest, end]; removes no file.

        Without `oldest` the first is the offset after the log start. Returns the offsets of newer
        snapshots that are damaged; `map_end_offset` is as of `truncate_and_reload`.

        Raises:
            OSError: The disk refused.
        """
        self._clear(log_start_offset)
        lowest = log_start_offset + 1 if oldest is None else oldest
        damaged: list[int] = []
        for offset in reversed(self.snapshots.offsets()):
            if not lowest <= offset <= end_offset:
                continue
            try:
                entries = self.snapshots.load(offset)
            except CorruptSnapshotError as error:
                logger.warning("%s: passed over a snapshot: %s", self.topic_partition, error)
                damaged.append(offset)
                continue
            self._adopt(entries, offset, now_ms)
            break
        return damaged

    def _adopt(self, entries: Iterable[ProducerEntry], offset: int, now_ms: int) -> None:
        self._take([entry for entry in entries if not self._is_expired(entry, now_ms)], offset)

    def _take(self, alive: Sequence[ProducerEntry], offset: int) -> None:
        self.producers = {entry.producer_id: entry for entry in alive}
        for first_offset, producer_id in sorted(
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in alive
            if entry.current_transaction_first_offset is not None
        ):
            self._transactions.begin(producer_id, first_offset)
        self.map_end_offset = self.last_snapshot_offset = offset

    def become(self, other: "ProducerStateManager") -> None:
        """Adopts the state of a manager that was just reloaded and is not used any more."""
        self._clear(other.map_end_offset)
        self._take(list(other.producers.values()), other.map_end_offset)

    def recall(self, offset: int, now_ms: int) -> None:
        """Reads the state from the snapshot of `offset`, if it and the file beside it are valid.

        For a state that was replayed up to there: batches that the snapshot was made from may be
        damaged or compacted away by now.

        Raises:
            OSError: The disk refused.
        """
        if not self.snapshots.is_vouched_for(offset):
            return
        try:
            entries = self.snapshots.load(offset)
        except CorruptSnapshotError as error:
            logger.warning("%s: passed over a snapshot: %s", self.topic_partition, error)
            return
        self._clear(offset)
        self._adopt(entries, offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all state, snapshots included; the log is empty and starts at `offset`.

        Raises:
            OSError: The disk refused.
        """
        self._clear(offset)
        self.snapshots.withdraw()
        for snapshot_offset in self.snapshots.offsets():
            self.snapshots.delete(snapshot_offset)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Applies a new log start; producers stay, see the module's docstring."""
        self._transactions.forget_replicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        # A roll has made a snapshot there, if a segment begins there.
        self.last_snapshot_offset = max(self.last_snapshot_offset, log_start_offset)

    def _clear(self, offset: int) -> None:
        self.producers = {}
        self.verifications = Verifications()
        self._transactions.clear()
        self.map_end_offset = self.last_snapshot_offset = offset

    # Snapshots

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Writes a snapshot if the state has changed since the last one; returns the path.

        Args:
            sync: Whether it is durable on return; else `SnapshotFiles.sync` has to follow before
                the recovery point passes `map_end_offset`.

        Raises:
            OSError: The disk refused.
        """
        self.snapshots.finish()
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return None
        path = self.snapshots.write(offset, list(self.producers.values()), sync=sync)
        self.last_snapshot_offset = offset
        return path

    def begin_snapshot(self) -> None:
        """Takes a snapshot as `take_snapshot` does without a sync, if there are few producers.

        That of many is begun: a thread has to write it, see `SnapshotFiles.unwritten`.

        Raises:
            OSError: The disk refused.
        """
        offset = self.map_end_offset
        if not snapshot_files.are_many(len(self.producers)):
            self.take_snapshot(sync=False)
        elif offset > self.last_snapshot_offset:
            self.snapshots.begin(offset, self.view())
            self.last_snapshot_offset = offset
