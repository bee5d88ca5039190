"""The budget for unanswered requests."""

import pytest

from odradek.network.memory_pool import MemoryPool


def test_an_unlimited_pool_gives_and_counts() -> None:
    pool = MemoryPool()

    assert pool.try_allocate(1 << 40)
    assert not pool.is_bounded
    assert pool.used_bytes == 1 << 40
    assert pool.available_bytes == 2**63 - 1


def test_it_may_be_overdrawn_by_one_who_takes_the_last() -> None:
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


def test_one_who_left_is_not_told_and_not_kept() -> None:
    pool = MemoryPool(10)
    assert pool.try_allocate(10)
    told: list[str] = []
    names = ("first", "second", "third")
    first, second, third = (lambda name=name: told.append(name) for name in names)
    for callback in (first, second, third):
        pool.when_available(callback)
    pool.forget(second)
    pool.forget(second)
    pool.release(10)

    assert told == ["first", "third"]


def test_those_who_wait_may_leave_while_they_are_told() -> None:
    pool = MemoryPool(10)
    assert pool.try_allocate(10)
    told: list[str] = []

    def other() -> None:
        told.append("other")

    def one() -> None:
        told.append("one")
        pool.forget(other)

    pool.when_available(one)
    pool.when_available(other)
    pool.release(10)

    assert told == ["one"]


def test_who_takes_the_last_may_finish_and_nobody_else() -> None:
    pool = MemoryPool(100)
    first, second, third = object(), object(), object()
    for holder in (first, second, third, first, second):
        assert pool.try_allocate(20, holder)
    # The second took the last.
    assert not pool.try_allocate(20, first)
    assert not pool.try_allocate(20, third)
    assert pool.try_allocate(20, second)
    assert pool.available_bytes == -20

    pool.release(60)

    # Something is left: the privilege is gone until somebody takes the last again.
    assert pool.try_allocate(40, third)
    assert not pool.try_allocate(20, second)
    assert not pool.try_allocate(20, first)
    assert pool.try_allocate(20, third)


def test_who_finishes_goes_on_after_giving_back_too_little() -> None:
    pool = MemoryPool(100)
    first, second = object(), object()
    assert pool.try_allocate(99, first)
    assert pool.try_allocate(60, second)

    pool.release(30)

    assert not pool.try_allocate(1, first)
    assert pool.try_allocate(30, second)
