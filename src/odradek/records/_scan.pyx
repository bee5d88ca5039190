# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `scan.step_over_run_pure`; see there for what it does.

It reads raw pointers: a header only where one fits before the end, a batch only where all of it
does. The checksum is the library's, as everywhere.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from crc32c import crc32c

cdef enum:
    # Places of the fields, from the table in batch.py.
    LENGTH = 8
    LEADER_EPOCH = 12
    MAGIC = 16
    CRC = 17
    ATTRIBUTES = 21
    LAST_OFFSET_DELTA = 23
    MAX_TIMESTAMP = 35
    PRODUCER_ID = 43
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CURRENT_MAGIC = 2


cdef inline uint32_t read_uint32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read_int64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t>read_uint32(at) << 32 | read_uint32(at + 4))


def step_over_run(
    data,
    Py_ssize_t position,
    int64_t next_offset,
    int64_t last_allowed_offset,
    int32_t latest_epoch,
    int64_t max_timestamp,
    int64_t offset_of_max_timestamp,
    Py_ssize_t entry_position,
    Py_ssize_t interval_bytes,
):
    """See `scan.step_over_run_pure`."""
    cdef Py_buffer buffer
    cdef const uint8_t* header
    cdef int64_t size, timestamp, last_offset
    cdef int32_t last_offset_delta
    cdef Py_ssize_t end
    view = memoryview(data)
    entries = []
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        end = buffer.len
        if not 0 <= position <= end:
            raise ValueError(f"position {position} is not within {end} bytes")
        while end - position >= HEADER_SIZE:
            header = <const uint8_t*>buffer.buf + position
            size = <int64_t><int32_t>read_uint32(header + LENGTH) + LOG_OVERHEAD
            last_offset_delta = <int32_t>read_uint32(header + LAST_OFFSET_DELTA)
            if (
                header[MAGIC] != CURRENT_MAGIC
                or size < HEADER_SIZE
                or size > end - position
                or read_int64(header) != next_offset
                or last_offset_delta < 0
                or last_offset_delta > last_allowed_offset - next_offset
                or read_int64(header + PRODUCER_ID) >= 0
                or <int32_t>read_uint32(header + LEADER_EPOCH) > latest_epoch
                or <uint32_t>crc32c(view[position + ATTRIBUTES:position + size])
                != read_uint32(header + CRC)
            ):
                break
            last_offset = next_offset + last_offset_delta
            timestamp = read_int64(header + MAX_TIMESTAMP)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                offset_of_max_timestamp = last_offset
            if position - entry_position > interval_bytes:
                entries.append((last_offset, position, max_timestamp, offset_of_max_timestamp))
                entry_position = position
            next_offset = last_offset + 1
            position += size
    finally:
        PyBuffer_Release(&buffer)
    return position, next_offset, max_timestamp, offset_of_max_timestamp, entry_position, entries
