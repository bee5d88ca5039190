"""Marks for mypyc, which compiles some modules (docs/adr/0009-two-compilers.md).

To the interpreter a mark means nothing; to the type checker it is that of mypy_extensions, which is
not needed at run time.
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

        - `native_class=False`: a class as the interpreter makes it, for a decorator that changes
          it, such as `odradek.lazy_dataclass.dataclass`.
        - `allow_interpreted_subclasses=True`: classes of interpreted modules may extend it.
        """
        return lambda cls: cls
