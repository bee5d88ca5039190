# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `gathering_pure.GatheringPure`; see there.

No lock: the interpreter's own is held from the first line of a method to its last. Nothing between
the look at `is_closed` and the last byte of the record may run Python code or let another thread
have its turn, so names of headers are encoded before, and fields are of exact types only.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

include "_varint_write.pxi"

cdef enum:
    MAX_INT32 = 0x7FFFFFFF
    # Of a new batch; a full one grows into its limit in a few steps.
    FIRST_BYTES = 1024


cdef inline int64_t field_size(object field) noexcept:
    """What `write_field` takes; -1 if it is neither bytes nor None."""
    cdef int64_t size
    if field is None:
        return 1
    if not PyBytes_CheckExact(field):
        return -1
    size = PyBytes_GET_SIZE(field)
    if size > MAX_INT32:
        return -1
    return varint_size(<uint32_t>size << 1) + size


cdef inline uint8_t* write_field(uint8_t* cursor, object field) noexcept:
    cdef int64_t size
    if field is None:
        cursor[0] = 1
        return cursor + 1
    size = PyBytes_GET_SIZE(field)
    cursor = write_base128(cursor, <uint64_t>size << 1)
    memcpy(cursor, PyBytes_AS_STRING(field), size)
    return cursor + size


cdef class Gathering:
    """See `gathering_pure.GatheringPure`."""

    cdef bytearray encoded
    cdef int64_t capacity  # Bytes that `encoded` has room for.
    cdef readonly int64_t size
    cdef readonly int64_t limit
    cdef readonly int64_t record_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly bint is_closed

    def __init__(self, Py_ssize_t start_size, int64_t limit):
        self.encoded = bytearray(start_size)
        self.capacity = start_size
        self.size = start_size
        self.limit = limit
        self.record_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.is_closed = False

    def add(self, timestamp, key, value, headers=()):
        cdef int overflow
        cdef int64_t time, body, size, index
        cdef int64_t header_count = 0
        cdef uint64_t delta
        cdef list header_fields = None
        cdef uint8_t* cursor
        if not PyLong_CheckExact(timestamp):
            return -1
        time = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow or time < 0:
            return -1
        size = field_size(key)
        if size < 0:
            return -1
        body = field_size(value)
        if body < 0:
            return -1
        body += size + 1
        if not PyTuple_CheckExact(headers):
            return -1
        header_count = PyTuple_GET_SIZE(headers)
        if header_count:
            header_fields = plain_headers(<tuple>headers)
            if header_fields is None:
                return -1
            for field in header_fields:
                body += field_size(field)
        # From here on nothing else runs.
        if self.is_closed:
            return -1
        index = self.record_count
        delta = 0 if index == 0 else zigzag64(
            <int64_t>(<uint64_t>time - <uint64_t>self.base_timestamp)
        )
        body += varint_size(<uint32_t>header_count << 1)
        body += varlong_size(delta) + varint_size(<uint32_t>index << 1)
        if body > MAX_INT32:
            return -1
        size = self.size + varint_size(<uint32_t>body << 1) + body
        if size > (self.limit if index else MAX_INT32):
            return -1
        if size > self.capacity:
            self.make_room(size)
        cursor = <uint8_t*>PyByteArray_AS_STRING(self.encoded) + self.size
        cursor = write_base128(cursor, <uint64_t>body << 1)
        cursor[0] = 0
        cursor = write_base128(cursor + 1, delta)
        cursor = write_base128(cursor, <uint64_t>index << 1)
        cursor = write_field(cursor, key)
        cursor = write_field(cursor, value)
        cursor = write_base128(cursor, <uint64_t>header_count << 1)
        if header_count:
            for field in header_fields:
                cursor = write_field(cursor, field)
        if index == 0:
            self.base_timestamp = time
        if time > self.max_timestamp:
            self.max_timestamp = time
        self.record_count = index + 1
        self.size = size
        return index

    cdef int make_room(self, int64_t needed) except -1:
        cdef int64_t capacity = max(self.capacity * 4, FIRST_BYTES)
        capacity = max(min(capacity, self.limit), needed)
        PyByteArray_Resize(self.encoded, capacity)
        self.capacity = capacity
        return 0

    def extend(self, int64_t limit):
        self.limit = limit

    def close(self):
        self.is_closed = True
        return self.record_count

    def take(self):
        cdef bytearray encoded = self.encoded
        assert self.is_closed, "a producer may still add to it"
        if self.capacity < self.size:
            return encoded  # Taken already.
        self.encoded = bytearray()
        self.capacity = 0
        PyByteArray_Resize(encoded, self.size)
        return encoded


cdef list plain_headers(tuple headers):
    """Names, encoded, and values in turn; None if something is not what it should be."""
    cdef list fields = []
    cdef tuple header
    for item in headers:
        if not PyTuple_CheckExact(item) or PyTuple_GET_SIZE(item) != 2:
            return None
        header = <tuple>item
        if not PyUnicode_CheckExact(header[0]) or field_size(header[1]) < 0:
            return None
        fields.append((<str>header[0]).encode("utf-8", "surrogateescape"))
        fields.append(header[1])
    return fields
