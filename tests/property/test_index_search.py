"""Index search against oracles: binary search, and lists."""

import tempfile
from bisect import bisect_left, bisect_right
from itertools import accumulate
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.files import Disk
from odradek.storage.indexes import transaction_index
from odradek.storage.indexes.index import (
    SlotColumn,
    find_floor_slot,
    find_slot_range,
    find_slot_range_plain,
)
from odradek.storage.indexes.offset_index import OffsetIndex
from odradek.storage.indexes.time_index import TimeIndex
from odradek.storage.indexes.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    encode_aborted_transaction,
)

KEY = SlotColumn.of(">q", stride=12)

small = st.integers(-50, 400)
sorted_keys = st.lists(small, unique=True, max_size=200).map(sorted)


@settings(deadline=None, max_examples=300)
@given(keys=sorted_keys, target=small, warm_entries=st.integers(0, 250))
def test_both_variants_agree(keys: list[int], target: int, warm_entries: int) -> None:
    """01:IDX-10; and both agree with bisect, but for an exact match on slot 0."""
    data = b"".join(pack(">qi", key, 7) for key in keys)
    found = find_slot_range(KEY, data, len(keys), target, warm_entries=warm_entries)
    assert found == find_slot_range_plain(KEY, data, len(keys), target)
    lower, upper = found
    assert lower == bisect_right(keys, target) - 1
    floor = find_floor_slot(KEY, data, len(keys), target, warm_entries=warm_entries)
    assert floor == lower
    if lower > 0 and keys[lower] == target:
        assert upper == lower
    else:
        assert upper == (lower + 1 if lower + 1 < len(keys) else -1)


@settings(deadline=None, max_examples=300)
@given(
    steps=st.lists(st.integers(1, 9) | st.integers(1, 10**6), min_size=1, max_size=400),
    slot=st.integers(0, 399),
    beside=st.integers(-1, 1),
    warm_entries=st.integers(0, 40),
)
def test_floor_of_keys_that_stand_unevenly(
    steps: list[int], slot: int, beside: int, warm_entries: int
) -> None:
    keys = list(accumulate(steps))
    data = b"".join(pack(">qi", key, 7) for key in keys)
    target = keys[slot % len(keys)] + beside
    floor = find_floor_slot(KEY, data, len(keys), target, warm_entries=warm_entries)
    assert floor == bisect_right(keys, target) - 1


@settings(deadline=None, max_examples=150)
@given(
    data=st.binary(max_size=400),
    target=st.integers(-(2**63), 2**63 - 1),
    warm_entries=st.integers(0, 40),
)
def test_search_of_junk_ends_within_bounds(data: bytes, target: int, warm_entries: int) -> None:
    """An index may hold anything after a crash; a search answers some slot, or none."""
    entries = len(data) // 12
    lower, upper = find_slot_range(KEY, data, entries, target, warm_entries=warm_entries)
    assert -1 <= lower < entries
    assert -1 <= upper < entries
    floor = find_floor_slot(KEY, data, entries, target, warm_entries=warm_entries)
    assert -1 <= floor < entries


@settings(deadline=None, max_examples=60)
@given(
    offsets=st.lists(st.integers(0, 3000), unique=True, max_size=60).map(sorted),
    targets=st.lists(st.integers(-10, 3010), min_size=1, max_size=10),
    cut=st.integers(-10, 3010),
)
def test_offset_index_is_a_sorted_list(offsets: list[int], targets: list[int], cut: int) -> None:
    entries = [(1000 + offset, offset * 3) for offset in offsets]
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "x.index")
        index = OffsetIndex(path, 1000, max_index_size=1024, disk=Disk())
        for offset, position in entries:
            index.append(offset, position)
        for target in targets:
            floor = bisect_right(offsets, target) - 1
            assert index.lookup(1000 + target) == (entries[floor] if floor >= 0 else (1000, 0))
            ceiling = bisect_left(offsets, target)
            expected = entries[ceiling] if ceiling < len(entries) else None
            assert index.ceiling(1000 + target) == expected
            bound = index.fetch_upper_bound_offset(0, max(0, target))
            if bound is not None:
                assert dict(entries)[bound] >= target
        index.truncate_to(1000 + cut)
        kept = entries[: bisect_left(offsets, cut)]
        assert list(index) == kept
        index.close()
        again = OffsetIndex(path, 1000, max_index_size=1024, disk=Disk())
        assert list(again) == kept
        again.close()


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60),
    target=st.integers(-5, 200),
    cut=st.integers(-5, 200),
)
def test_time_index_is_a_sorted_list(steps: list[tuple[int, int]], target: int, cut: int) -> None:
    entries: list[tuple[int, int]] = []
    timestamp, offset = 0, 500
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "x.timeindex")
        index = TimeIndex(path, 500, max_index_size=1024, disk=Disk())
        for time_step, offset_step in steps:
            timestamp += time_step
            offset += offset_step
            is_new = not entries or timestamp > entries[-1][0]
            assert index.maybe_append(timestamp, offset) == is_new
            if is_new:
                entries.append((timestamp, offset))
        assert list(index) == entries
        floor = [entry for entry in entries if entry[0] <= target]
        assert index.lookup(target) == (floor[-1] if floor else (-1, 500))
        index.truncate_to(500 + cut)
        assert list(index) == [entry for entry in entries if entry[1] < 500 + cut]
        index.close()


@st.composite
def aborted(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Entries as a log writes them: the last stable offset never falls, nor passes its marker."""
    last, stable = 0, 0
    entries = []
    for _ in range(draw(st.integers(0, 12))):
        last += draw(st.integers(1, 6))
        stable = draw(st.integers(stable, last + 1))
        entries.append(AbortedTransaction(1, draw(st.integers(0, last)), last, stable))
    return entries


@settings(deadline=None, max_examples=100)
@given(entries=aborted(), fetch_offset=st.integers(0, 80), size=st.integers(1, 80))
def test_collect_aborted_is_a_filter(
    entries: list[AbortedTransaction], fetch_offset: int, size: int
) -> None:
    upper_bound = fetch_offset + size
    expected, complete = [], False
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            expected.append(entry)
        if entry.last_stable_offset >= upper_bound:
            complete = True
            break
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "x.txnindex"
        path.write_bytes(b"".join(map(encode_aborted_transaction, entries)))
        for block in (1, 2, 256):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(transaction_index, "_BLOCK", block)
                index = TransactionIndex(str(path), 0, disk=Disk())
                for _ in range(2):  # Before and after the blocks are summed up.
                    found = index.collect_aborted(fetch_offset, upper_bound)
                    assert found == (expected, complete)
