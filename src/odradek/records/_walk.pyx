# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twins of `walk_pure`; see `walk` for what they do.

It reads raw pointers, so every read is checked against the end of its record before it is made.
Large regions are walked without the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

include "_varint.pxi"
include "_crc32c.pxi"

from crc32c import crc32c

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
    # Bytes up to which our own checksum takes less time than a call of the library's.
    SMALL_CRC = 1024
    # Places of the fields of a batch header, from the table in batch.py.
    LENGTH = 8
    MAGIC = 16
    CRC = 17
    ATTRIBUTES = 21
    LAST_OFFSET_DELTA = 23
    BASE_TIMESTAMP = 27
    MAX_TIMESTAMP = 35
    PRODUCER_ID = 43
    PRODUCER_EPOCH = 51
    BASE_SEQUENCE = 53
    RECORD_COUNT = 57
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CURRENT_MAGIC = 2

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
    """See `walk_pure.walk_records_pure`."""
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


cdef inline uint32_t read_uint32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read_int64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t>read_uint32(at) << 32 | read_uint32(at + 4))


def check_plain_batch(
    batch, int64_t earliest_timestamp, int64_t latest_timestamp, bint require_key
):
    """See `walk_pure.check_plain_batch_pure`."""
    cdef Py_buffer view
    cdef Walk walk
    cdef const uint8_t* data
    cdef const uint8_t* cursor
    cdef Py_ssize_t size, walked
    cdef int32_t last_offset_delta, record_count
    cdef int64_t max_timestamp
    cdef uint32_t crc
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        size = view.len
        data = <const uint8_t*>view.buf
        if view.readonly or size < HEADER_SIZE:
            return None
        last_offset_delta = <int32_t>read_uint32(data + LAST_OFFSET_DELTA)
        record_count = <int32_t>read_uint32(data + RECORD_COUNT)
        max_timestamp = read_int64(data + MAX_TIMESTAMP)
        if (
            data[MAGIC] != CURRENT_MAGIC
            or <int64_t><int32_t>read_uint32(data + LENGTH) + LOG_OVERHEAD != size
            or read_int64(data)
            or data[ATTRIBUTES]
            or data[ATTRIBUTES + 1]
            or record_count <= 0
            or last_offset_delta != record_count - 1
            or max_timestamp < 0
        ):
            return None
        if size <= SMALL_CRC:
            crc = compute_crc32c(data + ATTRIBUTES, size - ATTRIBUTES)
        else:
            crc = crc32c(memoryview(batch)[ATTRIBUTES:])
        if crc != read_uint32(data + CRC):
            return None
        walk.base_timestamp = read_int64(data + BASE_TIMESTAMP)
        walk.earliest_timestamp = earliest_timestamp
        walk.latest_timestamp = latest_timestamp
        walk.require_key = require_key
        walk.max_timestamp = -1
        walk.max_index = -1
        walk.consecutive = True
        walk.bad_count = 0
        walk.has_bad_timestamp = False
        cursor = data + HEADER_SIZE
        if size < NOGIL_SIZE:
            walked = walk_region(&walk, &cursor, data + size, record_count)
        else:
            with nogil:
                walked = walk_region(&walk, &cursor, data + size, record_count)
        if (
            walked != record_count
            or cursor != data + size
            or walk.bad_count
            or not walk.consecutive
            or walk.max_timestamp != max_timestamp
        ):
            return None
        return (
            last_offset_delta,
            max_timestamp,
            read_int64(data + PRODUCER_ID),
            <int16_t>(<int>data[PRODUCER_EPOCH] << 8 | data[PRODUCER_EPOCH + 1]),
            <int32_t>read_uint32(data + BASE_SEQUENCE),
        )
    finally:
        PyBuffer_Release(&view)
