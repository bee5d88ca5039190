# Writers of zigzag varints for compiled modules: include "_varint_write.pxi", after the cimports.
#
# What is written has been measured before, and room made for it.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef inline int varint_size(uint32_t zigzag) noexcept nogil:
    cdef int size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef inline int varlong_size(uint64_t zigzag) noexcept nogil:
    cdef int size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint8_t* write_base128(uint8_t* cursor, uint64_t zigzag) noexcept nogil:
    while zigzag >= 0x80:
        cursor[0] = <uint8_t>(zigzag | 0x80)
        cursor += 1
        zigzag >>= 7
    cursor[0] = <uint8_t>zigzag
    return cursor + 1


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
