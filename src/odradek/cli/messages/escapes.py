r"""Text for a terminal: what it would obey instead of showing it is escaped.

A message is data of others. The control characters in it could move the cursor, rename the window
or type into the shell; so could those of Unicode that reorder text. On a terminal they are shown as
``\x1b`` or ``\u202e``, bytes that are not UTF-8 as ``\xff``; line ends and tabs are left as they
are. In a pipe every byte is passed on.
"""

import re
from typing import Final

__all__ = ["escape", "escape_json"]

# A look at bytes, which most messages pass.
_HARMLESS: Final = re.compile(rb"[\n\t -~]*")
_LEFT: Final = "\n\t"


def escape(content: bytes) -> bytes:
    """Content as a terminal may get it."""
    if _HARMLESS.fullmatch(content):
        return content
    text = content.decode("utf-8", "surrogateescape")
    return "".join([_escape_one(one) for one in text]).encode()


def _escape_one(one: str) -> str:
    if one.isprintable() or one in _LEFT:
        return one
    code = ord(one)
    if 0xDC80 <= code <= 0xDCFF:  # A byte that is not UTF-8.
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_json(line: str) -> str:
    """Lines of JSON as a terminal may get them: still the same JSON."""
    if line.isascii() and "\x7f" not in line:
        return line
    return "".join(
        [one if one.isprintable() or one == "\n" else _escape_in_json(one) for one in line]
    )


def _escape_in_json(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)])
