# One record of a region for compiled modules: include "_record.pxi", after "_varint.pxi".
#
# The layout is in malformed.py. Nothing is copied: a field is a pointer into the region, and all of
# them lie within their record, which lies within the region.

cdef enum:
    # Length, attributes, two deltas, two lengths and a count, of one byte each.
    MIN_RECORD_SIZE = 7

cdef struct RecordFields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_length  # -1 = null.
    int32_t value_length  # -1 = null.
    int32_t header_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers  # Where header_count stands; the record ends with them.


cdef inline const uint8_t* read_record(
    const uint8_t* cursor, const uint8_t* end, RecordFields* fields
) noexcept nogil:
    """Returns the byte behind the record, headers checked too, or NULL if it is malformed."""
    cdef int32_t length, remaining
    cursor = read_varint(cursor, end, &length)
    if cursor == NULL or length <= 0 or length > end - cursor:
        return NULL
    end = cursor + length
    cursor = read_varlong(cursor + 1, end, &fields.timestamp_delta)
    if cursor == NULL:
        return NULL
    cursor = read_varint(cursor, end, &fields.offset_delta)
    if cursor == NULL:
        return NULL
    cursor = skip_bytes(cursor, end, -1, &fields.key_length)
    if cursor == NULL:
        return NULL
    fields.key = cursor - fields.key_length
    cursor = skip_bytes(cursor, end, -1, &fields.value_length)
    if cursor == NULL:
        return NULL
    fields.value = cursor - fields.value_length
    fields.headers = cursor
    cursor = read_varint(cursor, end, &fields.header_count)
    if cursor == NULL or fields.header_count < 0 or fields.header_count > end - cursor:
        return NULL
    remaining = fields.header_count
    while remaining > 0:
        cursor = skip_bytes(cursor, end, 0, &length)
        if cursor == NULL:
            return NULL
        cursor = skip_bytes(cursor, end, -1, &length)
        if cursor == NULL:
            return NULL
        remaining -= 1
    return cursor if cursor == end else NULL
