"""Generates the Python function that reads one version of one message.

Every field begins with a part of fixed size: its value, or the length, count or first varint
byte that announces the rest. Such parts are collected into a *run* and read with one
`struct` call; the run ends where a length must be known to continue. Structs and arrays of
structs are written inline, as nested loops, so nothing is called per element but the
constructor. For `HeartbeatRequest` v4 (group_id, generation_id, member_id, …)::

    def decode(buf, pos):
        end = len(buf)
        n1 = buf[pos]; pos += 1                      # group_id: length + 1
        if n1 > 127: n1, pos = uvarint_tail(buf, pos, n1)
        if n1 < 1: fail_null("group_id", pos)
        e1 = pos + n1 - 1
        if e1 > end: fail_length("group_id", n1 - 1, pos, end)
        v1 = str(buf[pos:e1], "utf-8"); pos = e1
        v2, n3 = unpack1(buf, pos); pos += 5         # generation_id, then member_id's length
        …
        return make0(v1, v2, v3, v4), pos

With `in_steps` the function is a generator that yields after each element of an array, so that the
caller can do other work in between, and that refuses more than `most` elements in all arrays
together. It is for long requests; reading a short one takes no longer for it.

Rules of the generated code: a length or count is compared with the bytes left before memory is
allocated; every loop turn consumes at least one byte; `pos` never passes `end`. A read past the end
of the buffer raises `IndexError` or `struct.error`, which `codec` translates.
"""

from collections.abc import Callable, Generator
from struct import Struct, calcsize, unpack_from
from typing import Any

from odradek.protocol.primitives import (
    BYTES,
    MAX_STRING_BYTES,
    MAX_TAGS,
    RECORDS,
    STRING,
    UUID,
    WireType,
    fail_count,
    fail_excess,
    fail_length,
    fail_null,
    fail_tag,
    parse_uvarint,
    parse_uvarint_tail,
    skip_tagged_fields,
)
from odradek.protocol.schema import ArrayOf, Field, MessageType, compile_constructor, default_of

__all__ = ["compile_decoder", "compile_stepping_decoder", "decoder_source"]


def compile_decoder(cls: MessageType, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    """Compiles the decoder of one version: `(view, position) -> (message, position after it)`."""
    source, scope = decoder_source(cls, version)
    exec(compile(source, f"<decoder of {cls.__name__} v{version}>", "exec"), scope)  # noqa: S102
    decode: Callable[[memoryview, int], tuple[Any, int]] = scope["decode"]
    return decode


def compile_stepping_decoder(
    cls: MessageType, version: int
) -> Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]]:
    """Compiles the decoder of one version that yields after each element."""
    source, scope = decoder_source(cls, version, in_steps=True)
    name = f"<stepping decoder of {cls.__name__} v{version}>"
    exec(compile(source, name, "exec"), scope)  # noqa: S102
    decode: Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]]
    decode = scope["decode"]
    return decode


def decoder_source(
    cls: MessageType, version: int, *, in_steps: bool = False
) -> tuple[str, dict[str, Any]]:
    """The source of a decoder, and the names it uses."""
    writer = _DecoderWriter(version, flexible=version in cls.wire_flexible, in_steps=in_steps)
    result = writer.struct(cls)
    writer.line(f"return {result}, pos")
    begin = ["def decode(buf, pos):", "    end = len(buf)"]
    if in_steps:
        # At least one yield makes it a generator.
        begin = [
            "def decode(buf, pos, most):",
            "    end = len(buf)",
            "    room = most",
            "    yield",
        ]
    return "\n".join([*begin, *writer.lines, ""]), writer.scope


class _DecoderWriter:
    def __init__(self, version: int, *, flexible: bool, in_steps: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._depth = 1
        self._names = 0
        # Fixed-size beginnings not read yet: (struct code, variable).
        self._run: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "fail_count": fail_count,
            "fail_excess": fail_excess,
            "fail_length": fail_length,
            "fail_null": fail_null,
            "fail_tag": fail_tag,
            "skip_tags": skip_tagged_fields,
            "unpack_from": unpack_from,
            "uvarint": parse_uvarint,
            "uvarint_tail": parse_uvarint_tail,
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def struct(self, cls: MessageType) -> str:
        """Reads all fields of a struct; returns the expression that builds it."""
        values: dict[str, str] = {}
        tagged: list[Field] = []
        for field in cls.wire_fields:
            if self._version not in field.versions:
                values[field.name] = self._constant(default_of(field))
            elif self._version in field.tagged:
                tagged.append(field)
            else:
                values[field.name] = self._field(field)
        if self._flexible:
            values.update(self._tag_section(tagged))
        self._flush()
        make = self._constant(cls.wire_make or compile_constructor(cls), "make")
        return f"{make}({', '.join(values[field.name] for field in cls.wire_fields)})"

    def _field(self, field: Field) -> str:
        return self._value(field.type, field.name, nullable=self._version in field.nullable)

    def _value(self, type_: WireType | ArrayOf | MessageType, label: str, *, nullable: bool) -> str:
        """Reads one value; returns the variable that holds it."""
        value = self._name("v")
        if isinstance(type_, ArrayOf):
            self._array(type_.element, value, label, nullable=nullable)
        elif isinstance(type_, MessageType):
            self._nested(type_, value, label, nullable=nullable)
        elif type_.code:
            self._run.append((type_.code, value))
        else:
            self._sized(type_, value, label, nullable=nullable)
        return value

    def _sized(self, type_: WireType, value: str, label: str, *, nullable: bool) -> None:
        length = self._length("h" if type_ is STRING else "i", label, nullable=nullable)
        self._open_present(length, value, nullable=nullable)
        end = self._name("e")
        self.line(f"{end} = pos + {length}")
        # An int16 length never exceeds the limit of a string.
        is_bounded = type_ is STRING and self._flexible
        too_long = f" or {length} > {MAX_STRING_BYTES}" if is_bounded else ""
        self.line(f"if {end} > end{too_long}: fail_length({label!r}, {length}, pos, end)")
        part = f"buf[pos:{end}]"
        read = {STRING: f'str({part}, "utf-8")', BYTES: f"bytes({part})", RECORDS: part}[type_]
        self.line(f"{value} = {read}")
        self.line(f"pos = {end}")
        self._close_present(nullable=nullable)

    def _array(
        self, element: WireType | MessageType, value: str, label: str, *, nullable: bool
    ) -> None:
        count = self._length("i", label, nullable=nullable)
        self._open_present(count, value, nullable=nullable)
        least = self._least_size(element)
        self.line(f"if {count} * {least} > end - pos: fail_count({label!r}, {count}, pos, end)")
        if self._in_steps:
            self.line(f"room -= {count}")
            self.line(f"if room < 0: fail_excess({label!r}, most)")
        if isinstance(element, WireType) and element.code and element is not UUID:
            self.line(f'{value} = unpack_from(f">{{{count}}}{element.code}", buf, pos)')
            self.line(f"pos += {count} * {element.size_bytes}")
        else:
            self.line(f"{value} = []")
            self.line(f"for _ in range({count}):")
            self._depth += 1
            if isinstance(element, MessageType):
                item = self.struct(element)
            else:
                item = self._value(element, label, nullable=False)
                self._flush()
            self.line(f"{value}.append({item})")
            if self._in_steps:
                self.line("yield")
            self._depth -= 1
            self.line(f"{value} = tuple({value})")
        self._close_present(nullable=nullable)

    def _nested(self, cls: MessageType, value: str, label: str, *, nullable: bool) -> None:
        if not nullable:
            self.line(f"{value} = {self.struct(cls)}")
            return
        marker = self._name("n")
        self._run.append(("b", marker))
        self._flush()
        self.line(f"if {marker} == -1: {value} = None")
        self.line(f"elif {marker} != 1: fail_length({label!r}, {marker}, pos, end)")
        self.line("else:")
        self._depth += 1
        self.line(f"{value} = {self.struct(cls)}")
        self._depth -= 1

    def _length(self, code: str, label: str, *, nullable: bool) -> str:
        """Reads a length or count; afterwards it is -1 for null, and otherwise not negative."""
        length = self._name("n")
        if self._flexible:
            self._run.append(("B", length))
            self._flush()
            self.line(f"if {length} > 127: {length}, pos = uvarint_tail(buf, pos, {length})")
            self.line(f"{length} -= 1")
            if not nullable:
                self.line(f"if {length} < 0: fail_null({label!r}, pos)")
        else:
            self._run.append((code, length))
            self._flush()
            self.line(f"if {length} < {-1 if nullable else 0}:")
            if not nullable:
                self.line(f"    if {length} == -1: fail_null({label!r}, pos)")
            self.line(f"    fail_length({label!r}, {length}, pos, end)")
        return length

    def _open_present(self, length: str, value: str, *, nullable: bool) -> None:
        if nullable:
            self.line(f"if {length} < 0: {value} = None")
            self.line("else:")
            self._depth += 1

    def _close_present(self, *, nullable: bool) -> None:
        if nullable:
            self._depth -= 1

    def _tag_section(self, tagged: list[Field]) -> dict[str, str]:
        """Reads the end of a struct in a flexible version; the common case is one zero byte."""
        count = self._name("n")
        self._run.append(("B", count))
        self._flush()
        if not tagged:
            self.line(f"if {count}: pos = skip_tags(buf, pos, {count})")
            return {}
        values = {field.name: self._name("v") for field in tagged}
        for field in tagged:
            self.line(f"{values[field.name]} = {self._constant(default_of(field))}")
        self.line(f"if {count}:")
        self._depth += 1
        tag, size, last, end = (self._name(prefix) for prefix in ("t", "s", "l", "e"))
        self.line(f"if {count} > 127: {count}, pos = uvarint_tail(buf, pos, {count})")
        self.line(f"if {count} > {MAX_TAGS}: fail_excess('tags', {MAX_TAGS})")
        self.line(f"{last} = -1")
        self.line(f"for _ in range({count}):")
        self._depth += 1
        self.line(f"{tag}, pos = uvarint(buf, pos)")
        self.line(f"{size}, pos = uvarint(buf, pos)")
        self.line(f"{end} = pos + {size}")
        self.line(f"if {tag} <= {last} or {end} > end: fail_tag({tag}, {last}, {size}, end - pos)")
        self.line(f"{last} = {tag}")
        for field in tagged:
            self.line(f"if {tag} == {field.tag}:")
            self._depth += 1
            read = self._field(field)
            self._flush()
            self.line(f"if pos != {end}: fail_tag({tag}, -1, {size}, {end} - pos)")
            self.line(f"{values[field.name]} = {read}")
            self._depth -= 1
        self.line(f"pos = {end}")
        self._depth -= 2
        return values

    def _flush(self) -> None:
        """Reads the run gathered so far."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        variables = [variable for _, variable in self._run]
        self._run.clear()
        if codes == "B":
            self.line(f"{variables[0]} = buf[pos]")
            self.line("pos += 1")
            return
        unpack = self._constant(Struct(">" + codes).unpack_from, "unpack")
        targets = ", ".join(variables) if len(variables) > 1 else f"({variables[0]},)"
        self.line(f"{targets} = {unpack}(buf, pos)")
        self.line(f"pos += {calcsize('>' + codes)}")

    def _least_size(self, type_: WireType | ArrayOf | MessageType) -> int:
        """The fewest bytes a value can have, so that a hostile count fails early."""
        if isinstance(type_, MessageType):
            present = (
                field
                for field in type_.wire_fields
                if self._version in field.versions and self._version not in field.tagged
            )
            fields = sum(
                1
                if isinstance(field.type, MessageType) and self._version in field.nullable
                else self._least_size(field.type)
                for field in present
            )
            return max(fields + self._flexible, 1)
        if isinstance(type_, WireType) and type_.code:
            return type_.size_bytes
        if self._flexible:
            return 1
        return 2 if type_ is STRING else 4

    def _constant(self, value: Any, prefix: str = "default") -> str:
        if value is None or value == () or isinstance(value, int | str):
            return repr(value)
        name = self._name(prefix)
        self.scope[name] = value
        return name

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"
