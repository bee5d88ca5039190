"""The walk over many records of a batch at once, for acceptable speed without a compiler.

A loop in Python over the fields of a record costs about a microsecond. The records of a batch are
mostly alike, so the same byte of all of them is read as one *column*, and a call that runs in C
checks the column: `isascii` tells that no varint has a further byte, `==` that all lengths are the
same.

| run       | which records                            | how a column is made                   |
|-----------|------------------------------------------|----------------------------------------|
| *uniform* | same size, same length of key and value  | a slice of the batch, size as its step |
| *mixed*   | any size, short keys, no headers         | from the heads, cut out one by one     |

Records of a uniform run, 70 bytes each::

    position   +0  +1      +2          +3      +4     +5      ...  +69
    field      length      attributes  time    offset key length  headers
    column     all equal   any         ascii   0 2 4  all equal    all zero

A run is checked as thoroughly as record by record: only records that are surely valid are accepted,
and where a run is short or a byte unexpected, none is found and the caller walks singly.
"""

from collections.abc import Callable, Sequence
from operator import add, itemgetter, sub
from struct import Struct
from typing import Final, TypeAlias

__all__ = ["LEAST_MIXED", "LEAST_RUN", "SHORT_OFFSETS", "Tally", "walk_run"]

# Records from which a run is cheaper than as many single records.
LEAST_RUN: Final = 24
LEAST_MIXED: Final = 32
SHORT_OFFSETS: Final = 64  # The first offset delta of two bytes: no run crosses it.

_HEAD_SIZE: Final = 10  # Length of two, attributes, time and offset of three, length of the key.
_LONGEST_VARINT: Final = 3  # Of those that are judged in columns.

_LOW: Final = bytes(range(0x80))
_HIGH: Final = bytes(range(0x80, 0x100))
_EVEN: Final = bytes(range(0, 0x100, 2))
# Bytes of a key by its length in zigzag form: 1 is null, other odd numbers are invalid.
_KEY_SIZE: Final = bytes(
    0 if code == 1 else 0xFF if code & 1 or code >= 0x80 else code >> 1 for code in range(0x100)
)
# Bytes of a record by its length, which has one byte or two; for a negative or a longer length a
# size beyond every batch.
_NOWHERE: Final = 1 << 62
_LENGTH_FIRST: Final = tuple(
    _NOWHERE if code & 1 else (code & 0x7F) // 2 + (1 if code < 0x80 else 2)
    for code in range(0x100)
)
_LENGTH_SECOND: Final = tuple(code * 64 if code < 0x80 else _NOWHERE for code in range(0x100))
# The varints of the offset deltas 0, 1, 2, …: first byte of one, then first and second of two.
_OFFSETS_ALONE: Final = bytes(range(0, 0x80, 2))
_OFFSETS_FIRST: Final = bytes(range(0x80, 0x100, 2)) * 128
_OFFSETS_SECOND: Final = b"".join(bytes((high,)) * 64 for high in range(128))

_Columns: TypeAlias = list[bytes]


class Tally:
    """The findings in the records walked so far.

    Attributes:
        max_delta: Largest timestamp delta.
        max_index: Index of the first record that has it.
        min_delta: Smallest timestamp delta.
        is_consecutive: Whether the offset deltas are 0, 1, 2, …
        has_null_key: Whether any record has none.
    """

    __slots__ = ("has_null_key", "is_consecutive", "max_delta", "max_index", "min_delta")

    def __init__(self) -> None:
        self.max_delta = -(1 << 70)  # Beyond every difference of two timestamps.
        self.max_index = -1
        self.min_delta = 1 << 70
        self.is_consecutive = True
        self.has_null_key = False

    def add_times(self, index: int, columns: _Columns) -> None:
        """Adds the timestamp deltas of the records from `index` on."""
        has_negative = columns[0].translate(None, _EVEN) != b""  # Those are odd in zigzag form.
        first_largest = None if has_negative else _find_extreme(columns, max)
        first_smallest = None if has_negative else _find_extreme(columns, min)
        if first_largest is None or first_smallest is None:
            deltas = [(code >> 1) ^ -(code & 1) for code in _decode(columns)]
            largest, smallest = max(deltas), min(deltas)
            first_largest = deltas.index(largest)
        else:
            largest = _decode_one(columns, first_largest) >> 1
            smallest = _decode_one(columns, first_smallest) >> 1
        if largest > self.max_delta:
            self.max_delta = largest
            self.max_index = index + first_largest
        self.min_delta = min(self.min_delta, smallest)

    def add_offsets(self, index: int, columns: _Columns) -> None:
        """Adds the offset deltas of the records from `index` on."""
        stop = index + len(columns[0])
        if len(columns) == 1:
            same = columns[0] == _OFFSETS_ALONE[index:stop]
        elif len(columns) == 2 and index >= SHORT_OFFSETS:
            same = (
                columns[0] == _OFFSETS_FIRST[index:stop]
                and columns[1] == _OFFSETS_SECOND[index:stop]
            )
        else:
            same = list(_decode(columns)) == list(range(2 * index, 2 * stop, 2))
        if not same:
            self.is_consecutive = False


def walk_run(
    tally: Tally,
    data: bytes,
    position: int,
    end: int,
    *,
    index: int,
    count: int,
    mixed_count: int,
) -> tuple[int, int]:
    """Walks a run of records, if one begins with the record `index` at `position`.

    Args:
        tally: Gets the findings.
        data: The bytes of the records.
        position: The first byte.
        end: Where the records end.
        index: Of the first record.
        count: Records from there on.
        mixed_count: How many of them to try if they are of different sizes. Unlike that for a
            uniform run, a search for such a run costs nearly as much if none is found.

    Returns:
        How many records the run has, 0 if there is none, and the position after it.
    """
    if count < LEAST_RUN or position >= end:
        return 0, position
    found, behind = _walk_uniform(tally, data, position, end, index, count)
    if found:
        return found, behind
    count = min(count, mixed_count)
    if index < SHORT_OFFSETS:
        count = min(count, SHORT_OFFSETS - index)
    if count < LEAST_MIXED:
        return 0, position
    return _walk_mixed(tally, data, position, end, index, count)


def _walk_uniform(
    tally: Tally, data: bytes, position: int, end: int, index: int, count: int
) -> tuple[int, int]:
    length = data[position]
    shift = 1
    if length >= 0x80:
        shift = 2
        if position + 1 == end or (high := data[position + 1]) >= 0x80:
            return 0, position
        length += (high << 7) - 0x80
    size = shift + (length >> 1)
    count = min(count, (end - position) // size)
    for column in range(shift):
        count = _count_same(data[position + column : position + count * size : size])
    if length & 1 or count < LEAST_RUN:
        return 0, position
    times, shift, count = _read_varints(data, position, size, shift + 1, count)
    offsets, shift, count = _read_varints(data, position, size, shift, count)
    has_null_key = data[position + shift] == 1
    shift, count = _skip_same(data, position, size, shift, count)
    shift, count = _skip_same(data, position, size, shift, count)
    header_count, shift, count = _read_same(data, position, size, shift, count)
    if header_count & 1 or header_count >> 1 > size - shift:
        return 0, position
    for _ in range(header_count >> 1):
        shift, count = _skip_same(data, position, size, shift, count, lowest=0)
        shift, count = _skip_same(data, position, size, shift, count)
    if shift != size or count < LEAST_RUN:
        return 0, position
    tally.add_times(index, [column[:count] for column in times])
    tally.add_offsets(index, [column[:count] for column in offsets])
    if has_null_key:
        tally.has_null_key = True
    return count, position + count * size


def _skip_same(
    data: bytes, position: int, step: int, shift: int, count: int, lowest: int = -1
) -> tuple[int, int]:
    """The end of the bytes after a length, and how many records have it; 0 if it is invalid."""
    code, shift, count = _read_same(data, position, step, shift, count)
    if code & 1:
        return shift, count if code == 1 and lowest < 0 else 0
    return shift + (code >> 1), count


def _read_same(
    data: bytes, position: int, step: int, shift: int, count: int
) -> tuple[int, int, int]:
    """A varint that is the same in many records, its end, and how many records have it."""
    columns, shift, count = _read_varints(data, position, step, shift, count)
    for column in columns:
        count = min(count, _count_same(column))
    return _decode_one(columns, 0) if columns else 0, shift, count


def _walk_mixed(
    tally: Tally, data: bytes, position: int, end: int, index: int, count: int
) -> tuple[int, int]:
    """Walks records of different sizes whose times and offsets have the same number of bytes."""
    head_size = _find_head_size(data, position)
    head_end = head_size + 1
    last = position - 1
    lasts = [last]  # Positions of the byte before each record, and of the last byte of all.
    heads: list[bytes] = []
    try:
        for _ in range(count):
            head = data[last + 1 : last + head_end]
            length = head[0]
            if length >= 0x80:
                last += _LENGTH_FIRST[length] + _LENGTH_SECOND[head[1]]
                heads.append(head)
            else:  # Moved, so that all fields have the places they have after a two-byte length.
                last += _LENGTH_FIRST[length]
                heads.append(b"\0" + head[:-1])
            lasts.append(last)
    except IndexError:
        return 0, position
    if last >= end:
        return 0, position
    row = len(heads) - 1
    while len(heads[row]) < head_size:  # Heads that reach the end of the data.
        heads[row] = heads[row].ljust(head_size, b"\0")
        row -= 1
    joined = b"".join(heads)
    times, shift, count = _read_varints(joined, 0, head_size, 3, count)
    offsets, shift, count = _read_varints(joined, 0, head_size, shift, count)
    keys = joined[shift : count * head_size : head_size]
    if (odd := keys.translate(_KEY_SIZE).find(0xFF)) >= 0:
        count = odd
        keys = keys[:count]
    if count < LEAST_MIXED:
        return 0, position
    if not _are_filled(
        data, lasts[: count + 1], joined[: count * head_size], head_size, shift, keys
    ):
        return 0, position
    tally.add_times(index, [column[:count] for column in times])
    tally.add_offsets(index, [column[:count] for column in offsets])
    if 1 in keys:
        tally.has_null_key = True
    return count, lasts[count] + 1


def _find_head_size(data: bytes, position: int) -> int:
    """How many bytes of each record to read: up to the value, if all have keys like the first."""
    at = position + (1 if data[position] < 0x80 else 2) + 1
    head = data[at : at + _HEAD_SIZE]
    _, shift, _ = _read_varints(head, 0, _HEAD_SIZE, 0, 1)
    _, shift, _ = _read_varints(head, 0, _HEAD_SIZE, shift, 1)
    key_size = _KEY_SIZE[head[shift]] if shift < len(head) else 0xFF
    return _HEAD_SIZE if key_size == 0xFF else 3 + shift + 1 + key_size + 2


def _are_filled(
    data: bytes, lasts: list[int], heads: bytes, head_size: int, key_at: int, keys: bytes
) -> bool:
    """Whether key, value and a header count of zero fill every record exactly.

    All records are computed at once: a number of 16 bits each, side by side in one large integer.
    None overflows into its neighbour, because a varint of two bytes is below 8192.

    Args:
        data: The bytes of the records.
        lasts: Positions of the byte before each record, and of the last byte of all.
        heads: The first bytes of each record, moved by one if its length has one byte.
        head_size: How many.
        key_at: Which of them is the length of the key.
        keys: The lengths of the keys.
    """
    count = len(keys)
    if any(itemgetter(*lasts[1:])(data)):
        return False  # A record has headers, or other bytes at its end.
    ones = int.from_bytes(b"\1\0" * count, "little")
    key_sizes = keys.translate(_KEY_SIZE)
    # Bytes of each record before the length of its value.
    ahead = (
        ones * key_at + ((_side_by_side(heads[::head_size]) >> 7) & ones) + _side_by_side(key_sizes)
    )
    value_at = key_at + 1 + key_sizes[0]
    if value_at + 2 <= head_size and _count_same(keys) == count:
        first = _side_by_side(heads[value_at::head_size])
        second = _side_by_side(heads[value_at + 1 :: head_size])
    else:
        places = list(map(add, lasts, (ahead + ones).to_bytes(2 * count, "little")[::2]))
        try:
            first = _side_by_side(itemgetter(*places)(data))
            second = _side_by_side(itemgetter(*[place + 1 for place in places])(data))
        except IndexError:
            return False
    goes_on = (first >> 7) & ones
    if second & (goes_on << 7):
        return False  # Three bytes or more.
    code = (first & (ones * 0x7F)) + ((second & (goes_on * 0x7F)) << 7)
    odd = code & ones
    if odd and (code - odd) & (odd * 0xFFFF):
        return False  # Negative, and not null.
    filled = ahead + ones * 2 + goes_on + ((code - odd) >> 1)
    sizes = Struct(f"<{count}H").pack(*map(sub, lasts[1:], lasts))
    return filled == int.from_bytes(sizes, "little")


def _side_by_side(column: bytes | tuple[int, ...]) -> int:
    """Bytes as numbers of 16 bits, the first one lowest."""
    spread = bytearray(2 * len(column))
    spread[::2] = bytes(column)
    return int.from_bytes(spread, "little")


def _read_varints(
    data: bytes, position: int, step: int, shift: int, count: int
) -> tuple[_Columns, int, int]:
    """The varints `shift` bytes after `position` and every `step` bytes from there.

    Returns:
        Their columns, none if they are too long; the shift of the field after them; and how many
        of them, from the first on, have as many bytes as the first.
    """
    columns: _Columns = []
    while len(columns) < _LONGEST_VARINT:
        column = data[position + shift : position + count * step : step]
        if not column:
            break
        columns.append(column)
        shift += 1
        if column[0] < 0x80:
            if not column.isascii():
                count = len(column) - len(column.lstrip(_LOW))
            return columns, shift, count
        count = len(column) - len(column.lstrip(_HIGH))
    return [], shift, 0


def _find_extreme(columns: _Columns, choose: Callable[[bytes], int]) -> int | None:
    """Index of the first largest or smallest number; None if the columns do not tell cheaply.

    The last byte of a varint weighs most. Times mostly grow, so the records with the extreme last
    byte are adjacent, and among these the byte before it decides.
    """
    start, stop = 0, len(columns[0])
    for column in reversed(columns):
        part = column[start:stop]
        byte = choose(part)
        first, last = part.find(byte), part.rfind(byte)
        if column is not columns[0] and part.count(byte) != last - first + 1:
            return None
        start, stop = start + first, start + last + 1
    return start


def _decode_one(columns: _Columns, index: int) -> int:
    """The number at `index` of those that `_decode` returns."""
    return _decode([column[index : index + 1] for column in columns])[0]


def _decode(columns: _Columns) -> Sequence[int]:
    """The numbers, still in zigzag form, of columns that `_read_varints` found."""
    if len(columns) == 1:
        return columns[0]
    if len(columns) == 2:
        return [low + (high << 7) - 0x80 for low, high in zip(*columns, strict=True)]
    return [
        low + (mid << 7) + (high << 14) - 0x4080 for low, mid, high in zip(*columns, strict=True)
    ]


def _count_same(column: bytes) -> int:
    """How many bytes, from the first on, are equal to it."""
    first = column[:1]
    if column.count(first) == len(column):
        return len(column)
    return len(column) - len(column.lstrip(first))
