"""Marks for mypyc, which compiles some modules (docs/adr/0009-two-compilers.md).

The interpreter ignores a mark; the type checker sees that of mypy_extensions, which is not needed
at run time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:
    T = TypeVar("T")

    def mypyc_attr(**_: object) -> Callable[[T], T]:
        """Marks a class.

        - `native_class=False`: compiled as an ordinary Python class, for a decorator that changes
          the class, such as `odradek.lazy_dataclass.dataclass`.
        - `allow_interpreted_subclasses=True`: classes of interpreted modules may extend the class.
        """
        return lambda cls: cls
