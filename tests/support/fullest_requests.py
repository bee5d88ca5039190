"""Requests with as many elements as a request may have, in each of its arrays in turn.

Like those of `hostile_requests` they are made of the declarations of messages. An array is named by
its path: `topics.partitions` is the array `partitions` of one element of `topics`; other arrays are
empty. Elements are as small as they can be, all equal or all different.
"""

from collections.abc import Iterator
from typing import Any

from odradek.protocol.codec import encode_message
from odradek.protocol.primitives import STRING, UUID, WireType
from odradek.protocol.schema import ArrayOf, Field, Message, MessageType
from tests.support.hostile_requests import RequestBuilder, Shape, World

__all__ = ["array_paths", "fullest_request"]

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def array_paths(cls: type[Message], version: int) -> list[str]:
    """The paths of all arrays of a message that this version has."""
    return list(_paths(cls, version, ""))


def _paths(cls: MessageType, version: int, before: str) -> Iterator[str]:
    for field in cls.wire_fields:
        if version not in field.versions:
            continue
        kind = field.type
        if isinstance(kind, ArrayOf):
            yield before + field.name
            kind = kind.element
        if isinstance(kind, MessageType):
            yield from _paths(kind, version, f"{before}{field.name}.")


def fullest_request(
    cls: type[Message],
    version: int,
    path: str,
    world: World,
    *,
    is_repeated: bool,
    max_bytes: int,
    max_elements: int,
) -> Message:
    """A request with the most elements in one of its arrays that both limits allow."""
    depth = path.count(".")  # Each array above has one element.

    def made(count: int) -> Message:
        builder = _Builder(version, world, path, count, is_repeated=is_repeated)
        message: Message = builder.message(cls, 0, 0)
        return message

    few = len(encode_message(made(100), version))
    each = max(1, (few - len(encode_message(made(0), version))) // 100)
    # Numbers of more digits make later elements longer.
    each += 0 if is_repeated else 3
    return made(min(max_elements - depth, (max_bytes - 4_096 - few) // each))


class _Builder(RequestBuilder):
    def __init__(
        self, version: int, world: World, path: str, count: int, *, is_repeated: bool
    ) -> None:
        super().__init__(version, Shape.REPEATED, world)
        self._path = path.split(".")
        self._level = 0  # Of the message that is being built.
        self._count = count
        self._is_repeated = is_repeated
        self._is_inside = False  # Whether an element of the array in question is being built.

    def _value(self, cls: MessageType, field: Field, depth: int, number: int) -> Any:
        kind = field.type
        is_on_path = (
            not self._is_inside
            and self._level < len(self._path)
            and field.name == self._path[self._level]
        )
        if isinstance(kind, MessageType) and is_on_path:
            self._level += 1
            made = self.message(kind, depth, number)
            self._level -= 1
            return made
        if not isinstance(kind, ArrayOf):
            return super()._value(cls, field, depth, number)
        if not is_on_path:
            return []
        self._level += 1
        if self._level == len(self._path):
            self._is_inside = True
            numbers = [0] * self._count if self._is_repeated else range(self._count)
            made = [self._element(cls, field, kind.element, depth + 1, each) for each in numbers]
            self._is_inside = False
        else:
            made = [self._element(cls, field, kind.element, depth + 1, 0)]
        self._level -= 1
        return made

    def _single(self, cls: MessageType, field: Field, kind: WireType, number: int) -> Any:
        if self._is_inside and not self._is_repeated:
            if kind is STRING and super()._single(cls, field, kind, number):
                return _shortest(number)
            if kind is UUID:
                return number.to_bytes(16, "big").replace(b"\0", b"\7")
        return super()._single(cls, field, kind, number)


def _shortest(number: int) -> str:
    """A name that no other number has."""
    text = ""
    while True:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
        if not number:
            return text
