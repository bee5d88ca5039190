"""Classes made by `odradek.lazy_dataclass` behave as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, ClassVar

import pytest

from odradek import lazy_dataclass

MAKERS = [dataclasses.dataclass, lazy_dataclass.dataclass]


def make_point(make: Callable[..., Any], *, kw_only: bool = False) -> Any:
    settings: dict[str, Any] = {"frozen": True, "slots": True, "kw_only": kw_only}

    @make(**settings)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)
        count: ClassVar[int] = 0

    return Point


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Base:
    """At module level, so that it can be pickled."""

    name: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size {self.size}")


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Derived(Base):
    last: tuple[int, ...] = ()


@pytest.mark.parametrize("dataclass", MAKERS)
def test_defaults_equality_hash_and_text(dataclass: Callable[..., Any]) -> None:
    point = make_point(dataclass)

    assert point(1) == point(1, 2, [], note="other")
    assert point(1) != point(2)
    assert point(1) != (1, 2, [])
    assert point(1).tags is not point(1).tags
    assert repr(point(3)).endswith("Point(x=3, y=2, tags=[])")
    assert point.__match_args__ == ("x", "y", "tags", "note")
    assert [f.name for f in dataclasses.fields(point)] == ["x", "y", "tags", "note"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(1))


@pytest.mark.parametrize("dataclass", MAKERS)
def test_wrong_arguments_are_refused(dataclass: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument"):
        make_point(dataclass)()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        make_point(dataclass)(1, z=3)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        make_point(dataclass, kw_only=True)(1)


@pytest.mark.parametrize("dataclass", MAKERS)
def test_nothing_can_be_changed(dataclass: Callable[..., Any]) -> None:
    point = make_point(dataclass)(1)

    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 5
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises((FrozenInstanceError, TypeError)):
        point.unknown = 5
    assert (replace(point, x=5).x, point.x) == (5, 1)
    assert not hasattr(point, "__dict__")


@pytest.mark.parametrize("dataclass", MAKERS)
def test_methods_of_the_class_itself_stay(dataclass: Callable[..., Any]) -> None:
    @dataclass(frozen=True, slots=True)
    class Folded:
        name: str
        calls: int = field(init=False, default=7)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert len({Folded("a"), Folded("A")}) == 1
    assert repr(Folded("x")) == "<x>"
    assert Folded("x").calls == 7


def test_a_class_without_fields() -> None:
    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()).endswith("Nothing()")


def test_inheriting_adds_fields_and_keeps_checks() -> None:
    assert Derived("a", 1, (2,)) == Derived("a", 1, (2,))
    assert Derived("a") != Base("a")
    assert hash(Derived("a", 1)) == hash(Derived("a", 1))
    with pytest.raises(ValueError, match="size -1"):
        Derived("a", -1)
    with pytest.raises(FrozenInstanceError):
        Derived("a").name = "b"  # type: ignore[misc]  # That is what is refused.


def test_values_can_be_copied_and_pickled() -> None:
    value = Derived("a", 1, (2, 3))

    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value


def test_the_signature_is_known_once_used() -> None:
    point = make_point(lazy_dataclass.dataclass, kw_only=True)
    point(x=1)

    assert str(inspect.signature(point)).startswith("(*, x, y=2, ")


def test_other_kinds_are_left_to_the_standard_library() -> None:
    with pytest.raises(TypeError, match="only frozen classes with slots"):
        lazy_dataclass.dataclass(frozen=False, slots=True)
