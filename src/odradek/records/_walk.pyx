# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `walk.walk_records_pure`; see there for what it does.

It reads raw pointers, so every read is checked against the end of its record before it is made.
Large regions are walked without the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

include "_varint.pxi"

from odradek.errors import InvalidRecordError
from odradek.records.malformed import malformed_record, malformed_region

cdef enum:
    NULL_KEY = 1
    TIMESTAMP_OUT_OF_RANGE = 2
    MAX_BAD_RECORDS = 16
    # Bytes from which the walk takes longer than handing over the GIL is worth.
    NOGIL_SIZE = 65536
    # The most that an everyday record has in front of its key: 2 bytes, 1, 10, 3 and 2.
    MAX_FRONT = 18

cdef struct Walk:
    # What to check against.
    int64_t base_timestamp
    int64_t earliest_timestamp
    int64_t latest_timestamp
    bint require_key
    # What was found.
    int64_t max_timestamp
    Py_ssize_t max_index
    bint consecutive
    Py_ssize_t bad_index[MAX_BAD_RECORDS]
    int bad_reason[MAX_BAD_RECORDS]
    int bad_count
    bint has_bad_timestamp


cdef inline void note(Walk* walk, Py_ssize_t index, int reason) noexcept nogil:
    cdef int slot = walk.bad_count
    if slot == MAX_BAD_RECORDS:
        if reason != TIMESTAMP_OUT_OF_RANGE or walk.has_bad_timestamp:
            return
        slot -= 1
    else:
        walk.bad_count += 1
    walk.bad_index[slot] = index
    walk.bad_reason[slot] = reason
    if reason == TIMESTAMP_OUT_OF_RANGE:
        walk.has_bad_timestamp = True


cdef inline void judge(
    Walk* walk, Py_ssize_t index, int64_t timestamp, bint has_key
) noexcept nogil:
    """Takes account of a record that is well-formed."""
    if timestamp > walk.max_timestamp or index == 0:
        walk.max_timestamp = timestamp
        walk.max_index = index
    if walk.require_key and not has_key:
        note(walk, index, NULL_KEY)
    elif timestamp != -1 and not (
        walk.earliest_timestamp <= timestamp <= walk.latest_timestamp
    ):
        note(walk, index, TIMESTAMP_OUT_OF_RANGE)


cdef const uint8_t* walk_record(
    Walk* walk, const uint8_t* cursor, const uint8_t* end, Py_ssize_t index
) noexcept nogil:
    """Returns the byte behind the record, or NULL if it is malformed."""
    cdef int32_t length, key_length, offset_delta, header_count
    cdef int64_t timestamp_delta, timestamp
    cursor = read_varint(cursor, end, &length)
    if cursor == NULL or length <= 0 or length > end - cursor:
        return NULL
    end = cursor + length
    cursor = read_varlong(cursor + 1, end, &timestamp_delta)
    if cursor == NULL:
        return NULL
    cursor = read_varint(cursor, end, &offset_delta)
    if cursor == NULL:
        return NULL
    cursor = skip_bytes(cursor, end, -1, &key_length)
    if cursor == NULL:
        return NULL
    cursor = skip_bytes(cursor, end, -1, &length)
    if cursor == NULL:
        return NULL
    cursor = read_varint(cursor, end, &header_count)
    if cursor == NULL or header_count < 0 or header_count > end - cursor:
        return NULL
    while header_count > 0:
        cursor = skip_bytes(cursor, end, 0, &length)
        if cursor == NULL:
            return NULL
        cursor = skip_bytes(cursor, end, -1, &length)
        if cursor == NULL:
            return NULL
        header_count -= 1
    if cursor != end:
        return NULL

    if offset_delta != index:
        walk.consecutive = False
    # Unsigned, because leaving int64 wraps around and must not be undefined.
    timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>timestamp_delta)
    judge(walk, index, timestamp, key_length >= 0)
    # Not the cursor, which is the same but known later: the next record need not wait for it.
    return end


cdef inline const uint8_t* skip_plain_record(
    const uint8_t* cursor,
    const uint8_t* end,
    Py_ssize_t index,
    int64_t* timestamp_delta,
    bint* has_key,
) noexcept nogil:
    """Returns the byte behind an everyday record, or NULL if `walk_record` has to look at it.

    Everyday is: numbers of one or two bytes, up to three for the offset delta and nine for the
    timestamp delta; the expected offset delta; no headers. It answers a third of the questions of
    `walk_record`: a field in front of the key is short, so there is room for all of them at once,
    and that they end within the record follows from where the value ends.
    """
    cdef uint32_t raw
    cdef uint64_t delta
    cdef Py_ssize_t length
    cdef int shift
    cdef const uint8_t* last
    # Length, attributes, both deltas and the key's length lie within as many bytes.
    if end - cursor < MAX_FRONT:
        return NULL
    raw = cursor[0]
    cursor += 1
    if raw >= 0x80:
        if cursor[0] >= 0x80:
            return NULL
        raw = (raw & 0x7F) | <uint32_t>cursor[0] << 7
        cursor += 1
    length = raw >> 1
    if raw & 1 or length > end - cursor:
        return NULL
    last = cursor + length - 1  # Where the count of headers, 0, has to stand.
    cursor += 1  # Attributes.
    delta = cursor[0]
    cursor += 1
    if delta >= 0x80:
        delta &= 0x7F
        shift = 7
        while cursor[0] >= 0x80:
            delta |= <uint64_t>(cursor[0] & 0x7F) << shift
            shift += 7
            cursor += 1
            if shift == 63:
                return NULL
        delta |= <uint64_t>cursor[0] << shift
        cursor += 1
    raw = cursor[0]
    cursor += 1
    if raw >= 0x80:
        raw = (raw & 0x7F) | <uint32_t>(cursor[0] & 0x7F) << 7
        if cursor[0] >= 0x80:
            if cursor[1] >= 0x80:
                return NULL
            raw |= <uint32_t>cursor[1] << 14
            cursor += 1
        cursor += 1
    if <Py_ssize_t>raw != 2 * index:
        return NULL
    raw = cursor[0]
    cursor += 1
    if raw >= 0x80:
        if cursor[0] >= 0x80:
            return NULL
        raw = (raw & 0x7F) | <uint32_t>cursor[0] << 7
        cursor += 1
    if raw & 1 and raw != 1:
        return NULL
    has_key[0] = raw != 1
    length = raw >> 1
    if length >= last - cursor:  # At least the value's length has to follow.
        return NULL
    cursor += length
    raw = cursor[0]
    cursor += 1
    if raw >= 0x80:
        if cursor[0] >= 0x80:
            return NULL
        raw = (raw & 0x7F) | <uint32_t>cursor[0] << 7
        cursor += 1
    if raw & 1 and raw != 1:
        return NULL
    length = raw >> 1
    if length != last - cursor or last[0]:
        return NULL
    timestamp_delta[0] = <int64_t>((delta >> 1) ^ (0 - (delta & 1)))
    return last + 1


cdef Py_ssize_t walk_region(
    Walk* walk, const uint8_t** cursor, const uint8_t* end, Py_ssize_t record_count
) noexcept nogil:
    """Returns how many records are well-formed and moves the cursor behind them."""
    cdef Py_ssize_t index
    cdef const uint8_t* at = cursor[0]
    cdef const uint8_t* behind
    cdef int64_t timestamp_delta = 0, timestamp
    cdef bint has_key = True
    for index in range(record_count):
        behind = skip_plain_record(at, end, index, &timestamp_delta, &has_key)
        if behind == NULL:
            behind = walk_record(walk, at, end, index)
            if behind == NULL:
                cursor[0] = at
                return index
        else:
            # Unsigned, because leaving int64 wraps around and must not be undefined.
            timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>timestamp_delta)
            judge(walk, index, timestamp, has_key)
        at = behind
    cursor[0] = at
    return record_count


def walk_records(
    region,
    Py_ssize_t start,
    Py_ssize_t end,
    Py_ssize_t record_count,
    int64_t base_timestamp,
    int64_t earliest_timestamp,
    int64_t latest_timestamp,
    bint require_key,
):
    """See `walk.walk_records_pure`."""
    cdef Py_buffer view
    cdef Walk walk
    cdef const uint8_t* cursor
    cdef Py_ssize_t walked, position
    PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"[{start}, {end}) is not within {view.len} bytes")
        if record_count < 0:
            raise InvalidRecordError(f"{record_count} records, expected 0 or more")
        walk.base_timestamp = base_timestamp
        walk.earliest_timestamp = earliest_timestamp
        walk.latest_timestamp = latest_timestamp
        walk.require_key = require_key
        walk.max_timestamp = -1
        walk.max_index = -1
        walk.consecutive = True
        walk.bad_count = 0
        walk.has_bad_timestamp = False
        cursor = <const uint8_t*>view.buf + start
        if end - start < NOGIL_SIZE:
            walked = walk_region(&walk, &cursor, <const uint8_t*>view.buf + end, record_count)
        else:
            with nogil:
                walked = walk_region(&walk, &cursor, <const uint8_t*>view.buf + end, record_count)
        position = cursor - <const uint8_t*>view.buf
        if walked < record_count:
            raise malformed_record(region, position, end, walked)
        if position != end:
            raise malformed_region(position, end, record_count)
    finally:
        PyBuffer_Release(&view)
    bad = None
    if walk.bad_count:
        bad = [(walk.bad_index[slot], walk.bad_reason[slot]) for slot in range(walk.bad_count)]
    return walk.max_timestamp, walk.max_index, bool(walk.consecutive), bad
