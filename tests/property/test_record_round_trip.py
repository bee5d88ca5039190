"""What is built is what is read, for any records and every codec."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records.batch import HEADER, is_crc_valid
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.record import read_records


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**53),
            st.none() | st.binary(max_size=20),
            st.none() | st.binary(max_size=20),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(Codec),
)
def test_build_and_read_round_trip(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
) -> None:
    new = [(timestamp, key, value, tuple(headers)) for timestamp, key, value, headers in records]
    batch = build_batch(new, codec=codec, base_offset=7)
    assert HEADER.unpack_from(batch)[8] == max(timestamp for timestamp, *_ in new)
    assert [record[1:] for record in read_records(batch)] == new
    assert is_crc_valid(batch, 0, len(batch))
