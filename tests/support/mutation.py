"""Bytes that were well-formed before something happened to them."""

from hypothesis import strategies as st

__all__ = ["mutated"]


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """One of the originals with a few bytes changed, inserted, removed or cut off."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0 if position < len(data):
                data[position] = draw(st.integers(0, 255))
            case 1:
                data[position:position] = draw(st.binary(max_size=6))
            case 2:
                del data[position : position + draw(st.integers(1, 6))]
            case _:
                data[position:] = draw(st.binary(max_size=6))
    return bytes(data)
