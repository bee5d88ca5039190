"""Where records go, by key and in turn."""

import pytest

from odradek.client.partitioner import RoundRobin, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
    ids=lambda value: f"09:CL-11 {value.decode()}" if isinstance(value, bytes) else "",
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFF_FFFF
    assert partition_of_key(key, 7) == (expected & 0x7FFF_FFFF) % 7


def test_records_without_a_key_take_turns() -> None:
    turns = RoundRobin()

    assert [turns.next_partition(3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
