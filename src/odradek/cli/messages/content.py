"""A message as filters and templates see it: text, JSON and headers, decoded when asked for."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.records.codec import ConsumerRecord

__all__ = ["ABSENT", "Content", "Decoder", "PathStep", "dump", "walk"]

# Turns the bytes of a key or value into what JSON can say.
Decoder = Callable[[bytes], object]
# A step into JSON: the name of a field, or the place in an array, from its end if negative.
PathStep = str | int


class _Absent:
    """The value of a field that is not there; null is there."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()
_UNREAD: Final = _Absent()


class Content:
    """One message.

    Args:
        record: The message.
        decode_key: For keys that are neither text nor JSON; likewise for values.
    """

    __slots__ = ("_decode_key", "_decode_value", "_key", "_value", "record")

    def __init__(
        self,
        record: "ConsumerRecord",
        decode_key: Decoder | None = None,
        decode_value: Decoder | None = None,
    ) -> None:
        self.record = record
        self._decode_key = decode_key
        self._decode_value = decode_value
        self._key: object = _UNREAD
        self._value: object = _UNREAD

    @property
    def key_json(self) -> object:
        """The key as JSON; `ABSENT` if it is none."""
        if self._key is _UNREAD:
            self._key = _parse(self.record.key, self._decode_key)
        return self._key

    @property
    def value_json(self) -> object:
        """The value as JSON; `ABSENT` if it is none."""
        if self._value is _UNREAD:
            self._value = _parse(self.record.value, self._decode_value)
        return self._value

    @property
    def key(self) -> bytes | None:
        """The bytes of the key; of a decoded one, its JSON."""
        return self.record.key if self._decode_key is None else _encode(self.key_json)

    @property
    def value(self) -> bytes | None:
        """The bytes of the value; of a decoded one, its JSON."""
        return self.record.value if self._decode_value is None else _encode(self.value_json)

    @property
    def is_key_decoded(self) -> bool:
        """Whether the key is JSON that a decoder made."""
        return self._decode_key is not None

    @property
    def is_value_decoded(self) -> bool:
        """Whether the value is JSON that a decoder made."""
        return self._decode_value is not None

    def header(self, name: str) -> "bytes | _Absent | None":
        """The last header of a name."""
        for one, content in reversed(self.record.headers):
            if one == name:
                return content
        return ABSENT


def walk(found: object, path: tuple[PathStep, ...]) -> object:
    """The part of a JSON value that a path leads to; `ABSENT` if it leads nowhere."""
    for step in path:
        if isinstance(step, str):
            found = found.get(step, ABSENT) if isinstance(found, dict) else ABSENT
        elif isinstance(found, list) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return ABSENT
    return found


def dump(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _encode(value: object) -> bytes | None:
    return None if value is None else dump(value).encode("utf-8", "surrogatepass")


def _parse(content: bytes | None, decode: Decoder | None) -> object:
    if content is None:
        return None
    if decode is not None:
        return decode(content)
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return ABSENT
