# CRC-32C for compiled modules that do not hold the GIL: include "_crc32c.pxi".
#
# The checksum of the crc32c library, which is faster and wants the GIL. Eight bytes at a time:
# table k holds what a byte contributes k bytes further on.

cdef uint32_t crc32c_tables[8][256]


cdef void fill_crc32c_tables() noexcept:
    cdef uint32_t crc
    cdef int byte, bit, distance
    for byte in range(256):
        crc = byte
        for bit in range(8):
            crc = (crc >> 1) ^ (<uint32_t>0x82F63B78 if crc & 1 else <uint32_t>0)  # The polynomial, bits reversed.
        crc32c_tables[0][byte] = crc
    for distance in range(1, 8):
        for byte in range(256):
            crc = crc32c_tables[distance - 1][byte]
            crc32c_tables[distance][byte] = (crc >> 8) ^ crc32c_tables[0][crc & 0xFF]


fill_crc32c_tables()


cdef uint32_t compute_crc32c(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef uint32_t low
    while size >= 8:
        low = crc ^ (
            <uint32_t>data[0] | <uint32_t>data[1] << 8
            | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        )
        crc = (
            crc32c_tables[7][low & 0xFF]
            ^ crc32c_tables[6][(low >> 8) & 0xFF]
            ^ crc32c_tables[5][(low >> 16) & 0xFF]
            ^ crc32c_tables[4][low >> 24]
            ^ crc32c_tables[3][data[4]]
            ^ crc32c_tables[2][data[5]]
            ^ crc32c_tables[1][data[6]]
            ^ crc32c_tables[0][data[7]]
        )
        data += 8
        size -= 8
    while size > 0:
        crc = (crc >> 8) ^ crc32c_tables[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return ~crc
