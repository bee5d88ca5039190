# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `columns_pure`; see there for what it does.

It reads and writes raw pointers. Every read is checked against the end of its record before it is
made. Room is taken before a region is read, for as much as its bytes could possibly become; only
for headers it is taken once the first one is seen. Large regions are read without the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

include "_varint.pxi"
include "_record.pxi"

from odradek.errors import InvalidRecordError
from odradek.records.columns_pure import overfull
from odradek.records.malformed import malformed_record, malformed_region

cdef enum:
    MAX_BYTES = 0x7FFFFFFF
    # Bytes from which reading takes longer than handing over the GIL is worth.
    NOGIL_SIZE = 65536
    # A header is a key and a value: two lengths of one byte at least.
    MIN_HEADER_SIZE = 2
    # Most bytes of a column that are taken on the strength of an expectation.
    MAX_AHEAD = 64 << 20

cdef enum Outcome:
    READ
    MALFORMED
    NO_ROOM_FOR_HEADERS


cdef struct Entries:
    uint8_t* validity
    int32_t* offsets
    uint8_t* data
    int64_t count
    int64_t size  # Bytes of data.
    int64_t null_count


cdef struct Reading:
    # Where it is.
    const uint8_t* cursor
    const uint8_t* end
    Py_ssize_t index
    # What the batch says.
    Py_ssize_t record_count
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint is_append_time
    int32_t timestamp_type
    int64_t from_offset
    # Where it writes to.
    int64_t* offset
    int64_t* timestamp
    int32_t* timestamp_types
    int32_t* header_offsets
    Entries* key
    Entries* value
    Entries* header_key
    Entries* header_value
    int64_t header_room  # Headers that still fit.
    int64_t header_byte_room  # Bytes of their keys that still fit, and bytes of their values.


cdef inline void put(Entries* entries, const uint8_t* start, int32_t length) noexcept nogil:
    """Adds one entry, for which there must be room."""
    cdef uint8_t bit = <uint8_t>(1 << (entries.count & 7))
    if length < 0:
        entries.validity[entries.count >> 3] &= ~bit
        entries.null_count += 1
    else:
        entries.validity[entries.count >> 3] |= bit
        memcpy(entries.data + entries.size, start, length)
        entries.size += length
    entries.count += 1
    entries.offsets[entries.count] = <int32_t>entries.size


cdef bint put_headers(Reading* reading, RecordFields* fields, const uint8_t* end) noexcept nogil:
    """Adds the headers of a record that has been read.

    Returns False if they are malformed after all: without the GIL, a thread may write to the
    region, and what was checked before is no longer so.
    """
    cdef const uint8_t* cursor
    cdef int32_t length = 0
    cursor = read_varint(fields.headers, end, &length)
    for _ in range(fields.header_count):
        if cursor != NULL:
            cursor = skip_bytes(cursor, end, 0, &length)
        if cursor == NULL:
            return False
        put(reading.header_key, cursor - length, length)
        cursor = skip_bytes(cursor, end, -1, &length)
        if cursor == NULL:
            return False
        put(reading.header_value, cursor - length, length)
    return True


cdef Outcome read_region(Reading* reading) noexcept nogil:
    """Reads up to the end, or up to a record that it leaves to the caller."""
    cdef RecordFields fields
    cdef const uint8_t* behind
    cdef int64_t row, offset
    while reading.index < reading.record_count:
        behind = read_record(reading.cursor, reading.end, &fields)
        if behind == NULL:
            return MALFORMED
        # Unsigned, because leaving int64 wraps around and must not be undefined.
        offset = <int64_t>(<uint64_t>reading.base_offset + <uint64_t><int64_t>fields.offset_delta)
        if offset >= reading.from_offset:
            if fields.header_count:
                if (
                    fields.header_count > reading.header_room
                    or behind - fields.headers > reading.header_byte_room
                ):
                    return NO_ROOM_FOR_HEADERS
                if not put_headers(reading, &fields, behind):
                    return MALFORMED
                reading.header_room -= fields.header_count
                reading.header_byte_room -= behind - fields.headers
            row = reading.key.count
            reading.offset[row] = offset
            if reading.is_append_time:
                reading.timestamp[row] = reading.append_time
            else:
                reading.timestamp[row] = <int64_t>(
                    <uint64_t>reading.base_timestamp + <uint64_t>fields.timestamp_delta
                )
            reading.timestamp_types[row] = reading.timestamp_type
            put(reading.key, fields.key, fields.key_length)
            put(reading.value, fields.value, fields.value_length)
            reading.header_offsets[row + 1] = <int32_t>reading.header_key.count
        reading.cursor = behind
        reading.index += 1
    return READ


cdef int take_room(
    bytearray buffer, int64_t used, int64_t more, int64_t byte_count, int64_t expected_bytes
) except -1:
    """Makes room in a buffer for so many more bytes.

    If it has to grow, then at once for all that is expected to come, going by what the records so
    far have become; or by half.
    """
    cdef int64_t present = PyByteArray_GET_SIZE(buffer)
    cdef int64_t wanted
    if used + more > present:
        if byte_count and expected_bytes > byte_count:
            wanted = <int64_t>(<double>used / byte_count * (expected_bytes - byte_count))
            wanted = used + more + min(wanted, MAX_AHEAD)
        else:
            wanted = present + present // 2
        PyByteArray_Resize(buffer, max(used + more, wanted))
    return 0


@cython.final
cdef class BinarySink:
    cdef bytearray validity
    cdef bytearray offsets
    cdef bytearray data
    cdef Entries entries

    def __cinit__(self):
        self.validity = bytearray()
        self.offsets = bytearray(sizeof(int32_t))
        self.data = bytearray()
        self.entries.count = self.entries.size = self.entries.null_count = 0

    cdef int take_room(
        self, int64_t count, int64_t size, int64_t byte_count, int64_t expected_bytes
    ) except -1:
        """For so many more entries and bytes."""
        cdef int64_t entries = self.entries.count + 1
        take_room(self.validity, entries // 8, count // 8 + 2, byte_count, expected_bytes)
        take_room(
            self.offsets,
            entries * sizeof(int32_t),
            count * sizeof(int32_t),
            byte_count,
            expected_bytes,
        )
        take_room(self.data, self.entries.size, size, byte_count, expected_bytes)
        self.entries.validity = <uint8_t*>PyByteArray_AS_STRING(self.validity)
        self.entries.offsets = <int32_t*>PyByteArray_AS_STRING(self.offsets)
        self.entries.data = <uint8_t*>PyByteArray_AS_STRING(self.data)
        return 0

    cdef tuple finish(self):
        cdef int64_t count = self.entries.count
        PyByteArray_Resize(self.validity, (count + 7) // 8)
        PyByteArray_Resize(self.offsets, (count + 1) * sizeof(int32_t))
        PyByteArray_Resize(self.data, self.entries.size)
        if count & 7:
            # The bits behind the last entry were never written.
            self.validity[count >> 3] &= (1 << (count & 7)) - 1
        validity = self.validity if self.entries.null_count else None
        return self.entries.null_count, validity, self.offsets, self.data


@cython.final
cdef class ColumnSink:
    """See `columns_pure.ColumnSink`."""

    cdef readonly int64_t byte_count
    cdef int64_t expected_bytes
    cdef bytearray offset
    cdef bytearray timestamp
    cdef bytearray timestamp_type
    cdef bytearray header_offsets
    cdef BinarySink key
    cdef BinarySink value
    cdef BinarySink header_key
    cdef BinarySink header_value
    # Whether buffers are in use, maybe by another thread, and must stay where they are.
    cdef bint is_busy

    def __cinit__(self, int64_t expected_bytes=0):
        self.expected_bytes = min(expected_bytes, MAX_BYTES)
        self.offset = bytearray()
        self.timestamp = bytearray()
        self.timestamp_type = bytearray()
        self.header_offsets = bytearray(sizeof(int32_t))
        self.key = BinarySink()
        self.value = BinarySink()
        self.header_key = BinarySink()
        self.header_value = BinarySink()

    @property
    def count(self):
        return self.key.entries.count

    def append_records(self, region, header, int32_t timestamp_type, int64_t from_offset):
        """See `columns_pure.ColumnSink.append_records`."""
        cdef Py_buffer view
        cdef Reading reading
        reading.record_count = header.record_count
        reading.base_offset = header.base_offset
        reading.base_timestamp = header.base_timestamp
        reading.append_time = header.max_timestamp
        reading.is_append_time = header.is_log_append_time
        reading.timestamp_type = timestamp_type
        reading.from_offset = from_offset
        PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
        try:
            if self.is_busy:
                raise RuntimeError("these columns are finished, or in use by another thread")
            if self.byte_count + view.len > MAX_BYTES:
                raise overfull(self.byte_count, view.len)
            if reading.record_count < 0:
                raise InvalidRecordError(f"{reading.record_count} records, expected 0 or more")
            reading.cursor = <const uint8_t*>view.buf
            reading.end = reading.cursor + view.len
            self.is_busy = True
            try:
                self.append_region(region, &view, &reading)
            finally:
                self.is_busy = False
            self.byte_count += view.len
        finally:
            PyBuffer_Release(&view)

    cdef int append_region(self, object region, Py_buffer* view, Reading* reading) except -1:
        cdef Entries key = self.key.entries, value = self.value.entries
        cdef Entries header_key = self.header_key.entries, header_value = self.header_value.entries
        try:
            self.read_whole(region, view, reading)
        except:
            # Nothing was added: the room stays, what is in it does not count.
            roll_back(&self.key.entries, &key)
            roll_back(&self.value.entries, &value)
            roll_back(&self.header_key.entries, &header_key)
            roll_back(&self.header_value.entries, &header_value)
            raise
        return 0

    cdef int read_whole(self, object region, Py_buffer* view, Reading* reading) except -1:
        cdef Py_ssize_t position
        cdef Outcome outcome = NO_ROOM_FOR_HEADERS
        self.take_room(reading, min(reading.record_count, view.len // MIN_RECORD_SIZE), view.len)
        reading.index = 0
        while outcome == NO_ROOM_FOR_HEADERS:
            if view.len < NOGIL_SIZE:
                outcome = read_region(reading)
            else:
                with nogil:
                    outcome = read_region(reading)
            if outcome == NO_ROOM_FOR_HEADERS:
                self.take_room_for_headers(reading)
        position = reading.cursor - <const uint8_t*>view.buf
        if outcome == MALFORMED:
            raise malformed_record(region, position, view.len, reading.index)
        if position != view.len:
            raise malformed_region(position, view.len, reading.record_count)
        return 0

    cdef int take_room(self, Reading* reading, int64_t count, int64_t size) except -1:
        """For so many more records and bytes of keys and values."""
        cdef int64_t used = self.key.entries.count
        self.take_numbers(self.offset, used, count, sizeof(int64_t))
        self.take_numbers(self.timestamp, used, count, sizeof(int64_t))
        self.take_numbers(self.timestamp_type, used, count, sizeof(int32_t))
        self.take_numbers(self.header_offsets, used + 1, count, sizeof(int32_t))
        self.key.take_room(count, size, self.byte_count, self.expected_bytes)
        self.value.take_room(count, size, self.byte_count, self.expected_bytes)
        reading.offset = <int64_t*>PyByteArray_AS_STRING(self.offset)
        reading.timestamp = <int64_t*>PyByteArray_AS_STRING(self.timestamp)
        reading.timestamp_types = <int32_t*>PyByteArray_AS_STRING(self.timestamp_type)
        reading.header_offsets = <int32_t*>PyByteArray_AS_STRING(self.header_offsets)
        reading.key = &self.key.entries
        reading.value = &self.value.entries
        reading.header_key = &self.header_key.entries
        reading.header_value = &self.header_value.entries
        reading.header_room = 0
        reading.header_byte_room = 0
        return 0

    cdef int take_numbers(
        self, bytearray buffer, int64_t used, int64_t count, int64_t size
    ) except -1:
        return take_room(buffer, used * size, count * size, self.byte_count, self.expected_bytes)

    cdef int take_room_for_headers(self, Reading* reading) except -1:
        """For all that the rest of the region could be."""
        reading.header_byte_room = reading.end - reading.cursor
        reading.header_room = reading.header_byte_room // MIN_HEADER_SIZE
        for sink in (self.header_key, self.header_value):
            (<BinarySink>sink).take_room(
                reading.header_room,
                reading.header_byte_room,
                self.byte_count,
                self.expected_bytes,
            )
        return 0

    def finish(self):
        """See `columns_pure.ColumnSink.finish`."""
        cdef int64_t count = self.key.entries.count
        if self.is_busy:
            raise RuntimeError("these columns are finished, or in use by another thread")
        # Used up: what was handed over must never be written to.
        self.is_busy = True
        PyByteArray_Resize(self.offset, count * sizeof(int64_t))
        PyByteArray_Resize(self.timestamp, count * sizeof(int64_t))
        PyByteArray_Resize(self.timestamp_type, count * sizeof(int32_t))
        PyByteArray_Resize(self.header_offsets, (count + 1) * sizeof(int32_t))
        return (
            count,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key.finish(),
            self.value.finish(),
            (
                self.header_key.entries.count,
                self.header_offsets,
                self.header_key.finish(),
                self.header_value.finish(),
            ),
        )


cdef inline void roll_back(Entries* entries, const Entries* earlier) noexcept:
    entries.count = earlier.count
    entries.size = earlier.size
    entries.null_count = earlier.null_count
