"""Walking over damage: what is sound, how far damage extends, and where a log ends."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.storage.segments.damage import NEVER_CUT, BatchWalk, Extent
from tests.support.logs import batch

SIZE = 200
Damager = Callable[[bytearray], None]


@pytest.fixture
def descriptors() -> Iterator[list[int]]:
    opened: list[int] = []
    yield opened
    for fd in opened:
        os.close(fd)


class Walked:
    """What a walk over a file of one-record batches found."""

    def __init__(
        self, data: bytes, path: Path, descriptors: list[int], cut_from: int, base: int = 0
    ) -> None:
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        descriptors.append(fd)
        self.extents: list[Extent] = []
        self.walk = BatchWalk(
            Disk(),
            fd,
            start=0,
            end=len(data),
            next_offset=base,
            last_offset=base + (1 << 31) - 1,
            cut_from=cut_from,
            on_damage=self.extents.append,
        )
        self.offsets: list[int] = []
        self.resumed: list[int] = []
        for _, header, _, is_crc_valid in self.walk:
            assert is_crc_valid
            self.offsets.append(header.base_offset)
            if self.walk.is_resumed:
                self.resumed.append(header.base_offset)

    def places(self) -> list[tuple[float, float, bool]]:
        """Start and end of the extents, in batches, and whether readers get their bytes."""
        return [(one.start / SIZE, one.end / SIZE, one.is_served) for one in self.extents]


Walk = Callable[..., Walked]


@pytest.fixture
def walk(tmp_path: Path, descriptors: list[int]) -> Walk:
    def run(*damagers: Damager, count: int = 10, cut_from: int = NEVER_CUT) -> Walked:
        data = bytearray(b"".join(batch(size=SIZE, base_offset=n) for n in range(count)))
        for damager in damagers:
            damager(data)
        return Walked(bytes(data), tmp_path / "file", descriptors, cut_from)

    return run


def flip(number: int, bit: int) -> Damager:
    """Flips a bit of a batch."""

    def damage(data: bytearray) -> None:
        data[number * SIZE + bit // 8] ^= 0x80 >> bit % 8

    return damage


def zero(start: float, end: float) -> Damager:
    """Zeros a range, in batches."""

    def damage(data: bytearray) -> None:
        data[int(start * SIZE) : int(end * SIZE)] = bytes(int(end * SIZE) - int(start * SIZE))

    return damage


def test_an_undamaged_file_is_walked_from_end_to_end(walk: Walk) -> None:
    found = walk()
    assert found.offsets == list(range(10))
    assert (found.walk.next_offset, found.walk.good_end) == (10, 10 * SIZE)
    assert not found.extents
    assert found.walk.cut is None
    assert found.walk.tail is None


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        pytest.param(flip(4, 150 * 8), (4, 5, True), id="value"),
        pytest.param(flip(4, 17 * 8), (4, 5, True), id="checksum"),
        pytest.param(flip(4, 6 * 8), (4, 5, False), id="base-offset-up"),
        pytest.param(flip(4, 7 * 8 + 5), (4, 5, False), id="base-offset-down"),
        pytest.param(flip(4, 11 * 8 + 4), (4, 5, False), id="length"),
        pytest.param(flip(4, 8 * 8), (4, 5, False), id="length-negative"),
        pytest.param(flip(4, 16 * 8), (4, 5, False), id="magic"),
        pytest.param(zero(4.5, 4.6), (4, 5, True), id="zeros-in-a-value"),
        pytest.param(zero(4.5, 6.5), (4, 7, False), id="zeroed-sector"),
        pytest.param(zero(0, 1.06), (0, 2, False), id="start-of-the-file"),
    ],
)
def test_an_extent_is_what_lies_between_two_sound_batches(
    damage: Damager, place: tuple[int, int, bool], walk: Walk
) -> None:
    found = walk(damage)
    start, end, _ = place
    assert found.places() == [place]
    assert found.offsets == [n for n in range(10) if not start <= n < end]
    assert found.resumed == [end]
    assert found.extents[0].next_offset == start
    assert found.walk.tail is None


def test_a_length_that_leads_to_a_later_batch_hides_none(walk: Walk) -> None:
    """The length spans three batches: the chain goes on, over two sound ones."""

    def longer(data: bytearray) -> None:
        data[4 * SIZE + 8 : 4 * SIZE + 12] = (3 * SIZE - 12).to_bytes(4, "big")

    found = walk(longer)
    assert found.offsets == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert found.places() == [(4, 5, False)]


def test_several_places_are_several_extents(walk: Walk) -> None:
    found = walk(flip(1, 150 * 8), flip(2, 150 * 8), zero(5.2, 6.2), flip(9, 16 * 8))
    assert found.offsets == [0, 3, 4, 7, 8]
    assert found.places() == [(1, 3, True), (5, 7, False), (9, 10, False)]
    assert found.walk.tail == found.extents[-1]
    assert (found.walk.next_offset, found.walk.good_end) == (9, 9 * SIZE)


def test_a_damaged_last_batch_is_a_tail_that_readers_get(walk: Walk) -> None:
    found = walk(flip(9, 150 * 8))
    assert found.walk.tail == found.extents[0]
    assert found.places() == [(9, 10, True)]


def test_a_batch_that_stands_there_twice_counts_once(walk: Walk) -> None:
    def double(data: bytearray) -> None:
        data[5 * SIZE : 6 * SIZE] = data[2 * SIZE : 3 * SIZE]

    found = walk(double)
    assert found.offsets == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert found.places() == [(5, 6, False)]


@pytest.mark.parametrize("cut_from", [0, 2, 3])
def test_damage_at_or_above_the_cut_ends_the_log(cut_from: int, walk: Walk) -> None:
    found = walk(zero(3.2, 5.2), cut_from=cut_from)
    assert found.offsets == [0, 1, 2]
    assert found.walk.cut is not None
    assert (found.walk.cut.position, found.walk.cut.is_behind_damage) == (3 * SIZE, False)
    assert not found.extents


@pytest.mark.parametrize("cut_from", [4, 5])
def test_a_batch_behind_damage_that_reaches_over_the_cut_ends_the_log(
    cut_from: int, walk: Walk
) -> None:
    found = walk(zero(3.2, 5.2), cut_from=cut_from)
    assert found.offsets == [0, 1, 2]
    assert found.walk.cut is not None
    assert (found.walk.cut.position, found.walk.cut.is_behind_damage) == (6 * SIZE, True)
    assert found.places() == [(3, 6, False)]


@pytest.mark.parametrize("cut_from", [6, 7, NEVER_CUT])
def test_damage_below_the_cut_stays(cut_from: int, walk: Walk) -> None:
    found = walk(zero(3.2, 5.2), cut_from=cut_from)
    assert found.offsets == [0, 1, 2, 6, 7, 8, 9]
    assert found.walk.cut is None


@pytest.mark.parametrize("bit", [24 * 8, 26 * 8 + 4], ids=["far", "near"])
def test_a_damaged_batch_that_claims_the_offsets_of_others_is_not_served(
    bit: int, walk: Walk
) -> None:
    """Its last offset lies above that of the batch behind: a look-up would take it for those."""
    found = walk(flip(4, bit))
    assert found.places() == [(4, 5, False)]
    assert found.offsets == [n for n in range(10) if n != 4]
