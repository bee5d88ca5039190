"""The one-call check of a plain batch: what it takes, and that both twins answer alike."""

from collections.abc import Callable

import pytest

from odradek.records.batch import (
    CRC_POSITION,
    HEADER_SIZE,
    PRODUCER_ID_POSITION,
    compute_crc,
)
from odradek.records.compression import Codec
from odradek.records.walk import IS_COMPILED, PlainBatch, check_plain_batch
from odradek.records.walk_pure import check_plain_batch_pure
from tests.support.logs import T0, batch

Check = Callable[[bytes | bytearray | memoryview, int, int, bool], PlainBatch | None]
ANY_TIME = -(2**63), 2**63 - 1
CHECKS = pytest.mark.parametrize(
    "check",
    [
        pytest.param(check_plain_batch_pure, id="pure"),
        pytest.param(
            check_plain_batch,
            id="compiled",
            marks=pytest.mark.skipif(not IS_COMPILED, reason="_walk is not built: setup.py"),
        ),
    ],
)


def with_mended_crc(data: bytearray) -> bytearray:
    crc = compute_crc(data, 0, len(data))
    data[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4)
    return data


@CHECKS
@pytest.mark.parametrize("size", [100, 1_024, 1_025, 70_000])
def test_a_plain_batch_is_taken(check: Check, size: int) -> None:
    built = batch(3, size=size)

    assert check(built, *ANY_TIME, True) == (2, T0 + 2, -1, -1, -1)
    assert check(memoryview(built), *ANY_TIME, False) == (2, T0 + 2, -1, -1, -1)


@CHECKS
def test_a_producer_is_told(check: Check) -> None:
    built = batch(2, producer_id=2**40, producer_epoch=300, base_sequence=2**31 - 1)

    assert check(built, *ANY_TIME, False) == (1, T0 + 1, 2**40, 300, 2**31 - 1)


@CHECKS
def test_what_is_not_plain_is_not_taken(check: Check) -> None:
    for data in (
        bytes(batch()),
        memoryview(batch()).toreadonly(),
        batch()[: HEADER_SIZE - 1],
        batch()[:-1],
        batch() + b"\0",
        batch(base_offset=1),
        batch(timestamp=-1),
        batch(codec=Codec.GZIP),
        batch(is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        bytearray(),
    ):
        assert check(data, *ANY_TIME, False) is None


@CHECKS
def test_what_the_topic_refuses_is_not_taken(check: Check) -> None:
    assert check(batch(key=None), *ANY_TIME, False) is not None
    assert check(batch(key=None), *ANY_TIME, True) is None
    assert check(batch(), T0, T0, False) is not None
    assert check(batch(), T0 + 1, 2**63 - 1, False) is None
    assert check(batch(), -(2**63), T0 - 1, False) is None


@pytest.mark.skipif(not IS_COMPILED, reason="_walk is not built: setup.py")
@pytest.mark.parametrize("mended", [False, True])
def test_the_twins_agree_on_every_one_byte_change(mended: bool) -> None:
    built = batch(2, producer_id=7, producer_epoch=1, base_sequence=5, value=b"value")
    taken = 0
    for position in range(len(built)):
        for value in {0, 1, 2, 3, 0x7F, 0x80, 0xFF, built[position] ^ 1} - {built[position]}:
            changed = bytearray(built)
            changed[position] = value
            if mended and position > CRC_POSITION + 3:
                with_mended_crc(changed)
            answer = check_plain_batch(changed, T0, T0 + 300, True)
            assert answer == check_plain_batch_pure(changed, T0, T0 + 300, True)
            taken += answer is not None
    # The leader epoch; with a right checksum a producer's numbers, and what is in keys and values.
    assert taken > (PRODUCER_ID_POSITION if mended else 0)
