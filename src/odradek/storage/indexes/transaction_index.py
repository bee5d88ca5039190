"""Transaction index of a segment: its aborted transactions.

The answer to a read-committed fetch lists the aborted transactions of its range, and the client
drops their records. This is a plain file that only grows, neither mapped nor preallocated, and it
exists only once a transaction was aborted.

Entry, big-endian, 34 bytes:

    bytes   field
    0-1     version, int16, 0
    2-9     producer id, int64
    10-17   first offset of the transaction, int64
    18-25   last offset, that of its abort marker, int64
    26-33   last stable offset once it was aborted, int64

Invariant: last offsets strictly increase; the last stable offset of an entry is at most its last
offset + 1. The file is read once, when first needed, and then kept as a list; no descriptor stays
open. A list that was returned to a caller is never shortened: truncation replaces it.

A missing entry makes clients see records that were never committed, and the file itself does not
show that. So when a segment is complete, or its log is closed, `seal` writes the length and the
CRC-32C of the file beside it (`.txnproof`, int32 and uint32; Kafka ignores it), and `sanity_check`
compares the file with it. On a contradiction the index is rebuilt from the batches and gets a new
proof. An index without a proof, as Kafka writes it, is accepted if the caller finds the markers
that its entries name.
"""

import contextlib
import errno
import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from odradek.errors import CorruptIndexError
from odradek.files import Disk, write_atomically
from odradek.storage.paths import TRANSACTION_INDEX_SUFFIX, TRANSACTION_PROOF_SUFFIX

__all__ = ["AbortedTransaction", "TransactionIndex", "encode_aborted_transaction"]

_VERSION = 0
_ENTRY = Struct(">hqqqq")
_SIZE = _ENTRY.size
_PROOF = Struct(">iI")
_last_offset = attrgetter("last_offset")
_BLOCK = 256  # Entries.


class AbortedTransaction(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int  # Of the abort marker.
    last_stable_offset: int  # As it was when the marker had been written.


class _Block(NamedTuple):
    """What is known of `_BLOCK` entries that follow each other.

    While one transaction is open for long, later ones may be aborted by the hundred thousand. A
    read of what stands before them passes them by the block.
    """

    lowest_first_offset: int
    highest_last_stable_offset: int

    def concerns(self, upper_bound: int) -> bool:
        """Whether an entry may be below this end of a read, or be the last to look at."""
        return (
            self.lowest_first_offset < upper_bound or self.highest_last_stable_offset >= upper_bound
        )


def encode_aborted_transaction(transaction: AbortedTransaction) -> bytes:
    """Returns the entry of `transaction`."""
    return _ENTRY.pack(_VERSION, *transaction)


class TransactionIndex:
    """The `.txnindex` file, which need not exist."""

    __slots__ = (
        "_blocks",
        "_disk",
        "_entries",
        "_lock",
        "_name_unsynced",
        "_summed",
        "base_offset",
        "path",
        "sealed",
    )

    def __init__(self, path: str, base_offset: int, *, disk: Disk) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        self._lock = threading.RLock()
        self._entries: list[AbortedTransaction] | None = None  # None until read.
        self._blocks: list[_Block] = []  # Of the list in `_summed`, as far as they are known.
        self._summed: list[AbortedTransaction] | None = None
        self._name_unsynced = False  # The file is ours and its directory was not synced since.
        # Length and CRC-32C of the file when it was last sealed; (-1, 0): not known.
        self.sealed = (-1, 0)

    def append(self, transaction: AbortedTransaction) -> None:
        """Adds an entry, creating the file with the first one.

        Raises:
            ValueError: Its last offset is not above that of the entry before, or below its first.
            CorruptIndexError: The file so far cannot be read.
            OSError: The entry was not written, or only in part.
        """
        with self._lock:
            entries = self._loaded()
            if entries and transaction.last_offset <= entries[-1].last_offset:
                raise ValueError(
                    f"transaction index {self.path}: last offset {transaction.last_offset} is not"
                    f" above {entries[-1].last_offset}, that of the entry before"
                )
            if transaction.first_offset > transaction.last_offset:
                raise ValueError(
                    f"transaction index {self.path}: {transaction} ends before it starts"
                )
            data = encode_aborted_transaction(transaction)
            if not entries:
                self._name_unsynced = True
            fd = self._disk.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                written = self._disk.write(fd, data)
            finally:
                self._disk.close(fd)
            if written != len(data):
                raise OSError(
                    errno.ENOSPC, f"short write: {written} of {len(data)} bytes", self.path
                )
            entries.append(transaction)

    @property
    def has_entries(self) -> bool:
        """Whether a transaction was aborted here.

        Raises:
            CorruptIndexError: The file cannot be read.
        """
        return bool(self._loaded())

    def has_entries_from(self, offset: int) -> bool:
        """Whether an aborted transaction ends at an offset or behind it.

        Raises:
            CorruptIndexError: The file cannot be read.
        """
        entries = self._loaded()
        return bool(entries) and entries[-1].last_offset >= offset

    def all_entries(self) -> Sequence[AbortedTransaction]:
        """Returns all entries in order.

        Raises:
            CorruptIndexError: The file cannot be read.
        """
        return tuple(self._loaded())

    def collect_aborted(
        self, fetch_offset: int, upper_bound: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions that touch [fetch_offset, upper_bound).

        The second value says whether the list is complete; otherwise the next segment may have
        more: a transaction is listed in the segment of its marker.

        Raises:
            CorruptIndexError: The file cannot be read.
        """
        entries = self._loaded()
        at, end = bisect_left(entries, fetch_offset, key=_last_offset), len(entries)
        blocks = self._summed_up(entries) if end - at > _BLOCK else ()
        found: list[AbortedTransaction] = []
        while at < end:
            block = at // _BLOCK
            stop = min(end, (block + 1) * _BLOCK)
            if block >= len(blocks) or blocks[block].concerns(upper_bound):
                for transaction in entries[at:stop]:
                    if transaction.first_offset < upper_bound:
                        found.append(transaction)
                    if transaction.last_stable_offset >= upper_bound:
                        return found, True
            at = stop
        return found, False

    def _summed_up(self, entries: list[AbortedTransaction]) -> Sequence["_Block"]:
        """The blocks of entries that are full."""
        with self._lock:
            if entries is not self._entries:
                return ()  # Replaced meanwhile.
            if self._blocks and self._summed is not entries:
                self._blocks = []
            self._summed = entries
            blocks = self._blocks
            for start in range(len(blocks) * _BLOCK, len(entries) - _BLOCK + 1, _BLOCK):
                block = entries[start : start + _BLOCK]
                first = min(one.first_offset for one in block)
                blocks.append(_Block(first, max(one.last_stable_offset for one in block)))
            return blocks

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose last offset is `offset` or above.

        Raises:
            CorruptIndexError: The file cannot be read.
        """
        with self._lock:
            entries = self._loaded()
            keep = bisect_left(entries, offset, key=_last_offset)
            if keep < len(entries):
                self._cut(keep * _SIZE)
                self._entries = entries[:keep]

    def replace(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Replaces all entries; a crash leaves the old file or the new one.

        Raises:
            OSError: The disk refused.
        """
        with self._lock:
            data = b"".join(map(encode_aborted_transaction, transactions))
            if data != self._read(self.path):
                write_atomically(self._disk, self.path, data)
            self._entries = list(transactions)
            self.seal()

    def reset(self) -> None:
        """Drops all entries, readable or not."""
        with self._lock:
            self._cut(0)
            self._entries = []

    def seal(self) -> None:
        """Writes a proof of the entries, which are complete; none without entries.

        A file that cannot be read gets no proof: the next start detects that by itself.

        Raises:
            OSError: The disk refused.
        """
        with self._lock:
            try:
                entries = self._loaded()
                self.sealed = self._length_and_crc(entries)
            except CorruptIndexError:
                entries = []
                self.sealed = (-1, 0)
            proof = _PROOF.pack(*self.sealed)
            if not entries:
                self._delete_proof()
            elif self._read(self.proof_path) != proof:
                fd = self._disk.open(self.proof_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                try:
                    written = self._disk.write(fd, proof)
                finally:
                    self._disk.close(fd)
                if written != len(proof):
                    raise OSError(errno.ENOSPC, "short write", self.proof_path)

    @staticmethod
    def _length_and_crc(entries: Sequence[AbortedTransaction]) -> tuple[int, int]:
        data = b"".join(map(encode_aborted_transaction, entries))
        return len(data), crc32c(data)

    def holds(self, length: int, crc: int) -> bool:
        """Whether the file has this length and CRC-32C; one that is missing has 0 bytes."""
        try:
            return self._length_and_crc(self._loaded()) == (length, crc)
        except CorruptIndexError:
            return False

    def distrust(self) -> None:
        """Takes the proof away from a file that is known to be wrong.

        Raises:
            OSError: The disk refused.
        """
        with self._lock:
            self._delete_proof()

    @property
    def proof_path(self) -> str:
        """Path of the proof, which need not exist."""
        head, suffix, stage = self.path.rpartition(TRANSACTION_INDEX_SUFFIX)
        return f"{head}{TRANSACTION_PROOF_SUFFIX}{stage}" if suffix else f"{self.path}.proof"

    def _delete_proof(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(self.proof_path)

    def proven_entries(self) -> Sequence[AbortedTransaction]:
        """All entries, if the file matches its proof; none otherwise."""
        try:
            return self.all_entries() if self.sanity_check() else ()
        except CorruptIndexError:
            return ()

    def sanity_check(self) -> bool:
        """Reads the file and checks it against its proof; returns whether there is one.

        Raises:
            CorruptIndexError: The index has to be rebuilt.
        """
        proof = self._read(self.proof_path)
        if proof:
            data = self._read(self.path)
            if proof != _PROOF.pack(len(data), crc32c(data)):
                raise CorruptIndexError(
                    f"transaction index {self.path}: its {len(data)} bytes, CRC {crc32c(data):08x},"
                    f" are not those that {self.proof_path} names: {proof.hex(' ', 4)}"
                )
        for transaction in self._loaded():
            if transaction.last_offset < self.base_offset:
                raise CorruptIndexError(
                    f"transaction index {self.path}: last offset {transaction.last_offset} is below"
                    f" the base offset {self.base_offset}"
                )
        return bool(proof)

    def flush(self) -> None:
        """Makes the entries durable, and the name of a file created here.

        May run while another thread renames or deletes; without a file nothing is synced.
        """
        while True:
            with self._lock:
                path, name_unsynced = self.path, self._name_unsynced
            try:
                self._disk.fsync_path(path)
            except FileNotFoundError:
                with self._lock:
                    if self.path == path:
                        return
            else:
                break
        if name_unsynced:
            self._disk.fsync_dir(os.path.dirname(path))
            self._name_unsynced = False

    def close(self) -> None:
        """Drops the entries in memory; no descriptor is open."""
        with self._lock:
            self._entries = None

    def rename_to(self, path: str) -> None:
        """Renames the file, if there is one."""
        with self._lock:
            proof_path = self.proof_path
            try:
                self._disk.rename(self.path, path)
            except FileNotFoundError:
                if os.path.exists(self.path):  # Then the target's directory is missing.
                    raise
            self.path = path
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(proof_path, self.proof_path)

    def update_directory(self, directory: str) -> None:
        """Uses the new path of a renamed directory."""
        with self._lock:
            self.path = os.path.join(directory, os.path.basename(self.path))

    def delete_if_exists(self) -> bool:
        """Removes the file; returns whether it existed."""
        with self._lock:
            self._entries = []
            self._delete_proof()
            try:
                self._disk.unlink(self.path)
            except FileNotFoundError:
                return False
            return True

    def file_exists(self) -> bool:
        """Whether the file exists."""
        return os.path.exists(self.path)

    def _loaded(self) -> list[AbortedTransaction]:
        entries = self._entries
        if entries is None:
            with self._lock:
                entries = self._entries
                if entries is None:
                    entries = self._entries = self._parse(self._read(self.path))
        return entries

    def _read(self, path: str) -> bytes:
        try:
            fd = self._disk.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            data = bytearray()
            while chunk := self._disk.pread(fd, 1 << 20, len(data)):
                data += chunk
        finally:
            self._disk.close(fd)
        return bytes(data)

    def _parse(self, data: bytes) -> list[AbortedTransaction]:
        if len(data) % _SIZE:
            raise CorruptIndexError(
                f"transaction index {self.path}: length {len(data)} is no multiple of {_SIZE}"
            )
        entries: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(data):
            transaction = AbortedTransaction(*fields)
            position = len(entries) * _SIZE
            if version != _VERSION:
                raise CorruptIndexError(
                    f"transaction index {self.path}: version {version} at byte {position},"
                    f" expected {_VERSION}"
                )
            if transaction.first_offset > transaction.last_offset or (
                entries and transaction.last_offset <= entries[-1].last_offset
            ):
                raise CorruptIndexError(
                    f"transaction index {self.path}: {transaction} at byte {position}: offsets"
                    " do not increase"
                )
            entries.append(transaction)
        return entries

    def _cut(self, length: int) -> None:
        try:
            fd = self._disk.open(self.path, os.O_WRONLY)
        except FileNotFoundError:
            return
        try:
            self._disk.ftruncate(fd, length)
        finally:
            self._disk.close(fd)
