"""The end that a clean stop has recorded, against a last batch that tells of another (01:LOAD-14).

No checksum covers the base offset of a batch; `odradek.storage.recovery.excess_tail` has the rules.
"""

import logging
from pathlib import Path
from struct import Struct

import pytest

from odradek.storage.log.config import LogConfig
from tests.support.logs import LogFixture, batch, flip_bit, offsets, read_all

CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=4_800)
SIZE = len(batch())
FIRST = f"{0:020d}.log"


def rebase(path: Path, number: int, base_offset: int) -> None:
    """Gives the batch with that number, of batches of one size, another base offset."""
    data = bytearray(path.read_bytes())
    Struct(">q").pack_into(data, number * SIZE, base_offset)
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("is_checkpoint_lost", [False, True])
@pytest.mark.parametrize("bit", range(1, 64))
def test_each_flipped_bit_of_the_last_base_offset(
    bit: int, is_checkpoint_lost: bool, tmp_path: Path
) -> None:
    """5 became 2^61 + 5. Nothing is lost, and no offset is handed out twice or skipped."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(5)
        recovery_point = fixture.close()
        whole = fixture.path(FIRST).read_bytes()
        flip_bit(fixture.path(FIRST), 4 * SIZE * 8 + bit)
        log = fixture.open(clean=True, recovery_point=0 if is_checkpoint_lost else recovery_point)
        assert log.log_end_offset == 5
        if 4 ^ (1 << (63 - bit)) > 4:
            assert fixture.path(FIRST).read_bytes() == whole
            assert offsets(read_all(log)) == [0, 1, 2, 3, 4]
        fixture.append()
        assert offsets(read_all(log))[-1] == 5
        assert fixture.reopen(clean=True).log_end_offset == 6


@pytest.mark.parametrize("batches", [1, 2])
def test_an_offset_that_nobody_knows_is_set_aside(
    batches: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(3)
        for number in range(batches):
            log.append_as_follower(batch(base_offset=10 + number, leader_epoch=0))
        end = log.log_end_offset
        recovery_point = fixture.close()
        for number in range(batches):
            rebase(fixture.path(FIRST), 3 + number, 1_000 + number)
        damaged = fixture.path(FIRST).read_bytes()[3 * SIZE :]
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == end
        assert offsets(read_all(log)) == [0, 1, 2]
        (aside,) = (name for name in fixture.names() if name.endswith(".aside"))
        assert fixture.path(aside).read_bytes() == damaged
        assert any(aside in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
        fixture.append()
        assert offsets(read_all(fixture.reopen(clean=True))) == [0, 1, 2, end]


@pytest.mark.parametrize("are_snapshots_lost", [False, True])
def test_a_recovery_point_that_is_wrong_costs_no_record(
    are_snapshots_lost: bool, tmp_path: Path
) -> None:
    """One digit of the checkpoint is enough: the batches tell, or the snapshot does."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(15)
        if not are_snapshots_lost:
            log.append_as_follower(batch(base_offset=20, leader_epoch=0))
        found = offsets(read_all(log))
        fixture.close()
        if are_snapshots_lost:
            for name in fixture.names():
                if name.endswith(".snapshot"):
                    fixture.path(name).unlink()
        log = fixture.open(clean=True, recovery_point=5)
        assert offsets(read_all(log)) == found
        assert log.log_end_offset == found[-1] + 1


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("bit", range(1, 33))
def test_a_last_batch_out_of_reach_does_not_move_the_end_of_an_unclean_stop(
    bit: int, flushed: bool, tmp_path: Path
) -> None:
    """01 section 8.5: an append would have begun a segment; a split would make it the log end."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(5)
        if flushed:
            log.flush()
        recovery_point = fixture.abandon()
        flip_bit(fixture.path(FIRST), 4 * SIZE * 8 + bit)
        log = fixture.open(recovery_point=recovery_point)
        assert log.log_end_offset == (5 if flushed else 4)
        assert offsets(read_all(log)) == [0, 1, 2, 3]
        fixture.append()
        assert log.log_end_offset == (6 if flushed else 5)


@pytest.mark.parametrize("bit", [33, 40, 60])
def test_a_last_batch_that_jumps_within_reach_is_told_of_after_an_unclean_stop(
    bit: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be right: a follower of a leader with gaps has the same files."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(5)
        recovery_point = fixture.abandon()
        flip_bit(fixture.path(FIRST), 4 * SIZE * 8 + bit)
        log = fixture.open(recovery_point=recovery_point)
        assert offsets(read_all(log)) == [0, 1, 2, 3, log.log_end_offset - 1]
        (line,) = (r.getMessage() for r in caplog.records if "missing before" in r.getMessage())
        assert line.startswith(f"{fixture.path(FIRST)}: offsets from 4 on")


def test_an_empty_last_segment_that_nothing_leads_to_is_told_of_after_an_unclean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be right: a follower whose leader's offsets jump leaves the same files."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(5)
        log.roll()
        recovery_point = fixture.abandon()
        path = fixture.path(f"{9:020d}.log")
        path.touch()
        log = fixture.open(recovery_point=recovery_point)
        assert log.log_end_offset == 9
        lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert any(line.startswith(f"{path}: it is empty") for line in lines)


def test_a_jump_in_front_of_other_batches_is_no_news(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(2)
        log.append_as_follower(batch(base_offset=10, leader_epoch=0))
        fixture.append(2)
        log = fixture.reopen(clean=False)
        assert offsets(read_all(log)) == [0, 1, 10, 11, 12]
        assert not any("missing before" in r.getMessage() for r in caplog.records)


def test_a_rebuild_of_indexes_does_not_split_off_a_last_batch_out_of_reach(tmp_path: Path) -> None:
    """Two damages: the index asks for a scan, and the scan meets the offset."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(5)
        recovery_point = fixture.close()
        flip_bit(fixture.path(FIRST), 4 * SIZE * 8 + 2)
        fixture.path(f"{0:020d}.index").unlink()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert (log.log_end_offset, len(log.segments)) == (5, 1)
        assert offsets(read_all(log)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("base", [7, 2**61])
def test_an_empty_segment_above_the_recorded_end_is_set_aside(
    base: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(5)
        recovery_point = fixture.close()
        fixture.path(f"{base:020d}.log").touch()
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == 5
        assert f"{base:020d}.log.aside" in fixture.names()
        assert any("set aside" in r.getMessage() for r in caplog.records)


def test_an_empty_segment_that_the_batches_lead_to_stays(tmp_path: Path) -> None:
    """The recovery point is wrong, and the snapshot of the roll is lost."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        fixture.append(5)
        log.roll()
        fixture.close()
        fixture.path(f"{5:020d}.snapshot").unlink()
        assert fixture.open(clean=True, recovery_point=3).log_end_offset == 5


def test_a_log_that_ends_below_its_start_begins_behind_what_was_given_out(tmp_path: Path) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(9)
        recovery_point = fixture.close()
        path = fixture.path(FIRST)
        path.write_bytes(path.read_bytes()[: 2 * SIZE])
        log = fixture.open(clean=True, recovery_point=recovery_point, log_start_offset=4)
        assert log.log_end_offset == 9
        assert f"{FIRST}.aside" in fixture.names()


def test_damage_before_an_offset_that_is_set_aside_is_not_appended_to(tmp_path: Path) -> None:
    """Else the next recovery would end the log at the damage, and drop what was acknowledged."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(5)
        recovery_point = fixture.close()
        whole = fixture.path(FIRST).read_bytes()
        fixture.path(FIRST).write_bytes(
            whole + bytes(50) + batch(base_offset=1_000, leader_epoch=0)
        )
        fixture.path(f"{0:020d}.index").unlink()  # The new one has an entry behind the damage.
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == 5
        fixture.append()
        log = fixture.reopen(clean=False)
        assert offsets(read_all(log)) == [0, 1, 2, 3, 4, 5]


def test_a_batch_above_the_recorded_end_is_damage_where_there_is_other_damage(
    tmp_path: Path,
) -> None:
    """The tail of a clean log holds a bad checksum, and behind it a batch with a high offset."""
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        fixture.open()
        fixture.append(6)
        recovery_point = fixture.close()
        flip_bit(fixture.path(FIRST), 4 * SIZE * 8 + 500)
        rebase(fixture.path(FIRST), 5, 1_000)
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == 6
        assert 1_000 not in offsets(read_all(log))
        fixture.append()
        assert offsets(read_all(log))[-1] == 6
