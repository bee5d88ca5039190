"""The budget for unanswered requests."""

import pytest

from odradek.network.memory_pool import MemoryPool


def test_an_unlimited_pool_gives_and_counts() -> None:
    pool = MemoryPool()

    assert pool.try_allocate(1 << 40)
    assert not pool.is_bounded
    assert pool.used_bytes == 1 << 40
    assert pool.available_bytes == 2**63 - 1


def test_it_may_be_overdrawn_by_one_allocation_only() -> None:
    pool = MemoryPool(100)
    assert pool.try_allocate(99)

    assert pool.try_allocate(50)
    assert pool.available_bytes == -49
    assert not pool.try_allocate(1)


@pytest.mark.parametrize("size_bytes", [0, -1, 101])
def test_nonsense_is_refused(size_bytes: int) -> None:
    with pytest.raises(ValueError, match="pool of 100"):
        MemoryPool(100).try_allocate(size_bytes)


def test_those_who_wait_are_told_in_order_while_there_is_something() -> None:
    pool = MemoryPool(100)
    assert pool.try_allocate(100)
    told: list[str] = []

    def take(name: str) -> None:
        told.append(name)
        assert pool.try_allocate(100)

    pool.when_available(lambda: take("first"))
    pool.when_available(lambda: take("second"))
    pool.release(100)
    assert told == ["first"]
    pool.release(100)
    assert told == ["first", "second"]


def test_one_who_finds_nothing_left_waits_again() -> None:
    pool = MemoryPool(10)
    assert pool.try_allocate(10)
    calls: list[int] = []

    def again() -> None:
        calls.append(1)
        pool.when_available(again)

    pool.when_available(again)
    pool.release(5)

    assert calls == [1]
