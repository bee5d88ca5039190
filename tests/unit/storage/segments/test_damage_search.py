"""Finding a sound batch where no chain of batches leads: which one, and at what cost."""

from random import Random

import pytest
from crc32c import crc32c

from odradek.storage.segments.damage_search import find_sound_batch, shift_crc
from tests.support.logs import batch

READ = 1 << 20  # What is read at once, at most.


class Bytes:
    """Bytes that count how many of them were asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes_read = 0

    def read(self, position: int, size: int) -> memoryview:
        found = memoryview(self.data)[position : position + size]
        self.bytes_read += len(found)
        return found

    def find(self, start: int = 0, first_offset: int = 0, last_offset: int = 1000) -> int | None:
        return find_sound_batch(
            self.read, start, len(self.data), first_offset=first_offset, last_offset=last_offset
        )


def test_a_checksum_can_be_moved_over_further_bytes() -> None:
    random = Random(1)
    for size in (0, 1, 2, 3, 255, 256, 4097, 100_000):
        head, tail = random.randbytes(random.randrange(300)), random.randbytes(size)
        assert crc32c(head + tail) == shift_crc(crc32c(head), size) ^ crc32c(tail)


@pytest.mark.parametrize(
    "junk", [0, 1, 999, (16 << 10) - 70, (16 << 10) - 10, (48 << 10) - 100, READ - 70, 3 * READ + 5]
)
def test_a_sound_batch_is_found_behind_any_junk(junk: int) -> None:
    false_start = bytes(batch(base_offset=41))[:-1] + b"?"
    data = Bytes(
        false_start + b"\x00" * junk + bytes(batch(base_offset=42)) + bytes(batch(base_offset=43))
    )
    expected = len(false_start) + junk
    assert data.find() == expected
    assert data.find(1, 42) == expected
    assert data.find(0, 43) == data.find(expected + 1) == expected + len(batch())
    assert data.find(0, 44) is None
    assert data.find(0, 0, last_offset=41) is None


def test_of_a_batch_within_a_value_and_the_one_around_it_the_outer_is_found() -> None:
    inner = bytes(batch(base_offset=7))
    outer = bytes(batch(base_offset=5, value=b"x" * 50 + inner + b"y" * 50))
    data = Bytes(b"junk" + outer)
    assert data.find() == 4
    assert data.find(5) == data.data.index(inner)


@pytest.mark.parametrize("sound", [True, False])
def test_headers_that_claim_everything_cost_no_more_than_the_file(sound: bool) -> None:
    """A value full of headers, each of which claims to reach to the end of the file."""
    header = bytes(batch())[:61]
    count = 20_000
    claims = bytearray()
    for number in range(count):
        length = (count - number) * 61 - 12
        claims += header[:8] + length.to_bytes(4, "big") + header[12:]
    data = Bytes(bytes(claims) + (bytes(batch(base_offset=3)) if sound else b""))
    assert data.find() == (len(claims) if sound else None)
    assert data.bytes_read < 1.2 * len(data.data) + READ
