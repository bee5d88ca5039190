"""A replacement of segments that a crash interrupted, and whose new segment is damaged (01 §8.3).

No checksum covers the offsets of a batch, so they do not decide which live segments go.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.records.builder import build_batch
from tests.support.cleaning import CleaningFixture
from tests.support.log_scenarios import DeferredTasks, append_leader, bases
from tests.support.logs import T0, LogFixture, flip_bit, headers, offsets, read_all

SEGMENTS = 4


def interrupted(path: Path, syncs: int) -> LogFixture:
    """Segments of two batches at 0, 2, 4 and 6; 0 and 2 are to become one when the process ends."""
    fixture = CleaningFixture(path)
    fixture.cleaner_tasks = tasks = DeferredTasks(fixture.clock)
    log = fixture.open()
    for number in range(SEGMENTS):
        for key in (b"a", b"b%d" % number):
            append_leader(log, build_batch([(T0, key, b"x", ())]))
        fixture.commit()
        if number == 1:
            fixture.roll()
            log.flush()
            fixture.cleaner.run()
        elif number < SEGMENTS - 1:
            fixture.roll()
    first = log.segments.get(2)
    assert first is not None
    log.flush()
    tasks.run(1 + syncs)
    assert log.pending_swap is not None
    fixture.abandon()
    return fixture


def remove_notice(fixture: LogFixture) -> None:
    (notice,) = (name for name in fixture.names() if name.endswith(".replaced"))
    fixture.path(notice).unlink()


def jump_ahead(fixture: LogFixture) -> None:
    """One flipped bit in the base offset of the last batch of the new segment."""
    path = fixture.path(f"{0:020d}.log.swap")
    data = bytearray(path.read_bytes())
    last = sum(header.size for header in headers(bytes(data))[:-1])
    data[last + 6] ^= 1
    path.write_bytes(data)


def flip_in_value(fixture: LogFixture) -> None:
    flip_bit(fixture.path(f"{0:020d}.log.swap"), -4)


def empty(fixture: LogFixture) -> None:
    fixture.path(f"{0:020d}.log.swap").write_bytes(b"")


@pytest.mark.parametrize("has_notice", [True, False])
@pytest.mark.parametrize("damage", [jump_ahead, flip_in_value, empty])
def test_a_damaged_swap_costs_nothing_while_the_old_segments_are_there(
    damage: Callable[[LogFixture], None],
    has_notice: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """01 section 8.3, pass 3; an offset that jumps is damage by what the notice says."""
    with interrupted(tmp_path, 0) as fixture:
        if not has_notice:
            remove_notice(fixture)
        damage(fixture)
        is_noticed = has_notice or damage is not jump_ahead
        new = fixture.path(f"{0:020d}.log.swap").read_bytes()
        old = {base: fixture.path(f"{base:020d}.log").read_bytes() for base in (0, 2, 4, 6)}
        log = fixture.open(recovery_point=8)
        aside = {name for name in fixture.names() if name.endswith(".aside")}
        if is_noticed:
            assert offsets(read_all(log)) == list(range(8))
            assert fixture.path(f"{0:020d}.log.swap.aside").read_bytes() == new
            assert "it is set aside with the suffix .aside" in caplog.text
        else:  # All of them are covered by an offset that nothing contradicts.
            assert {fixture.path(name).read_bytes() for name in aside} >= set(old.values())
        assert not any(name.endswith((".replaced", ".swap")) for name in fixture.names())


def test_a_damaged_swap_takes_the_place_of_segments_that_are_gone(tmp_path: Path) -> None:
    with interrupted(tmp_path, 1) as fixture:
        jump_ahead(fixture)
        log = fixture.open(recovery_point=8)  # All of it was flushed: the damage cuts nothing.
        assert bases(log) == [0, 4, 6]
        assert log.log_end_offset == 8
        assert not any(name.endswith((".replaced", ".aside")) for name in fixture.names())


@pytest.mark.parametrize("base", [1, 2**61])
def test_a_swap_whose_batches_belong_elsewhere_is_set_aside(base: int, tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        log = fixture.open()
        fixture.append(1)
        log.roll()
        fixture.append(3)
        recovery_point = fixture.close()
        data = fixture.path(f"{0:020d}.log").read_bytes()
        fixture.path(f"{base:020d}.log.swap").write_bytes(data)
        log = fixture.open(clean=True, recovery_point=recovery_point)
        assert offsets(read_all(log)) == [0, 1, 2, 3]
        assert log.log_end_offset == 4
        assert fixture.path(f"{base:020d}.log.swap.aside").read_bytes() == data


@pytest.mark.parametrize("syncs", [0, 1])
def test_a_swap_that_does_not_say_what_it_replaces_removes_nothing(
    syncs: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka leaves one."""
    with interrupted(tmp_path, syncs) as fixture:
        remove_notice(fixture)
        live = {
            name: fixture.path(name).read_bytes()
            for name in fixture.names()
            if name.endswith(".log")
        }
        jump_ahead(fixture)
        fixture.open()
        assert "take the suffix .aside off" in caplog.text
        fixture.abandon()
        kept = {name: fixture.path(name + ".aside").read_bytes() for name in live}
        assert kept == live


def test_a_good_swap_is_completed_without_being_told(tmp_path: Path) -> None:
    with interrupted(tmp_path, 0) as fixture:
        remove_notice(fixture)
        assert bases(fixture.open()) == [0, 4, 6]


def test_no_notice_stays_behind(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        for number in range(3):
            fixture.produce((b"a", b"%d" % number))
            fixture.roll()
        fixture.clean()
        assert fixture.records() == [(2, b"a", b"2")]
        assert not any(name.endswith(".replaced") for name in fixture.names())
        fixture.path(f"{7:020d}.{9:020d}.replaced").touch()
        fixture.reopen(clean=True)
        assert not any(name.endswith(".replaced") for name in fixture.names())
