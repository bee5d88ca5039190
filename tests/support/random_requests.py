"""Requests from a seed: well-formed ones with odd values, and what damage makes of them."""

import random
import struct
from collections.abc import Collection
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request
from odradek.protocol.headers import RequestHeader
from odradek.protocol.primitives import WireType
from odradek.protocol.registry import request_type
from odradek.protocol.schema import ArrayOf, Field, MessageType

__all__ = ["RequestSource"]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Lengths and counts an attacker would try, as int32, int16 and varint.
_HOSTILE = [
    bytes.fromhex(text)
    for text in ("7fffffff", "80000000", "fffffffe", "7fff", "8000", "ffffffff0f", "ffffffff7f")
]


class RequestSource:
    """Makes requests.

    Args:
        seed: The same one makes the same requests.
        names: What a text may be beside nonsense, so that some of it exists on the broker.
    """

    def __init__(self, seed: int, names: Collection[str]) -> None:
        self._random = random.Random(seed)
        self._texts = [*names, "", "\0", "a" * 300, "é" * 60, "../..", " "]

    def well_formed(self, key: ApiKey, version: int) -> bytes:
        """A request of any values that the version can carry."""
        header = RequestHeader(key, version, self._random.randrange(1 << 31), "random")
        return encode_request(header, self._message(request_type(key), version))

    def damaged(self, payload: bytes) -> bytes:
        """The same with a few bits, bytes or lengths changed, or cut short.

        The first eight bytes stay, or most requests would be of no API at all.
        """
        source = self._random
        data = bytearray(payload)
        for _ in range(source.randrange(1, 4)):
            position = source.randrange(8, len(data) + 1)
            match source.randrange(4):
                case 0 if position < len(data):
                    data[position] ^= 1 << source.randrange(8)
                case 1:
                    hostile = source.choice(_HOSTILE)
                    data[position : position + len(hostile)] = hostile
                case 2:
                    del data[position:]
                case _:
                    data[position:position] = source.randbytes(source.randrange(1, 8))
        return bytes(data)

    def noise(self, key: ApiKey, version: int) -> bytes:
        """An honest header before random bytes."""
        start = struct.pack(">hhi", key, version, 1)
        return start + self._random.randbytes(self._random.randrange(200))

    def _message(self, cls: MessageType, version: int) -> Any:
        fields = [field for field in cls.wire_fields if version in field.versions]
        return cls(**{field.name: self._value(field, version) for field in fields})

    def _value(self, field: Field, version: int) -> Any:
        if version in field.nullable and self._random.random() < 0.2:
            return None
        return self._typed(field.type, version)

    def _typed(self, type_: WireType | ArrayOf | MessageType, version: int) -> Any:
        if isinstance(type_, ArrayOf):
            count = self._random.choice((0, 1, 1, 2))
            return [self._typed(type_.element, version) for _ in range(count)]
        if isinstance(type_, MessageType):
            return self._message(type_, version)
        return self._primitive(type_.name)

    def _primitive(self, name: str) -> Any:
        source = self._random
        if bits := _BITS.get(name):
            edges = (-1 << bits - 1, (1 << bits - 1) - 1, source.getrandbits(bits - 1))
            return source.choice((-2, -1, 0, 0, 1, 1, 2, *edges))
        match name:
            case "uint16" | "uint32":
                return source.choice((0, 1, (1 << int(name[4:])) - 1))
            case "float64":
                return source.choice((0.0, -1.0, 1e300, float("inf"), float("nan")))
            case "bool":
                return source.random() < 0.5
            case "uuid":
                return source.choice((bytes(16), source.randbytes(16)))
            case "string":
                return source.choice(self._texts)
        return source.randbytes(source.choice((0, 1, 61, 100)))
