"""Encodes messages of any version and decodes them.

The code for a message and version is generated at first use by `decoder_source` and
`encoder_source`. The APIs that are called thousands of times a second have a second, hand-tuned
codec in `hot/`; it gives the same bytes.

`parse_message_steps` and `encode_message_steps` are the same for long messages: generators that
yield after each element of an array, so that other work is done in between.

Border of trust: `parse_message` accepts any bytes, and returns a message or raises `DecodeError`.
`encode_message` trusts its caller: a value that does not fit its field (a null, a number too large,
a string above 32767 bytes before flexible versions) is a bug and raises the `TypeError`,
`AttributeError` or `struct.error` it causes.
"""

from collections.abc import Callable, Generator
from struct import error as struct_error
from typing import Any, Final, TypeVar

from odradek.errors import ApiError, DecodeError, ErrorCode
from odradek.protocol.decoder_source import compile_decoder, compile_stepping_decoder
from odradek.protocol.encoder_source import compile_encoder, compile_stepping_encoder
from odradek.protocol.primitives import MAX_ELEMENTS, Buffer
from odradek.protocol.schema import Message, MessageType

__all__ = [
    "encode_message",
    "encode_message_parts",
    "encode_message_steps",
    "parse_message",
    "parse_message_steps",
]

M = TypeVar("M", bound=Message)


def parse_message(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Reads a message of `version` that starts at `offset`.

    The message may keep views into `buffer` (`records` fields only); strings and bytes are
    copied. The caller handles bytes after the message: Kafka ignores them.

    Returns:
        The message and the offset after it.

    Raises:
        DecodeError: The version is unknown or the bytes are not such a message.
    """
    try:
        decoder = cls.wire_decoders[version]
    except KeyError:
        decoder = _decoder_of(cls, version)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        return decoder(view, offset)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise _malformed(cls, version, len(view) - offset, error) from error


def parse_message_steps(
    cls: type[M],
    buffer: Buffer,
    version: int,
    offset: int = 0,
    *,
    max_elements: int = MAX_ELEMENTS,
) -> Generator[None, None, M]:
    """As `parse_message`, in steps; refuses more than `max_elements`. Returns the message.

    The buffer must not change before the last step.

    Raises:
        DecodeError: As `parse_message`, or there are too many elements.
    """
    if version not in cls.wire_stepping_decoders:
        _check_version(cls, version)
        cls.wire_stepping_decoders[version] = compile_stepping_decoder(cls, version)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        message, _ = yield from cls.wire_stepping_decoders[version](view, offset, max_elements)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise _malformed(cls, version, len(view) - offset, error) from error
    parsed: M = message
    return parsed


def _malformed(cls: MessageType, version: int, size_bytes: int, error: Exception) -> DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{cls.__name__} v{version} holds a string that is no UTF-8")
    return DecodeError(
        f"{cls.__name__} v{version} ends after {size_bytes} bytes, more was announced"
    )


def encode_message(message: Message, version: int) -> bytes:
    """Writes a message as `version`.

    Raises:
        ApiError: UNSUPPORTED_VERSION, if the version is unknown or cannot carry a field that is
            set.
    """
    return b"".join(encode_message_parts(message, version))


def encode_message_parts(message: Message, version: int) -> list[Any]:
    """Writes a message as a list of buffers, in order, for a gathered write.

    The value of a `records` field is put into the list unchanged; it may be any object that has a
    length, such as a slice of a file.

    Raises:
        ApiError: As `encode_message`.
    """
    cls = type(message)
    try:
        encoder = cls.wire_encoders[version]
    except KeyError:
        encoder = _encoder_of(cls, version)
    parts: list[Any] = []
    encoder(message, parts)
    return parts


def encode_message_steps(message: Message, version: int) -> Generator[None, None, list[Any]]:
    """As `encode_message_parts`, in steps. Adjacent bytes are joined: the list is short.

    Raises:
        ApiError: As `encode_message`.
    """
    cls = type(message)
    if version not in cls.wire_stepping_encoders:
        _encoder_of(cls, version)  # Refuses an unknown version.
        cls.wire_stepping_encoders[version] = compile_stepping_encoder(cls, version)
    parts: list[Any] = []
    joined: list[Any] = []
    for _ in cls.wire_stepping_encoders[version](message, parts):
        if len(parts) > _JOINED_PARTS:
            _join(parts, joined)
        yield
    _join(parts, joined)
    return joined


# Parts that are joined at a time, in a fraction of a millisecond.
_JOINED_PARTS: Final = 1_000


def _join(parts: list[Any], joined: list[Any]) -> None:
    """Moves all parts to `joined`, with those that are bytes joined; others stay as they are."""
    run: list[bytes] = []
    for part in parts:
        if type(part) is bytes:
            run.append(part)
            continue
        joined += (b"".join(run), part)
        run = []
    joined.append(b"".join(run))
    parts.clear()


def _check_version(cls: MessageType, version: int) -> None:
    if version not in cls.wire_versions:
        raise DecodeError(f"{cls.__name__} has no version {version}, only {cls.wire_versions}")


def _decoder_of(cls: MessageType, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    _check_version(cls, version)
    decoder = cls.wire_decoders[version] = compile_decoder(cls, version)
    return decoder


def _encoder_of(cls: MessageType, version: int) -> Callable[[Any, list[Any]], None]:
    if version not in cls.wire_versions:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{cls.__name__} has no version {version}, only {cls.wire_versions}",
        )
    encoder = cls.wire_encoders[version] = compile_encoder(cls, version)
    return encoder
