"""Files that vouch for others: a lost, exchanged or copied one is found out when a log opens."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from odradek.errors import CorruptIndexError
from odradek.files import Disk
from odradek.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from tests.support.log_scenarios import abort, append_leader, transactional, visible
from tests.support.logs import LogFixture, batch, offsets, read_all

CONFIG = LogConfig(index_interval_bytes=200, segment_index_bytes=480)


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def with_aborted_transactions(fixture: LogFixture) -> Log:
    """Aborted records at 0 and at 3, each in a segment of its own; a third segment from 6 on."""
    log = fixture.open()
    for sequence in (0, 1):
        append_leader(log, transactional(sequence))
        abort(log)
        append_leader(log, batch())
        log.roll()
    append_leader(log, batch())
    log.update_high_watermark(log.log_end_offset)
    return log


def seen(log: Log) -> list[int]:
    log.update_high_watermark(log.log_end_offset)
    return sorted(visible(log, 0))


@pytest.mark.parametrize("kind", ["flip", "delete", "empty", "swap", "no proof", "proof flipped"])
@pytest.mark.parametrize("clean", [True, False])
def test_aborted_records_stay_hidden(kind: str, clean: bool, tmp_path: Path) -> None:
    """01 section 2: an entry that is missing would show records that were never committed."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = with_aborted_transactions(fixture)
        log.flush()
        assert seen(log) == [2, 5, 6]
        recovery_point = fixture.close() if clean else fixture.abandon()
        first, second = (Path(fixture.path(name(base, ".txnindex"))) for base in (0, 3))
        if kind == "flip":
            first.write_bytes(first.read_bytes()[:17] + b"\1" + first.read_bytes()[18:])
        elif kind == "delete":
            first.unlink()
        elif kind == "empty":
            first.write_bytes(b"")
        elif kind == "swap":
            data = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(data)
        elif kind == "no proof":
            first.with_suffix(".txnproof").unlink()
        else:
            first.with_suffix(".txnproof").write_bytes(bytes(8))
        before = Path(fixture.path(name(3, ".txnproof"))).read_bytes()

        log = fixture.open(clean=clean, recovery_point=recovery_point)

        assert seen(log) == [2, 5, 6]
        assert first.with_suffix(".txnproof").exists()
        assert Path(fixture.path(name(3, ".txnproof"))).read_bytes() == before


def test_an_index_without_a_proof_needs_the_markers_that_it_names(tmp_path: Path) -> None:
    """As Kafka leaves it: what no marker bears out is rebuilt."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        with_aborted_transactions(fixture)
        recovery_point = fixture.close()
        first = Path(fixture.path(name(0, ".txnindex")))
        first.with_suffix(".txnproof").unlink()
        index = TransactionIndex(str(first), 0, disk=Disk())
        index.reset()
        index.append(AbortedTransaction(4000, 0, 2, 3))  # The marker is at 1.
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert seen(log) == [2, 5, 6]


def test_a_proof_follows_its_index(tmp_path: Path) -> None:
    index = TransactionIndex(str(tmp_path / "00.txnindex.cleaned"), 0, disk=Disk())
    index.seal()
    assert os.listdir(tmp_path) == []
    index.append(AbortedTransaction(1, 0, 2, 3))
    assert not index.sanity_check()
    index.seal()
    assert index.sanity_check()
    index.rename_to(str(tmp_path / "00.txnindex"))
    assert sorted(os.listdir(tmp_path)) == ["00.txnindex", "00.txnproof"]
    index.append(AbortedTransaction(1, 3, 4, 5))
    with pytest.raises(CorruptIndexError, match="txnproof"):
        index.sanity_check()
    index.replace(index.all_entries())
    assert index.sanity_check()
    index.delete_if_exists()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["delete", "zero"])
def test_a_transaction_stays_open_without_its_snapshot(kind: str, tmp_path: Path) -> None:
    """10 section 8.4: also if its first records are below the log start."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, 3))
        append_leader(log, batch())
        append_leader(log, transactional(3))
        log.update_high_watermark(5)
        log.maybe_increment_log_start_offset(2)
        assert log.last_stable_offset == 2
        recovery_point = fixture.close()
        path = Path(fixture.path(name(5, ".snapshot")))
        if kind == "delete":
            path.unlink()
        else:
            path.write_bytes(bytes(path.stat().st_size))
        log = fixture.open(clean=True, recovery_point=recovery_point, log_start_offset=2)
        log.update_high_watermark(5)
        assert log.last_stable_offset == 2
        repeated = append_leader(log, transactional(3))
        assert (repeated.first_offset, log.log_end_offset) == (4, 5)


@pytest.mark.parametrize("base", [0, 4])
def test_no_offset_is_given_twice_where_the_last_segment_is_gone(
    base: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-18"""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(4, size=100)
        if base:
            log.roll()
            fixture.append(3, size=100)
        recovery_point = fixture.close()
        os.unlink(fixture.path(name(base, ".log")))
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == recovery_point
        assert offsets(read_all(log)) == list(range(base))
        assert any(record.levelno == logging.ERROR for record in caplog.records)
        assert append_leader(log, batch()).first_offset == recovery_point
        log = fixture.reopen(clean=False)
        assert log.log_end_offset == recovery_point + 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_of_a_segment_is_set_aside(
    clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-19"""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(9, size=100)
        recovery_point = fixture.close() if clean else fixture.abandon()
        shutil.copy(fixture.path(name(0, ".log")), fixture.path(name(3, ".log")))
        log = fixture.open(clean=clean, recovery_point=recovery_point)
        assert offsets(read_all(log)) == list(range(9))
        assert log.log_end_offset == 9
        assert name(3, ".log.aside") in fixture.names()
        assert "it is a copy" in caplog.text


def test_exchanged_segments_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        for _ in range(3):
            fixture.append(4, size=100)
            log.roll()
        recovery_point = fixture.close()
        first, second = (Path(fixture.path(name(base, ".log"))) for base in (0, 4))
        data = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(data)
        log = fixture.open(clean=True, recovery_point=recovery_point)
        log.update_high_watermark(log.log_end_offset)
        assert set(range(8, 12)) <= set(offsets(read_all(log)))
        assert "the next segment starts at 4" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_abort_marker_shows_no_record(clean: bool, tmp_path: Path) -> None:
    """The index has proof of the transaction: a scan of the batches does not make it forget."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = with_aborted_transactions(fixture)
        log.flush()
        recovery_point = fixture.close() if clean else fixture.abandon()
        path = fixture.path(name(0, ".log"))
        data = bytearray(path.read_bytes())
        data[len(transactional(0)) + 30] ^= 1
        path.write_bytes(data)
        fixture.path(name(0, ".index")).unlink()
        log = fixture.open(clean=clean, recovery_point=recovery_point)
        assert not {0, 3} & set(seen(log))
        assert log.last_stable_offset == log.log_end_offset
