"""Generates the Python function that encodes one version of one message.

It appends buffers to a list. Fixed-size values, lengths and counts that follow each other are
collected into a *run*, packed with one `struct` call; the tag section of a struct that has no
tags is the pad byte `x` of that call. That is the whole code for `HeartbeatResponse` v4::

    def encode(m, out):
        w = out.append
        w(pack1(m.throttle_time_ms, m.error_code))   # >ihx

With `in_steps` the function is a generator that yields after each element of an array, for long
answers.

A string above `MAX_STRING_BYTES` is refused: no reader accepts it, and the peer would close the
connection without a reason. The explanation of an error (`error_message` and the like) is for
people and may quote long input of a peer, so it is truncated instead.
"""

from collections.abc import Callable, Generator
from struct import Struct, pack
from typing import Any, NoReturn

from odradek.errors import ApiError, ErrorCode
from odradek.protocol.primitives import (
    MAX_STRING_BYTES,
    STRING,
    UUID,
    WireType,
    encode_uvarint,
    fail_string,
)
from odradek.protocol.schema import ArrayOf, Field, MessageType, default_of

__all__ = ["compile_encoder", "compile_stepping_encoder", "encoder_source"]


def compile_encoder(cls: MessageType, version: int) -> Callable[[Any, list[Any]], None]:
    """Compiles the encoder of one version: `(message, list of buffers to append to)`."""
    source, scope = encoder_source(cls, version)
    exec(compile(source, f"<encoder of {cls.__name__} v{version}>", "exec"), scope)  # noqa: S102
    encode: Callable[[Any, list[Any]], None] = scope["encode"]
    return encode


def compile_stepping_encoder(
    cls: MessageType, version: int
) -> Callable[[Any, list[Any]], Generator[None, None, None]]:
    """Compiles the encoder of one version that yields after each element."""
    source, scope = encoder_source(cls, version, in_steps=True)
    name = f"<stepping encoder of {cls.__name__} v{version}>"
    exec(compile(source, name, "exec"), scope)  # noqa: S102
    encode: Callable[[Any, list[Any]], Generator[None, None, None]] = scope["encode"]
    return encode


def encoder_source(
    cls: MessageType, version: int, *, in_steps: bool = False
) -> tuple[str, dict[str, Any]]:
    """The source of an encoder, and the names it uses."""
    writer = _EncoderWriter(version, flexible=version in cls.wire_flexible, in_steps=in_steps)
    writer.struct(cls, "m", "w")
    begin = ["def encode(m, out):", "    w = out.append"]
    if in_steps:
        begin.append("    yield")  # At least one makes it a generator.
    return "\n".join([*begin, *writer.lines, ""]), writer.scope


def _fail_unsupported(name: str, field: str, version: int) -> NoReturn:
    raise ApiError(
        ErrorCode.UNSUPPORTED_VERSION, f"{name} v{version} has no {field}, but it is set"
    )


def _fail_uuid(label: str, value: bytes) -> NoReturn:
    raise ValueError(f"{label}: a uuid has 16 bytes, not {len(value)}")


def _cut(text: bytes) -> bytes:
    """Truncates a text to `MAX_STRING_BYTES`, at the end of a character."""
    return text[:MAX_STRING_BYTES].decode(errors="ignore").encode()


def _tag(tag: int, parts: list[Any]) -> bytes:
    data = b"".join(parts)
    return encode_uvarint(tag) + encode_uvarint(len(data)) + data


class _EncoderWriter:
    def __init__(self, version: int, *, flexible: bool, in_steps: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._depth = 1
        self._names = 0
        # Fixed-size values not written yet: (struct code, expression; none for a pad byte).
        self._run: list[tuple[str, str | None]] = []
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "cut": _cut,
            "fail_string": fail_string,
            "fail_unsupported": _fail_unsupported,
            "fail_uuid": _fail_uuid,
            "pack": pack,
            "tag": _tag,
            "uvarint": encode_uvarint,
        }

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def struct(self, cls: MessageType, source: str, write: str) -> None:
        """Writes the struct that the variable `source` holds."""
        tagged: list[Field] = []
        for field in cls.wire_fields:
            if self._version not in field.versions:
                if not field.ignorable:
                    self._refuse_if_set(cls, field, source)
            elif self._version in field.tagged:
                tagged.append(field)
            else:
                self._field(field, source, write)
        if self._flexible:
            self._tag_section(tagged, source, write)
        self._flush(write)

    def _refuse_if_set(self, cls: MessageType, field: Field, source: str) -> None:
        self.line(
            f"if {self._is_set(field, f'{source}.{field.name}')}: "
            f"fail_unsupported({cls.__name__!r}, {field.name!r}, {self._version})"
        )

    def _is_set(self, field: Field, value: str) -> str:
        default = default_of(field)
        if default is None:
            return f"{value} is not None"
        if isinstance(field.type, ArrayOf):
            return value  # An empty list and an empty tuple are both the default.
        constant = self._constant(default)
        if isinstance(field.type, MessageType):
            return f"{value} is not {constant} and {value} != {constant}"
        return f"{value} != {constant}"

    def _field(self, field: Field, source: str, write: str) -> None:
        nullable = self._version in field.nullable
        expression = f"{source}.{field.name}"
        if isinstance(field.type, WireType) and field.type.code and field.type is not UUID:
            self._run.append((field.type.code, expression))
            return
        value = self._name("v")
        self.line(f"{value} = {expression}")
        self._value(field.type, value, write, label=field.name, nullable=nullable)

    def _value(
        self,
        type_: WireType | ArrayOf | MessageType,
        value: str,
        write: str,
        *,
        label: str,
        nullable: bool,
    ) -> None:
        """Writes the value of the variable `value`."""
        if isinstance(type_, ArrayOf):
            self._array(type_.element, value, write, label=label, nullable=nullable)
        elif isinstance(type_, MessageType):
            self._nested(type_, value, write, nullable=nullable)
        elif type_.code:
            if type_ is UUID:
                self.line(f"if len({value}) != 16: fail_uuid({label!r}, {value})")
            self._run.append((type_.code, value))
        else:
            self._sized(type_, value, write, label=label, nullable=nullable)

    def _sized(
        self, type_: WireType, value: str, write: str, *, label: str, nullable: bool
    ) -> None:
        data = f"{value}.encode()" if type_ is STRING else value
        code = "h" if type_ is STRING else "i"
        is_explanation = label.endswith("error_message")
        too_long = f"cut({value})" if is_explanation else f"fail_string({label!r}, {value})"
        bounded = f"if len({value}) > {MAX_STRING_BYTES}: {value} = {too_long}"
        if not nullable:
            self.line(f"{value} = {data}")
            if type_ is STRING:
                self.line(bounded)
            self._length(f"len({value})", code, write)
            self.line(f"{write}({value})")
            return
        length = self._name("n")
        self.line(f"if {value} is None: {length} = -1")
        self.line("else:")
        if type_ is STRING:
            self.line(f"    {value} = {data}")
            self.line(f"    {bounded}")
        self.line(f"    {length} = len({value})")
        self._length(length, code, write)
        # Null and empty values have no bytes to add; an empty file slice is dropped as well.
        self.line(f"if {length} > 0: {write}({value})")

    def _array(
        self,
        element: WireType | MessageType,
        value: str,
        write: str,
        *,
        label: str,
        nullable: bool,
    ) -> None:
        count = f"len({value})"
        if nullable:
            count = f"(-1 if {value} is None else len({value}))"
        self._length(count, "i", write)
        self._flush(write)
        if isinstance(element, WireType) and element.code and element is not UUID:
            self.line(f'if {value}: {write}(pack(f">{{len({value})}}{element.code}", *{value}))')
            return
        item = self._name("m")
        self.line(f"for {item} in {value}{' or ()' if nullable else ''}:")
        self._depth += 1
        if isinstance(element, MessageType):
            self.struct(element, item, write)
        else:
            self._value(element, item, write, label=label, nullable=False)
            self._flush(write)
        if self._in_steps:
            self.line("yield")
        self._depth -= 1

    def _nested(self, cls: MessageType, value: str, write: str, *, nullable: bool) -> None:
        if not nullable:
            self.struct(cls, value, write)
            return
        self._flush(write)
        self.line(f'if {value} is None: {write}(b"\\xff")')
        self.line("else:")
        self._depth += 1
        self._run.append(("b", "1"))
        self.struct(cls, value, write)
        self._depth -= 1

    def _length(self, length: str, code: str, write: str) -> None:
        if not self._flexible:
            self._run.append((code, length))
            self._flush(write)
            return
        self._flush(write)
        self.line(f"{write}(uvarint({length} + 1))")

    def _tag_section(self, tagged: list[Field], source: str, write: str) -> None:
        if not tagged:
            self._run.append(("x", None))
            return
        self._flush(write)
        tags, parts, append = (self._name(prefix) for prefix in ("t", "p", "w"))
        self.line(f"{tags} = []")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            value = self._name("v")
            self.line(f"{value} = {source}.{field.name}")
            self.line(f"if {self._is_set(field, value)}:")
            self._depth += 1
            self.line(f"{parts} = []")
            self.line(f"{append} = {parts}.append")
            nullable = self._version in field.nullable
            self._value(field.type, value, append, label=field.name, nullable=nullable)
            self._flush(append)
            self.line(f"{tags}.append(tag({field.tag}, {parts}))")
            self._depth -= 1
        self.line(f"{write}(uvarint(len({tags})))")
        self.line(f"for {parts} in {tags}: {write}({parts})")

    def _flush(self, write: str) -> None:
        """Writes the run gathered so far."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for _, value in self._run if value is not None)
        self._run.clear()
        if not values:
            self.line(f"{write}({bytes(len(codes))!r})")
            return
        packer = self._constant(Struct(">" + codes).pack, "pack")
        self.line(f"{write}({packer}({values}))")

    def _constant(self, value: Any, prefix: str = "default") -> str:
        if value is None or value == () or isinstance(value, int | str):
            return repr(value)
        name = self._name(prefix)
        self.scope[name] = value
        return name

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"
