# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twins of `scan_pure`; see `scan` for what they do.

It reads raw pointers: a header only where one fits before the end, a batch only where all of it
does. The checksum is the library's, as everywhere.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

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
    IN_TRANSACTION = 0x30  # Attribute bits: transactional, control. In the lower of two bytes.
    PRODUCER_SLOTS = 1024
    TAIL_LENGTH = 5

cdef int64_t LARGEST_OFFSET = <int64_t>1 << 62


cdef inline uint32_t read_uint32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read_int64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t>read_uint32(at) << 32 | read_uint32(at + 4))


cdef struct Tail:
    int64_t producer_id
    int count  # Of headers that were noted, ever; the last ones are kept, each at count % length.
    uint8_t headers[TAIL_LENGTH][HEADER_SIZE]


cdef class ProducerTails:
    """See `scan_pure.ProducerTailsPure`."""

    cdef Tail* slots
    cdef list set_aside

    def __cinit__(self):
        self.slots = <Tail*>PyMem_Calloc(PRODUCER_SLOTS, sizeof(Tail))
        if self.slots == NULL:
            raise MemoryError()
        self.set_aside = []

    def __dealloc__(self):
        PyMem_Free(self.slots)

    def __len__(self):
        """How many headers have been set aside."""
        return len(self.set_aside)

    def note(self, int64_t producer_id, bytes header not None):
        """Takes the header of a batch, the next one of its producer."""
        if len(header) != HEADER_SIZE or producer_id < 0:
            raise ValueError(f"expected {HEADER_SIZE} bytes of a producer's batch")
        self.keep(producer_id, <const uint8_t*><const char*>header)

    cdef int keep(self, int64_t producer_id, const uint8_t* header) except -1:
        cdef Tail* tail = &self.slots[producer_id & (PRODUCER_SLOTS - 1)]
        if tail.producer_id != producer_id or tail.count == 0:
            self.empty(tail, self.set_aside)
            tail.producer_id = producer_id
        memcpy(tail.headers[tail.count % TAIL_LENGTH], header, HEADER_SIZE)
        tail.count += 1
        if tail.count == 2 * TAIL_LENGTH:
            tail.count = TAIL_LENGTH  # The same place in the ring, and full all the same.
        return 0

    cdef int empty(self, Tail* tail, list into) except -1:
        cdef int number
        for number in range(max(0, tail.count - TAIL_LENGTH), tail.count):
            into.append((<const char*>tail.headers[number % TAIL_LENGTH])[:HEADER_SIZE])
        tail.count = 0
        return 0

    def drain(self):
        """Returns all headers, by base offset, and forgets them."""
        cdef int slot
        found = self.set_aside
        self.set_aside = []
        for slot in range(PRODUCER_SLOTS):
            self.empty(&self.slots[slot], found)
        found.sort()
        return found


def step_over_headers(data, Py_ssize_t position, int64_t next_offset):
    """See `scan_pure.step_over_headers_pure`."""
    cdef Py_buffer buffer
    cdef const uint8_t* header
    cdef int64_t size, base_offset
    cdef int32_t last_offset_delta
    cdef Py_ssize_t end
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        end = buffer.len
        if not 0 <= position <= end:
            raise ValueError(f"position {position} is not within {end} bytes")
        while end - position >= HEADER_SIZE:
            header = <const uint8_t*>buffer.buf + position
            size = <int64_t><int32_t>read_uint32(header + LENGTH) + LOG_OVERHEAD
            base_offset = read_int64(header)
            last_offset_delta = <int32_t>read_uint32(header + LAST_OFFSET_DELTA)
            if (
                header[MAGIC] != CURRENT_MAGIC
                or size < HEADER_SIZE
                or base_offset < next_offset
                or base_offset > LARGEST_OFFSET
                or last_offset_delta < 0
            ):
                break
            next_offset = base_offset + last_offset_delta + 1
            position += size
    finally:
        PyBuffer_Release(&buffer)
    return position, next_offset


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
    ProducerTails tails not None,
):
    """See `scan_pure.step_over_run_pure`."""
    cdef Py_buffer buffer
    cdef const uint8_t* header
    cdef int64_t size, timestamp, last_offset, producer_id
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
            producer_id = read_int64(header + PRODUCER_ID)
            if (
                header[MAGIC] != CURRENT_MAGIC
                or size < HEADER_SIZE
                or size > end - position
                or read_int64(header) != next_offset
                or last_offset_delta < 0
                or last_offset_delta > last_allowed_offset - next_offset
                or (producer_id >= 0 and header[ATTRIBUTES + 1] & IN_TRANSACTION)
                or <int32_t>read_uint32(header + LEADER_EPOCH) > latest_epoch
                or <uint32_t>crc32c(view[position + ATTRIBUTES:position + size])
                != read_uint32(header + CRC)
            ):
                break
            if producer_id >= 0:
                tails.keep(producer_id, header)
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
