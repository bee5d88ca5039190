"""`dataclass` for frozen values whose methods are compiled when the class is first used.

Most classes that a start imports are never used. `dataclasses.dataclass` writes and compiles six
methods for every class, which was two fifths of the time in which a test starts its first broker.
A class made here behaves the same, but

1. `__init__` is compiled when the first instance is made;
2. `__eq__`, `__hash__`, `__repr__` and the refusal of changes are closures over the field names.

Only classes with `frozen=True, slots=True` and without an `InitVar` can be made here; others use
the standard library. Type checkers see the standard `dataclass`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Makes a class of frozen values, see the module's docstring."""
        if not (frozen and slots):
            raise TypeError("only frozen classes with slots are made here: use dataclasses")

        def decorate(cls: type) -> type:
            if cls.__doc__ is None:
                cls.__doc__ = cls.__name__  # Else the standard library inspects the signature.
            cls = dataclasses.dataclass(
                init=False, repr=False, eq=False, slots=True, kw_only=kw_only
            )(cls)
            for name, method in _methods(cls).items():
                if name not in cls.__dict__:
                    setattr(cls, name, method)
            return cls

        return decorate


def _methods(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    fields = dataclasses.fields(cls)
    names = frozenset(field.name for field in fields)
    compared = _getter([f.name for f in fields if f.compare])
    hashed = _getter([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
    shown = [f.name for f in fields if f.repr]

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **kwargs)

    def show(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
        return f"{type(self).__qualname__}({values})"

    def equals(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return compared(self) == compared(other)

    def hash_of(self: Any) -> int:
        return hash(hashed(self))

    def refuse_change(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_removal(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def state_of(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in fields]

    def restore(self: Any, state: list[Any]) -> None:
        for field, value in zip(fields, state, strict=True):
            object.__setattr__(self, field.name, value)

    if cls.__dict__.get("__hash__") is None:  # Python sets None in a class that defines __eq__.
        cls.__hash__ = hash_of  # type: ignore[assignment]  # A function becomes a method.
    return {
        "__init__": init,
        "__repr__": show,
        "__eq__": equals,
        "__setattr__": refuse_change,
        "__delattr__": refuse_removal,
        "__getstate__": state_of,
        "__setstate__": restore,
    }


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _compile_init(cls: type[Any]) -> Callable[..., None]:
    """Writes the same `__init__` as the standard library, and compiles it."""
    namespace: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    positional: list[str] = []
    by_name: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        name, parameter, value = field.name, field.name, field.name
        if field.default_factory is not MISSING:
            namespace[f"_make_{name}"] = field.default_factory
            parameter += "=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        elif field.default is not MISSING:
            namespace[f"_default_{name}"] = field.default
            parameter += f"=_default_{name}"
        if field.init:
            (by_name if field.kw_only else positional).append(parameter)
        elif field.default_factory is not MISSING:
            value = f"_make_{name}()"
        elif field.default is not MISSING:
            value = f"_default_{name}"
        else:
            continue
        body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    source = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(source, namespace)  # noqa: S102 - made of the names of fields alone
    made: Callable[..., None] = namespace["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
