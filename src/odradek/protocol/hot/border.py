"""The border of trust of the hand-tuned readers."""

from collections.abc import Callable
from functools import wraps
from struct import error as struct_error
from typing import TypeVar

from odradek.errors import DecodeError

__all__ = ["Parser", "decoding"]

T = TypeVar("T")
# (view of the whole payload, where the body begins, version) -> the request.
Parser = Callable[[memoryview, int, int], T]


def decoding(name: str) -> Callable[[Parser[T]], Parser[T]]:
    """Turns a read past the end, or a string that is not UTF-8, into `DecodeError`."""

    def decorate(parse: Parser[T]) -> Parser[T]:
        @wraps(parse)
        def parse_or_refuse(view: memoryview, position: int, version: int) -> T:
            try:
                return parse(view, position, version)
            except (struct_error, IndexError) as error:
                raise DecodeError(
                    f"{name} v{version} ends after {len(view) - position} bytes, more was announced"
                ) from error
            except UnicodeDecodeError as error:
                raise DecodeError(f"{name} v{version} holds a string that is no UTF-8") from error

        return parse_or_refuse

    return decorate
