"""Messages as lines of JSON, which `consume --json` writes and `produce --json` reads.

A line is an object::

    {"topic": "orders", "partition": 0, "offset": 17, "timestamp": 1767225600000,
     "key": "k", "value": "v", "headers": [{"key": "trace", "value": "1"}]}

Bytes that are not UTF-8 are base64 in a field of another name: `key_base64`, `value_base64`. Null
is null. `topic` and `offset` are not read, `partition` only if asked for. To be read, a line needs
`value` or `value_base64`: a value that is forgotten must not delete a key. A value or key that is
another JSON value than text is sent as its JSON.

Both ways are what `consume --json | produce --json` costs, so they make no object per message that
is not needed: lines are put together as text, and parsed into columns.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring as _quote
from json.scanner import make_scanner
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.messages.columns import MessageColumns
from odradek.cli.messages.content import Content, dump

if TYPE_CHECKING:
    from odradek.records.codec import ConsumerRecord

__all__ = ["JsonLineError", "JsonLines", "write_json"]

_FIELDS: Final = frozenset(
    {
        *("topic", "partition", "offset", "timestamp", "headers"),
        *("key", "key_base64", "value", "value_base64"),
    }
)
# Those of a line that is written, if none is base64, in order.
_WRITTEN: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_HEADER_FIELDS: Final = frozenset({"key", "key_base64", "value", "value_base64"})
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
# The loop of C, where there is one: a value of JSON at a place in a text, and where it ends.
_scan: Final[Callable[[str, int], tuple[Any, int]]] = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]  # as it says
_BLANK: Final = re.compile(r"[ \t\r]*")


class JsonLineError(ValueError):
    """A line that is no message; `index` is its place among the lines of the call."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index


# Writing


def write_json(records: "Sequence[ConsumerRecord]") -> str:
    """The lines of messages."""
    lines: list[str] = []
    add = lines.append
    topic, start = None, ""
    for record in records:
        if record.topic != topic:
            topic = record.topic
            start = f'{{"topic": {_quote(topic)}, "partition": '
        key, value, headers = record.key, record.value, record.headers
        try:
            shown_key = '"key": null' if key is None else f'"key": {_quote(key.decode())}'
        except UnicodeDecodeError:
            shown_key = _field("key", key)
        try:
            shown_value = '"value": null' if value is None else f'"value": {_quote(value.decode())}'
        except UnicodeDecodeError:
            shown_value = _field("value", value)
        shown_headers = _headers(headers) if headers else ""
        add(
            f'{start}{record.partition}, "offset": {record.offset}, "timestamp": '
            f"{record.timestamp}, {shown_key}, {shown_value}, "
            f'"headers": [{shown_headers}]}}\n'
        )
    return "".join(lines)


def write_decoded(one: Content) -> str:
    """The line of a message whose key or value a decoder has made JSON."""
    record = one.record
    key = f'"key": {dump(one.key_json)}' if one.is_key_decoded else _field("key", record.key)
    value = (
        f'"value": {dump(one.value_json)}'
        if one.is_value_decoded
        else _field("value", record.value)
    )
    return (
        f'{{"topic": {_quote(record.topic)}, "partition": {record.partition}, '
        f'"offset": {record.offset}, "timestamp": {record.timestamp}, {key}, {value}, '
        f'"headers": [{_headers(record.headers)}]}}\n'
    )


def _field(name: str, content: bytes | None) -> str:
    if content is None:
        return f'"{name}": null'
    try:
        return f'"{name}": {_quote(content.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64": "{base64.b64encode(content).decode()}"'


def _headers(headers: Any) -> str:
    return ", ".join(
        f"{{{_field('key', name.encode('utf-8', 'surrogateescape'))}, {_field('value', content)}}}"
        for name, content in headers
    )


# Reading


class JsonLines:
    """Parses lines into columns.

    Args:
        keeps_partitions: Whether the field `partition` is read.
    """

    def __init__(self, *, keeps_partitions: bool) -> None:
        self._keeps_partitions = keeps_partitions

    def parse(self, lines: bytes, into: MessageColumns) -> None:
        """Adds the messages of lines; blank lines are skipped. Those before an error are added.

        Raises:
            JsonLineError: A line is no message.
        """
        try:
            text = lines.decode()
        except UnicodeDecodeError as error:
            whole = lines[: lines.rfind(b"\n", 0, error.start) + 1]
            self.parse(whole, into)
            index = whole.count(b"\n")
            raise JsonLineError(index, f"it is not UTF-8: {error.reason}") from None
        at, index, end = 0, 0, len(text)
        find = text.find
        add = self._add
        while at < end:
            line_end = find("\n", at)
            if line_end < 0:
                line_end = end
            try:
                found, stop = _scan(text, at)
            except (StopIteration, ValueError, RecursionError) as error:
                if _BLANK.fullmatch(text, at, line_end) is None:
                    found = _scan_again(text[at:line_end], index, error)
                    stop = line_end
                else:
                    at, index = line_end + 1, index + 1
                    continue
            if stop != line_end and (
                stop > line_end or _BLANK.fullmatch(text, stop, line_end) is None
            ):
                raise JsonLineError(index, "it is not one JSON object")
            try:
                add(found, into)
            except (ValueError, TypeError) as error:
                raise JsonLineError(index, str(error)) from None
            at, index = line_end + 1, index + 1

    def _add(self, found: Any, into: MessageColumns) -> None:
        if not (
            type(found) is dict and len(found) == len(_WRITTEN) and self._add_plain(found, into)
        ):
            self._add_any(found, into)

    def _add_plain(self, found: dict[str, Any], into: MessageColumns) -> bool:
        """Adds a message as `write_json` writes it, without headers and base64, if it is one."""
        try:
            # As many fields as these, and all of these.
            _, partition, _, timestamp, key, value, headers = [found[name] for name in _WRITTEN]
        except KeyError:
            return False
        if (
            headers
            or type(timestamp) is not int
            or not 0 <= timestamp <= _MAX_INT64
            or type(partition) is not int
            or not 0 <= partition <= _MAX_INT32
            or not (key is None or type(key) is str)
            or not (value is None or type(value) is str)
        ):
            return False
        encoded = None if value is None else value.encode()
        into.keys.append(None if key is None else key.encode())
        into.values.append(encoded)
        into.headers.append(())
        into.timestamps.append(timestamp)
        into.partitions.append(partition if self._keeps_partitions else None)
        return True

    def _add_any(self, found: Any, into: MessageColumns) -> None:
        if type(found) is not dict:
            raise ValueError(f"expected an object, found {dump(found)[:50]}")
        if not _FIELDS.issuperset(found):
            unknown = min(found.keys() - _FIELDS)
            raise ValueError(
                f"a message has no field {unknown!r}; there are {', '.join(sorted(_FIELDS))}. "
                "Without --json each line is the value of a message"
            )
        value = found.get("value", into)
        if type(value) is str and "value_base64" not in found:
            value = value.encode()
        elif value is not None or "value_base64" in found:
            value = _read_bytes(found, "value")
        key = found.get("key")
        if type(key) is str and "key_base64" not in found:
            key = key.encode()
        elif key is not None or "key_base64" in found:
            key = _read_bytes(found, "key")
        timestamp = found.get("timestamp")
        if timestamp is not None:
            timestamp = _read_number("timestamp", timestamp, -1, _MAX_INT64)
        partition = None
        if self._keeps_partitions and (partition := found.get("partition")) is not None:
            partition = _read_number("partition", partition, 0, _MAX_INT32)
        headers = found.get("headers")
        into.add(key, value, _read_headers(headers) if headers else (), timestamp, partition)


def _scan_again(line: str, index: int, error: Exception) -> Any:
    """Parses a line that begins with blanks, or tells what is wrong with it."""
    try:
        return json.loads(line)
    except json.JSONDecodeError as second:
        where = f"{second.msg} at column {second.colno}"
        raise JsonLineError(index, f"it is not JSON: {where}") from error
    except (ValueError, RecursionError) as second:
        raise JsonLineError(index, f"it cannot be read: {second}") from error


def _read_bytes(found: dict[str, Any], name: str) -> bytes | None:
    other = f"{name}_base64"
    if other in found:
        if name in found:
            raise ValueError(f"it has both {name} and {other}")
        encoded = found[other]
        if not isinstance(encoded, str):
            raise ValueError(f"{other}: expected text, found {dump(encoded)[:50]}")
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{other}: {error}") from None
    if name not in found:
        raise ValueError(f"it has neither {name} nor {other}; null is a {name}, too")
    content = found[name]
    if content is None:
        return None
    # Half of a surrogate pair cannot be encoded: UnicodeEncodeError, which is a ValueError.
    return (content if isinstance(content, str) else dump(content)).encode()


def _read_number(name: str, found: object, least: int, most: int) -> int:
    if type(found) is not int or not least <= found <= most:
        raise ValueError(f"{name}: expected a number from {least} on, found {dump(found)[:50]}")
    return found


def _read_headers(headers: Any) -> tuple[tuple[bytes, bytes | None], ...]:
    if isinstance(headers, dict):  # The short form, for headers that are text.
        headers = [{"key": name, "value": content} for name, content in headers.items()]
    if not isinstance(headers, list):
        raise TypeError(f"headers: expected a list, found {dump(headers)[:50]}")
    read = []
    for one in headers:
        if not isinstance(one, dict) or not _HEADER_FIELDS.issuperset(one):
            raise ValueError(f'headers: expected {{"key": …, "value": …}}, found {dump(one)[:50]}')
        key = _read_bytes(one, "key")
        if key is None:
            raise ValueError("headers: a header has no key")
        read.append((key, _read_bytes(one, "value")))
    return tuple(read)
