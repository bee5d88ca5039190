"""The declaration of messages: once, for all versions.

A message is a class without behaviour::

    class HeartbeatRequest(Message, versions="0-4", flexible="4+"):
        group_id: str = wire(STRING)
        # 3: static members (KIP-345).
        group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)

Fields are in wire order. A version that lacks a field reads it as its default. Writing a field
the version lacks drops it when the field is `ignorable`; otherwise a value other than the default
is refused, since the peer would act on a part of the request.

Instances are keyword-only, slotted and frozen. They are not dataclasses: a few hundred of those
cost a third of a second at import and five times as much per instance, because every field of a
frozen dataclass is set through a call. Here nothing is generated before it is needed, and an
instance is filled as an object of a mutable twin class with the same slots, then turned into
the frozen class by assigning `__class__`.

`codec` reads and writes the messages declared with this module.
"""

from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, dataclass_transform

from odradek.protocol.primitives import WireType
from odradek.protocol.versions import NO_VERSIONS, VersionRange

__all__ = [
    "ArrayOf",
    "Field",
    "Message",
    "MessageType",
    "array",
    "compile_constructor",
    "default_of",
    "replace",
    "wire",
]

_UNSET: Final = object()


class ArrayOf(NamedTuple):
    """An array of primitives or of structs."""

    element: "WireType | MessageType"


class Field(NamedTuple):
    """One field of a message, as declared; `name` is filled in by its class."""

    name: str
    type: "WireType | ArrayOf | MessageType"
    # Versions that have the field at all.
    versions: VersionRange
    # Versions in which it may be null.
    nullable: VersionRange
    # Versions in which it is tagged rather than in the fixed sequence; empty unless `tag` is set.
    tagged: VersionRange
    tag: int | None
    # As declared; `default_of` returns the value.
    declared_default: Any
    # Whether a version without the field may silently drop it.
    ignorable: bool
    # Whether its value may be a secret, which `repr` does not show.
    is_secret: bool


def array(element: "WireType | type[Message]") -> ArrayOf:
    """An array type; its elements are read as a tuple and written from any sequence."""
    return ArrayOf(element)


def wire(
    type_: "WireType | ArrayOf | type[Message]",
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = _UNSET,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    is_secret: bool = False,
) -> Any:
    """Declares a field of a message.

    Args:
        type_: A wire type of `primitives`, `array(…)`, or another message class (a struct).
        versions: Versions that have it.
        nullable: Versions in which null is allowed.
        default: Value when absent; if not given, the type's zero, or a struct of defaults.
        tag: Its number, if it is a tagged field.
        tagged: Versions in which it is tagged; all of `versions` unless given.
        ignorable: Whether a version without it may drop it silently.
        is_secret: Whether its value may be a password, or would let its reader pose as a user.
    """
    return Field(
        name="",
        type=type_,
        versions=VersionRange.parse(versions),
        nullable=VersionRange.parse(nullable),
        tagged=NO_VERSIONS if tag is None else VersionRange.parse(tagged or versions),
        tag=tag,
        declared_default=default,
        ignorable=ignorable,
        is_secret=is_secret,
    )


def default_of(field: Field) -> Any:
    """The value of a field that is not set."""
    if field.declared_default is not _UNSET:
        return field.declared_default
    if isinstance(field.type, ArrayOf):
        return ()
    if isinstance(field.type, MessageType):
        if field.type.wire_default is None:
            field.type.wire_default = field.type()
        return field.type.wire_default
    return field.type.default


@dataclass_transform(kw_only_default=True, frozen_default=True)
class MessageType(type):
    """Turns `wire(…)` declarations into slots and keeps them in `wire_fields`."""

    wire_fields: tuple[Field, ...]
    wire_versions: VersionRange
    wire_flexible: VersionRange
    # Codecs compiled so far, by version.
    wire_decoders: dict[int, Callable[[memoryview, int], tuple[Any, int]]]
    wire_encoders: dict[int, Callable[[Any, list[Any]], None]]
    # The same for long messages, which yield after each element.
    wire_stepping_decoders: dict[
        int, Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]]
    ]
    wire_stepping_encoders: dict[int, Callable[[Any, list[Any]], Generator[None, None, None]]]
    # A shared instance of defaults: the value of absent tagged structs, recognised by identity.
    wire_default: "Message | None"
    # Builds an instance from all field values in order; made with the constructor.
    wire_make: Callable[..., Any] | None

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str = "0+",
        flexible: str = "none",
    ) -> "MessageType":
        # Messages do not inherit from each other: a constructor belongs to one set of slots.
        assert all(base.__bases__ == (object,) for base in bases)
        fields = tuple(
            value._replace(name=key) for key, value in namespace.items() if isinstance(value, Field)
        )
        body = {key: value for key, value in namespace.items() if not isinstance(value, Field)}
        body["__slots__"] = tuple(field.name for field in fields)
        cls = super().__new__(mcs, name, bases, body)
        cls.wire_fields = fields
        cls.wire_versions = VersionRange.parse(versions)
        cls.wire_flexible = VersionRange.parse(flexible)
        cls.wire_decoders = {}
        cls.wire_encoders = {}
        cls.wire_stepping_decoders = {}
        cls.wire_stepping_encoders = {}
        cls.wire_default = None
        cls.wire_make = None
        return cls

    # Class keywords are consumed above; `type.__init__` takes none.
    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **_keywords: str,
    ) -> None:
        super().__init__(name, bases, namespace)


class Message(metaclass=MessageType):
    """Base of every message and of every struct inside one."""

    wire_fields: ClassVar[tuple[Field, ...]]

    def __new__(cls, **values: Any) -> Self:
        compile_constructor(cls)
        return cls(**values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen: use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name) for field in self.wire_fields
        )

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in self.wire_fields))

    def __repr__(self) -> str:
        values = ((field, getattr(self, field.name)) for field in self.wire_fields)
        told = (
            f"{field.name}={'…' if field.is_secret else repr(value)}"
            for field, value in values
            if value != default_of(field)
        )
        return f"{type(self).__name__}({', '.join(told)})"


M = TypeVar("M", bound=Message)


def replace(message: M, **changes: Any) -> M:
    """A copy of `message` with some fields changed."""
    values = {field.name: getattr(message, field.name) for field in message.wire_fields}
    return type(message)(**values | changes)


def compile_constructor(cls: MessageType) -> Callable[..., Any]:
    """Compiles the constructor of a message class; returns its positional twin for decoders."""
    names = [field.name for field in cls.wire_fields]
    twin = type.__new__(
        MessageType,
        cls.__name__,
        cls.__bases__,
        {
            "__slots__": tuple(names),
            "__new__": object.__new__,
            "__setattr__": object.__setattr__,
        },
    )
    defaults = {f"default_{field.name}": default_of(field) for field in cls.wire_fields}
    keywords = "".join(f", {name}=default_{name}" for name in names)
    fill = "".join(f"    self.{name} = {name}\n" for name in names)
    source = (
        f"def __new__(cls{', *' if names else ''}{keywords}):\n"
        f"    self = blank()\n{fill}    self.__class__ = cls\n    return self\n"
        f"def make({', '.join(names)}):\n"
        f"    self = blank()\n{fill}    self.__class__ = frozen\n    return self\n"
    )
    scope: dict[str, Any] = {"blank": twin, "frozen": cls, **defaults}
    exec(source, scope)  # noqa: S102 - our own declarations, no outside input
    make: Callable[..., Any] = scope["make"]
    cls.wire_make = make
    cls.__new__ = scope["__new__"]  # type: ignore[method-assign]  # that is the point
    return make
