# Readers of zigzag varints for compiled modules: include "_varint.pxi", after the cimports.
#
# Every reader takes the end of what it may touch, checks before each read, and returns the byte
# behind what it read, or NULL: then the bytes end too early, or the number is longer than its type
# allows, and `value` is unchanged. Bits beyond the type are dropped, as Kafka drops them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef const uint8_t* read_long_varint(
    const uint8_t* cursor, const uint8_t* end, int32_t* value
) noexcept nogil:
    cdef uint32_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor < end and shift < 35:
        byte = cursor[0]
        cursor += 1
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return cursor
        shift += 7
    return NULL


cdef inline const uint8_t* read_varint(
    const uint8_t* cursor, const uint8_t* end, int32_t* value
) noexcept nogil:
    """An int32 of at most five bytes; nearly always it has one or two."""
    cdef uint32_t raw
    if end - cursor >= 2:
        raw = cursor[0]
        if raw < 0x80:
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return cursor + 1
        if cursor[1] < 0x80:
            raw = (raw & 0x7F) | <uint32_t>cursor[1] << 7
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return cursor + 2
    return read_long_varint(cursor, end, value)


cdef const uint8_t* read_long_varlong(
    const uint8_t* cursor, const uint8_t* end, int64_t* value
) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor < end and shift < 70:
        byte = cursor[0]
        cursor += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return cursor
        shift += 7
    return NULL


cdef inline const uint8_t* read_varlong(
    const uint8_t* cursor, const uint8_t* end, int64_t* value
) noexcept nogil:
    """An int64 of at most ten bytes; nearly always it has one or two."""
    cdef uint64_t raw
    if end - cursor >= 2:
        raw = cursor[0]
        if raw < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return cursor + 1
        if cursor[1] < 0x80:
            raw = (raw & 0x7F) | <uint64_t>cursor[1] << 7
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return cursor + 2
    return read_long_varlong(cursor, end, value)


cdef inline const uint8_t* skip_bytes(
    const uint8_t* cursor, const uint8_t* end, int32_t lowest, int32_t* length
) noexcept nogil:
    """A varint length and as many bytes; -1 stands for null where `lowest` allows it.

    The bytes, if there are any, begin at the returned position minus `length`.
    """
    cursor = read_varint(cursor, end, length)
    if cursor == NULL or length[0] < lowest or length[0] > end - cursor:
        return NULL
    return cursor + length[0] if length[0] > 0 else cursor
