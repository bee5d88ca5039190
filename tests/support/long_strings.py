"""Messages with a string that is one byte too long, which our encoders refuse to write."""

from odradek.protocol.codec import encode_message
from odradek.protocol.primitives import MAX_STRING_BYTES, encode_uvarint
from odradek.protocol.schema import Message

__all__ = ["LONGEST", "encode_one_byte_longer"]

LONGEST = "x" * MAX_STRING_BYTES


def encode_one_byte_longer(message: Message, version: int) -> bytes:
    """Encode a flexible version of a message with `LONGEST` in it, which gets another byte."""
    fits, too_long = MAX_STRING_BYTES + 1, MAX_STRING_BYTES + 2
    string = encode_uvarint(fits) + LONGEST.encode()
    encoded = encode_message(message, version)
    assert encoded.count(string) == 1
    longer = encoded.replace(string, encode_uvarint(too_long) + LONGEST.encode() + b"x")
    # A tagged field has its size in front, that of the string's length included.
    size = len(string)
    return longer.replace(
        encode_uvarint(size) + encode_uvarint(too_long),
        encode_uvarint(size + 1) + encode_uvarint(too_long),
    )
