"""The journal and snapshot files: what survives a crash, and what refuses to open."""

import errno
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest

from odradek.coordination.codec import JOURNAL_HEAD, encode_record, encode_snapshot
from odradek.coordination.journal import JOURNAL_NAME, SNAPSHOT_NAME, Journal, lock_directory
from odradek.coordination.store import ANY_VERSION, Create, Delete, Operation, Set
from odradek.coordination.transactions import decide
from odradek.coordination.tree import NodeTree, Transaction
from odradek.errors import LogDirLockedError, StoreCorruptError
from odradek.files import Disk
from odradek.testing import SimDisk, SimulatedCrash

# A run of nine transactions in batches, with a snapshot in the middle (None).
RUN: list[list[list[Operation]] | None] = [
    [[Create("/a", b"1")]],
    [[Create("/b", bytes(5000))], [Create("/b/c")], [Set("/a", b"2", 0)]],
    None,
    [[Create("/e", b"x", ephemeral=True), Delete("/b/c", 0)]],
    [[Set("/a", bytes(9000), 1)], [Set("/a", None, 2)], [Create("/b/n", sequential=True)]],
    None,
    [[Delete("/a", ANY_VERSION)]],
]


def transactions_of(tree: NodeTree, batch: list[list[Operation]]) -> Iterator[Transaction]:
    for operations in batch:
        decision, _ = decide(tree, operations, zxid=tree.zxid + 1, session_id=7, fence=None)
        transaction = Transaction(tree.zxid + 1, decision.changes)
        tree.apply(transaction)
        yield transaction


def play(directory: str, disk: Disk, acknowledged: list[int]) -> None:
    """Opens the journal and writes RUN; `acknowledged` gets each zxid once it is durable."""
    journal, tree = Journal.open(directory, disk)
    try:
        for batch in RUN:
            if batch is None:
                journal.compact(tree)
            else:
                journal.append(list(transactions_of(tree, batch)))
                acknowledged.append(tree.zxid)
    finally:
        journal.close()


def prefixes() -> list[bytes]:
    """The tree after each zxid, as a snapshot: index 0 is the empty tree."""
    tree = NodeTree()
    trees = [encode_snapshot(tree)]
    for batch in RUN:
        for _ in transactions_of(tree, batch or []):
            trees.append(encode_snapshot(tree))
    return trees


PREFIXES = prefixes()


def check_recovered(directory: str, disk: Disk, acknowledged: list[int]) -> None:
    journal, tree = Journal.open(directory, disk)
    assert encode_snapshot(tree) == PREFIXES[tree.zxid]
    assert tree.zxid >= max(acknowledged, default=0)
    acknowledged.append(tree.zxid)  # Readers see it from now on.
    # It can be written on, and what is written is found again.
    (transaction,) = transactions_of(tree, [[Create("/after")]])
    journal.append([transaction])
    acknowledged.append(tree.zxid)
    journal.close()
    again, reopened = Journal.open(directory, disk)
    again.close()
    assert encode_snapshot(reopened) == encode_snapshot(tree)


def drop(disk: SimDisk, seed: int) -> None:
    disk.crash()


def keep(disk: SimDisk, seed: int) -> None:
    disk.crash(mode="keep")


def kill(disk: SimDisk, seed: int) -> None:
    disk.kill()


def tear(disk: SimDisk, seed: int) -> None:
    disk.crash(Random(seed), mode="torn")


@pytest.mark.slow
@pytest.mark.parametrize(("crash", "seeds"), [(drop, 1), (keep, 1), (kill, 1), (tear, 8)])
def test_a_crash_at_any_operation_leaves_a_prefix(
    tmp_path: Path, crash: Callable[[SimDisk, int], None], seeds: int
) -> None:
    """03b:ST-4, at the files: every write boundary, and every kind of loss behind it."""
    for seed in range(seeds):
        for point in count():
            directory = tmp_path / f"{seed}-{point}"
            directory.mkdir()
            disk = SimDisk(directory)
            acknowledged: list[int] = []
            disk.crash_at(point)
            try:
                play(str(directory), disk, acknowledged)
            except SimulatedCrash:
                crash(disk, seed * 1000 + point)
                check_recovered(str(directory), disk, acknowledged)
            else:
                assert point > 20
                break


@pytest.mark.slow
@pytest.mark.parametrize("crash", [drop, tear])
def test_a_second_crash_during_recovery_loses_nothing(
    tmp_path: Path, crash: Callable[[SimDisk, int], None]
) -> None:
    """03b:ST-4: what a killed process left un-synced must not be built upon."""
    for point in range(0, 24, 2 if crash is tear else 1):
        for second in count():
            directory = tmp_path / f"{point}-{second}"
            directory.mkdir()
            disk = SimDisk(directory)
            acknowledged: list[int] = []
            disk.crash_at(point)
            with pytest.raises(SimulatedCrash):
                play(str(directory), disk, acknowledged)
            disk.kill()
            disk.crash_at(second)
            try:
                check_recovered(str(directory), disk, acknowledged)
            except SimulatedCrash:
                crash(disk, second)
                journal, tree = Journal.open(str(directory), disk)
                journal.close()
                assert tree.zxid >= max(acknowledged, default=0)
            else:
                break


def write_run(tmp_path: Path) -> Path:
    journal, tree = Journal.open(str(tmp_path), Disk())
    for batch in RUN:
        if batch is not None:
            journal.append(list(transactions_of(tree, batch)))
    journal.close()
    return tmp_path / JOURNAL_NAME


@pytest.mark.slow
def test_a_kill_between_any_two_bytes_leaves_a_prefix(tmp_path: Path) -> None:
    """03b:ST-4: the file cut at each byte near a record border, and at every 251st elsewhere."""
    file = write_run(tmp_path)
    data = file.read_bytes()
    last_zxid = -1
    for length in sorted({*range(len(JOURNAL_HEAD), 120), *range(120, len(data), 251), len(data)}):
        file.write_bytes(data[:length])
        journal, tree = Journal.open(str(tmp_path), Disk())
        journal.close()
        assert encode_snapshot(tree) == PREFIXES[tree.zxid]
        assert last_zxid <= tree.zxid
        last_zxid = tree.zxid
        # The torn end is gone for good.
        assert file.stat().st_size <= length
    assert last_zxid == len(PREFIXES) - 1


def test_records_of_a_failed_sync_that_a_restart_has_read_are_not_lost_later(
    tmp_path: Path,
) -> None:
    """Reads still show the pages that the failed sync dropped, and no later sync saves them."""
    directory, disk = str(tmp_path), SimDisk(tmp_path)
    journal, tree = Journal.open(directory, disk)
    journal.append(list(transactions_of(tree, [[Create("/a")]])))
    disk.fail("fsync", path_contains=JOURNAL_NAME, times=1)
    with pytest.raises(OSError, match="Input/output error"):
        journal.append(list(transactions_of(tree, [[Create("/b", bytes(9000))]])))
    journal.close()
    journal, tree = Journal.open(directory, disk)
    assert tree.get("/b") is not None
    journal.append(list(transactions_of(tree, [[Create("/c")]])))
    journal.close()
    disk.crash()
    journal, reopened = Journal.open(directory, disk)
    journal.close()
    assert encode_snapshot(reopened) == encode_snapshot(tree)


@pytest.mark.parametrize("opened_before", range(3))
def test_running_out_of_descriptors_is_told_as_such(tmp_path: Path, opened_before: int) -> None:
    """No descriptor is closed twice, which could be another one by then."""
    directory, disk = str(tmp_path), SimDisk(tmp_path)
    journal, tree = Journal.open(directory, disk)
    journal.append(list(transactions_of(tree, [[Create("/a")]])))
    journal.close()
    disk.fail("open", path_contains=JOURNAL_NAME, error=errno.EMFILE, after=opened_before)
    with pytest.raises(OSError, match="Too many open files"):
        Journal.open(directory, disk)
    journal, reopened = Journal.open(directory, disk)
    journal.close()
    assert encode_snapshot(reopened) == encode_snapshot(tree)


def test_damage_before_the_end_refuses_to_open(tmp_path: Path) -> None:
    file = write_run(tmp_path)
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreCorruptError, match=rf"{JOURNAL_NAME} at offset 8: .* zxid 1,"):
        Journal.open(str(tmp_path), Disk())
    assert file.read_bytes() == data


def test_a_batch_torn_in_its_middle_is_cut_at_the_tear(tmp_path: Path) -> None:
    """Records 2 and 3 were one batch: an intact 3 proves nothing about 2."""
    tree = NodeTree()
    first, second, third = transactions_of(tree, [[Create("/a")], [Create("/b")], [Create("/c")]])
    start = JOURNAL_HEAD + encode_record(first, 0)
    torn = bytearray(encode_record(second, 1))
    torn[20] ^= 0xFF
    file = tmp_path / JOURNAL_NAME
    file.write_bytes(start + torn + encode_record(third, 1))
    journal, opened = Journal.open(str(tmp_path), Disk())
    journal.close()
    assert opened.zxid == 1
    assert file.read_bytes() == start


def test_a_gap_in_the_zxids_refuses_to_open(tmp_path: Path) -> None:
    tree = NodeTree()
    first, _, third = transactions_of(tree, [[Create("/a")], [Create("/b")], [Create("/c")]])
    records = encode_record(first, 0) + encode_record(third, 0)
    (tmp_path / JOURNAL_NAME).write_bytes(JOURNAL_HEAD + records)
    with pytest.raises(StoreCorruptError, match="expected zxid 2, found 3"):
        Journal.open(str(tmp_path), Disk())


def test_a_record_that_does_not_fit_the_tree_refuses_to_open(tmp_path: Path) -> None:
    tree = NodeTree()
    (first,) = transactions_of(tree, [[Create("/a")]])
    records = encode_record(first, 0) + encode_record(first._replace(zxid=2), 1)
    (tmp_path / JOURNAL_NAME).write_bytes(JOURNAL_HEAD + records)
    with pytest.raises(StoreCorruptError, match="zxid 2 cannot be applied: /a exists"):
        Journal.open(str(tmp_path), Disk())


@pytest.mark.parametrize("head", [b"something else", b"odrjrnl9"])
def test_a_foreign_file_refuses_to_open(tmp_path: Path, head: bytes) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(head + b"....")
    with pytest.raises(StoreCorruptError, match="expected b'odrjrnl1', found"):
        Journal.open(str(tmp_path), Disk())


@pytest.mark.parametrize("left", [b"", b"odr", bytes(8)])
def test_a_file_torn_at_its_making_starts_anew(tmp_path: Path, left: bytes) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(left)
    journal, tree = Journal.open(str(tmp_path), Disk())
    journal.close()
    assert tree.zxid == 0
    assert (tmp_path / JOURNAL_NAME).read_bytes() == JOURNAL_HEAD


def test_a_damaged_snapshot_or_a_missing_journal_refuses_to_open(tmp_path: Path) -> None:
    play(str(tmp_path), Disk(), [])
    snapshot = tmp_path / SNAPSHOT_NAME
    data = snapshot.read_bytes()
    snapshot.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StoreCorruptError, match=rf"{SNAPSHOT_NAME}: expected CRC"):
        Journal.open(str(tmp_path), Disk())
    snapshot.write_bytes(data)
    (tmp_path / JOURNAL_NAME).unlink()
    with pytest.raises(StoreCorruptError, match="is missing beside"):
        Journal.open(str(tmp_path), Disk())


def test_a_missing_snapshot_refuses_to_open(tmp_path: Path) -> None:
    play(str(tmp_path), Disk(), [])
    (tmp_path / SNAPSHOT_NAME).unlink()
    with pytest.raises(StoreCorruptError, match="expected zxid 1, found"):
        Journal.open(str(tmp_path), Disk())


def test_compaction_starts_the_journal_anew(tmp_path: Path) -> None:
    journal, tree = Journal.open(str(tmp_path), Disk())
    for index in range(5):
        journal.append(list(transactions_of(tree, [[Create(f"/{index}")]])))
    assert journal.record_count == 5
    journal.compact(tree)
    journal.close()
    assert (tmp_path / JOURNAL_NAME).read_bytes() == JOURNAL_HEAD
    journal, reopened = Journal.open(str(tmp_path), Disk())
    journal.close()
    assert encode_snapshot(reopened) == encode_snapshot(tree)


def test_the_directory_is_locked_and_the_holder_named(tmp_path: Path) -> None:
    fd = lock_directory(str(tmp_path))
    try:
        with pytest.raises(LogDirLockedError, match=f"in use by process {os.getpid()} "):
            lock_directory(str(tmp_path))
    finally:
        os.close(fd)
    os.close(lock_directory(str(tmp_path)))


def test_only_the_brokers_own_user_may_read_the_files(tmp_path: Path) -> None:
    """13 section 14: nodes hold passwords that administrators set."""
    journal, tree = Journal.open(str(tmp_path), Disk())
    journal.append(list(transactions_of(tree, [[Create("/a", b"xyzzy")]])))
    (tmp_path / f"{SNAPSHOT_NAME}.tmp").touch(0o644)  # Of an attempt that a crash ended.
    journal.compact(tree)
    journal.close()
    os.close(lock_directory(str(tmp_path)))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys((JOURNAL_NAME, SNAPSHOT_NAME, "coordination.lock"), 0o600)


def test_no_file_is_open_to_others_for_a_moment(tmp_path: Path) -> None:
    """What is restricted after it was made can be opened in between, and read later."""
    modes: list[int] = []

    class Witness(Disk):
        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if flags & os.O_CREAT:
                modes.append(mode)
            return super().open(path, flags, mode)

    journal, tree = Journal.open(str(tmp_path), Witness())
    journal.append(list(transactions_of(tree, [[Create("/a", b"xyzzy")]])))
    journal.compact(tree)
    journal.close()
    assert modes == [0o600, 0o600]


def test_files_that_others_could_read_are_restricted_when_they_are_opened(tmp_path: Path) -> None:
    journal, tree = Journal.open(str(tmp_path), Disk())
    journal.append(list(transactions_of(tree, [[Create("/a", b"xyzzy")]])))
    journal.compact(tree)
    journal.close()
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    journal, _ = Journal.open(str(tmp_path), Disk())
    journal.close()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_no_data_is_shown_which_may_be_a_secret() -> None:
    tree = NodeTree()
    operations: list[Operation] = [Create("/a", b"xyzzy"), Set("/a", b"xyzzy", 0)]
    [transaction] = transactions_of(tree, [operations])
    assert "xyzzy" not in f"{operations} {transaction} {tree.get('/a')}"
