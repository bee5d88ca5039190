# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `rows_pure`; see `rows` for what it is, and `rows_pure` for each call.

Buffers are held as long as the rows are, and read by raw pointers: their sizes are checked once,
against the number of rows; every offset is checked before bytes are read through it. Rows are
measured before they are written, with the same arithmetic.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

include "_varint_write.pxi"

from odradek.records.codec_pure import oversized_record
from odradek.records.rows_input import (
    malformed_row,
    nameless_header,
    negative_start,
    no_such_partition,
    short_buffer,
)

cdef enum:
    MAX_INT32 = 0x7FFFFFFF
    # What an entry of a column can be instead of a length.
    NULL_ENTRY = -1
    MALFORMED = -2
    # Instead of the size of a row.
    BAD_OFFSETS = -1
    NO_NAME = -2


# Keys.

cdef uint32_t hash_key(const uint8_t* data, int64_t length) noexcept nogil:
    cdef uint32_t multiplier = 0x5BD1E995u
    cdef uint32_t mixed = 0x9747B28Cu ^ <uint32_t>length
    cdef uint32_t word
    cdef int64_t left = length
    while left >= 4:
        word = (
            <uint32_t>data[0]
            | <uint32_t>data[1] << 8
            | <uint32_t>data[2] << 16
            | <uint32_t>data[3] << 24
        )
        word *= multiplier
        word ^= word >> 24
        word *= multiplier
        mixed *= multiplier
        mixed ^= word
        data += 4
        left -= 4
    if left:
        if left == 3:
            mixed ^= <uint32_t>data[2] << 16
        if left >= 2:
            mixed ^= <uint32_t>data[1] << 8
        mixed ^= data[0]
        mixed *= multiplier
    mixed ^= mixed >> 13
    mixed *= multiplier
    return mixed ^ (mixed >> 15)


def murmur2(bytes data not None):
    """See `rows_pure.murmur2_pure`."""
    return hash_key(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


# Buffers.

cdef class Held:
    """A buffer that cannot go away."""

    cdef Py_buffer view
    cdef bint is_held

    def __cinit__(self, given):
        PyObject_GetBuffer(given, &self.view, PyBUF_SIMPLE)
        self.is_held = True

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


cdef struct Binary:
    bint is_given
    const uint8_t* validity  # NULL: nothing is null.
    const int32_t* offsets
    const uint8_t* data
    int64_t data_size
    int64_t start


cdef struct Numbers:
    bint is_given
    const uint8_t* validity
    const uint8_t* data
    int64_t start


cdef inline bint is_valid(const uint8_t* validity, int64_t entry) noexcept nogil:
    return validity == NULL or (validity[entry >> 3] >> (entry & 7)) & 1


cdef inline int64_t entry_length(Binary* column, int64_t index) noexcept nogil:
    """Bytes of an entry, or NULL_ENTRY, or MALFORMED."""
    cdef int64_t entry = column.start + index
    cdef int64_t begin, end
    if not column.is_given or not is_valid(column.validity, entry):
        return NULL_ENTRY
    begin = column.offsets[entry]
    end = column.offsets[entry + 1]
    if begin < 0 or begin > end or end > column.data_size:
        return MALFORMED
    return end - begin


cdef inline const uint8_t* entry_bytes(Binary* column, int64_t index) noexcept nogil:
    return column.data + column.offsets[column.start + index]


cdef inline int64_t field_size(int64_t length) noexcept nogil:
    """What `write_field` takes."""
    if length < 0:
        return 1
    return varint_size(<uint32_t>length << 1) + length


cdef inline uint8_t* write_field(
    uint8_t* cursor, Binary* column, int64_t index, int64_t length
) noexcept nogil:
    if length < 0:
        cursor[0] = 1
        return cursor + 1
    cursor = write_base128(cursor, <uint64_t>length << 1)
    memcpy(cursor, entry_bytes(column, index), length)
    return cursor + length


def group_rows(groups, Py_ssize_t group_count, numbers=None):
    """See `rows_pure.group_rows`."""
    cdef Held held = Held(groups)
    cdef Held held_numbers = None
    cdef const int32_t* chosen = <const int32_t*>held.view.buf
    cdef const int32_t* rows = NULL
    cdef Py_ssize_t count = held.view.len // 4, index
    cdef int32_t group
    cdef bytearray result = bytearray(4 * count)
    cdef int32_t* written = <int32_t*>PyByteArray_AS_STRING(result)
    cdef int64_t* places
    cdef int64_t total = 0, size
    if group_count <= 0:
        raise ValueError(f"{group_count} groups, expected at least one")
    if numbers is not None:
        held_numbers = Held(numbers)
        if held_numbers.view.len < 4 * count:
            raise short_buffer("row", 4 * count, held_numbers.view.len)
        rows = <const int32_t*>held_numbers.view.buf
    places = <int64_t*>calloc(group_count, sizeof(int64_t))
    if places == NULL:
        raise MemoryError
    try:
        for index in range(count):
            group = chosen[index]
            if group < 0 or group >= group_count:
                raise ValueError(f"group {group}, expected one of {group_count}")
            places[group] += 1
        for index in range(group_count):
            size = places[index]
            places[index] = total
            total += size
        for index in range(count):
            group = chosen[index]
            written[places[group]] = rows[index] if rows != NULL else <int32_t>index
            places[group] += 1
        return result, [places[index] for index in range(group_count)]
    finally:
        free(places)


cdef class Rows:
    """See `rows_pure.Rows`."""

    cdef readonly Py_ssize_t count
    cdef list held
    cdef Binary key
    cdef Binary value
    cdef Numbers timestamps
    cdef bint has_headers
    cdef int64_t header_start
    cdef int64_t header_count
    cdef const uint8_t* header_validity
    cdef const int32_t* header_offsets
    cdef Binary header_key
    cdef Binary header_value
    cdef int64_t timestamp

    def __init__(
        self,
        Py_ssize_t count,
        *,
        key=None,
        value=None,
        headers=None,
        timestamps=None,
        int64_t timestamp=0,
    ):
        self.count = count
        self.held = []
        self.timestamp = timestamp
        self.hold_binary("key", key, count, &self.key)
        self.hold_binary("value", value, count, &self.value)
        self.hold_numbers("timestamp", timestamps, count, 8, &self.timestamps)
        self.has_headers = headers is not None
        if headers is not None:
            start, validity, offsets, header_count, header_key, header_value = headers
            self.header_start = start
            self.header_count = header_count
            if self.header_start < 0 or self.header_count < 0:
                raise negative_start("headers")
            self.header_validity = self.hold(
                "headers", validity, (self.header_start + count + 7) // 8
            )
            self.header_offsets = <const int32_t*>self.hold(
                "headers", offsets, 4 * (self.header_start + count + 1)
            )
            self.hold_binary("headers", header_key, self.header_count, &self.header_key)
            self.hold_binary("headers", header_value, self.header_count, &self.header_value)

    cdef const uint8_t* hold(self, str name, given, int64_t needed) except? NULL:
        """The bytes of a buffer; NULL if there is none."""
        cdef Held held
        if given is None:
            return NULL
        held = Held(given)
        if held.view.len < needed:
            raise short_buffer(name, needed, held.view.len)
        self.held.append(held)
        return <const uint8_t*>held.view.buf

    cdef int hold_binary(self, str name, given, int64_t count, Binary* column) except -1:
        cdef Held held
        column.is_given = given is not None
        if given is None:
            return 0
        start, validity, offsets, data = given
        column.start = start
        if column.start < 0:
            raise negative_start(name)
        column.validity = self.hold(name, validity, (column.start + count + 7) // 8)
        column.offsets = <const int32_t*>self.hold(name, offsets, 4 * (column.start + count + 1))
        held = Held(data)
        self.held.append(held)
        column.data = <const uint8_t*>held.view.buf
        column.data_size = held.view.len
        return 0

    cdef int hold_numbers(
        self, str name, given, int64_t count, int64_t size, Numbers* column
    ) except -1:
        column.is_given = given is not None
        if given is None:
            return 0
        start, validity, data = given
        column.start = start
        if column.start < 0:
            raise negative_start(name)
        column.validity = self.hold(name, validity, (column.start + count + 7) // 8)
        column.data = self.hold(name, data, size * (column.start + count))
        return 0

    cdef inline int64_t timestamp_of(self, int64_t row) noexcept nogil:
        cdef int64_t entry = self.timestamps.start + row
        if not self.timestamps.is_given or not is_valid(self.timestamps.validity, entry):
            return self.timestamp
        return (<const int64_t*>self.timestamps.data)[entry]

    cdef inline int64_t fixed_size(self, int64_t row) noexcept nogil:
        """All of a record that does not depend on its place in the batch, or what is wrong."""
        cdef int64_t key_length = entry_length(&self.key, row)
        cdef int64_t value_length = entry_length(&self.value, row)
        cdef int64_t size
        if key_length == MALFORMED or value_length == MALFORMED:
            return BAD_OFFSETS
        size = 1 + field_size(key_length) + field_size(value_length)
        if not self.has_headers:
            return size + 1
        return self.with_headers(row, size)

    cdef int64_t with_headers(self, int64_t row, int64_t size) noexcept nogil:
        cdef int64_t entry = self.header_start + row
        cdef int64_t begin = 0, end = 0, index, length
        if is_valid(self.header_validity, entry):
            begin = self.header_offsets[entry]
            end = self.header_offsets[entry + 1]
            if begin < 0 or begin > end or end > self.header_count:
                return BAD_OFFSETS
        size += varint_size(<uint32_t>(end - begin) << 1)
        for index in range(begin, end):
            length = entry_length(&self.header_key, index)
            if length < 0:
                return NO_NAME if length == NULL_ENTRY else BAD_OFFSETS
            size += field_size(length)
            length = entry_length(&self.header_value, index)
            if length == MALFORMED:
                return BAD_OFFSETS
            size += field_size(length)
        return size

    cdef int64_t record_size(
        self, int64_t row, uint64_t timestamp_delta, int64_t place, int64_t* body_size
    ) except -1:
        """Bytes of a record, its length included."""
        cdef int64_t size = self.fixed_size(row)
        if size < 0:
            raise nameless_header(row) if size == NO_NAME else malformed_row(row)
        size += varlong_size(timestamp_delta) + varint_size(<uint32_t>place << 1)
        if size > MAX_INT32:
            raise oversized_record(row)
        body_size[0] = size
        return size + varint_size(<uint32_t>size << 1)

    cdef uint8_t* write(
        self,
        uint8_t* cursor,
        int64_t row,
        uint64_t timestamp_delta,
        int64_t place,
        int64_t body_size,
    ) noexcept nogil:
        """Returns the byte behind the record. It has been measured."""
        cdef int64_t entry = self.header_start + row
        cdef int64_t begin = 0, end = 0, index
        cursor = write_base128(cursor, <uint64_t>body_size << 1)
        cursor[0] = 0
        cursor = write_base128(cursor + 1, timestamp_delta)
        cursor = write_base128(cursor, <uint64_t>place << 1)
        cursor = write_field(cursor, &self.key, row, entry_length(&self.key, row))
        cursor = write_field(cursor, &self.value, row, entry_length(&self.value, row))
        if self.has_headers and is_valid(self.header_validity, entry):
            begin = self.header_offsets[entry]
            end = self.header_offsets[entry + 1]
        cursor = write_base128(cursor, <uint64_t>(end - begin) << 1)
        for index in range(begin, end):
            cursor = write_field(
                cursor, &self.header_key, index, entry_length(&self.header_key, index)
            )
            cursor = write_field(
                cursor, &self.header_value, index, entry_length(&self.header_value, index)
            )
        return cursor

    cdef Held rows_of(self, numbers):
        """The numbers of rows, each of them one that is there."""
        cdef Held held = Held(numbers)
        cdef const int32_t* rows = <const int32_t*>held.view.buf
        cdef Py_ssize_t index
        for index in range(held.view.len // 4):
            if rows[index] < 0 or rows[index] >= self.count:
                raise ValueError(f"row {rows[index]} of {self.count}")
        return held

    def choose_partitions(
        self, int32_t partition_count, *, numbers=None, partitions=None, bint ignores_keys=False
    ):
        """See `rows_pure.Rows.choose_partitions`."""
        cdef Held held = None
        cdef const int32_t* rows = NULL
        cdef Py_ssize_t count = self.count, index
        cdef Numbers asked
        cdef bytearray result
        cdef int32_t* chosen
        cdef int32_t partition
        cdef int64_t row, length
        if partition_count <= 0:
            raise ValueError(f"{partition_count} partitions, expected at least one")
        self.hold_numbers("partition", partitions, count, 4, &asked)
        if numbers is not None:
            held = self.rows_of(numbers)
            rows = <const int32_t*>held.view.buf
            count = held.view.len // 4
        result = bytearray(4 * count)
        chosen = <int32_t*>PyByteArray_AS_STRING(result)
        for index in range(count):
            row = rows[index] if rows != NULL else index
            if asked.is_given and is_valid(asked.validity, asked.start + row):
                partition = (<const int32_t*>asked.data)[asked.start + row]
                if partition < 0 or partition >= partition_count:
                    raise no_such_partition(row, partition, partition_count)
            else:
                length = NULL_ENTRY if ignores_keys else entry_length(&self.key, row)
                if length == MALFORMED:
                    raise malformed_row(row)
                if length == NULL_ENTRY:
                    partition = -1
                else:
                    partition = <int32_t>(
                        (hash_key(entry_bytes(&self.key, row), length) & 0x7FFFFFFF)
                        % <uint32_t>partition_count
                    )
            chosen[index] = partition
        return result

    def undecided_bytes(self, partitions, numbers=None):
        """See `rows_pure.Rows.undecided_bytes`."""
        cdef Held held = Held(partitions)
        cdef Held held_numbers = self.rows_beside(held, numbers)
        cdef const int32_t* chosen = <const int32_t*>held.view.buf
        cdef const int32_t* rows = NULL
        cdef Py_ssize_t index
        cdef int64_t total = 0, body_size
        if held_numbers is not None:
            rows = <const int32_t*>held_numbers.view.buf
        for index in range(held.view.len // 4):
            if chosen[index] < 0:
                total += self.record_size(rows[index] if rows != NULL else index, 0, 0, &body_size)
        return total

    def spread(self, bytearray partitions not None, shares, numbers=None):
        """See `rows_pure.Rows.spread`."""
        cdef list places = list(shares)
        cdef Held held = Held(partitions)
        cdef Held held_numbers = self.rows_beside(held, numbers)
        cdef int32_t* chosen = <int32_t*>held.view.buf
        cdef const int32_t* rows = NULL
        cdef Py_ssize_t index, place = 0
        cdef int64_t used = 0, size, body_size, share_bytes
        cdef int32_t partition
        if not places:
            raise ValueError("no shares, expected at least one")
        partition, share_bytes = places[0]
        if held_numbers is not None:
            rows = <const int32_t*>held_numbers.view.buf
        for index in range(held.view.len // 4):
            if chosen[index] >= 0:
                continue
            size = self.record_size(rows[index] if rows != NULL else index, 0, 0, &body_size)
            if used + size > share_bytes and place + 1 < len(places):
                place += 1
                partition, share_bytes = places[place]
                used = 0
            used += size
            chosen[index] = partition

    cdef Held rows_beside(self, Held partitions, numbers):
        """The numbers of the rows whose partitions these are; None: of all."""
        cdef Held held = None if numbers is None else self.rows_of(numbers)
        cdef Py_ssize_t count = self.count if held is None else held.view.len // 4
        if partitions.view.len != 4 * count:
            raise short_buffer("partition", 4 * count, partitions.view.len)
        return held

    def largest(self):
        """See `rows_pure.Rows.largest`."""
        cdef int64_t most = 0, most_row = -1, row, size, body_size
        for row in range(self.count):
            size = self.record_size(row, 0, 0, &body_size)
            if size > most:
                most = size
                most_row = row
        return most_row, most

    def encode(
        self,
        numbers,
        Py_ssize_t first,
        Py_ssize_t end,
        int64_t max_bytes,
        Py_ssize_t prefix_size,
    ):
        """See `rows_pure.Rows.encode`."""
        cdef Held held = None
        cdef const int32_t* rows = NULL
        cdef Py_ssize_t count = self.count, index
        cdef int64_t row, timestamp, base_timestamp, max_timestamp, size, body_size
        cdef int64_t used = prefix_size, taken = 0
        cdef uint64_t delta
        cdef bytearray encoded
        cdef uint8_t* cursor
        if numbers is not None:
            held = Held(numbers)
            rows = <const int32_t*>held.view.buf
            count = held.view.len // 4
        if first < 0 or first >= end or end > count or prefix_size < 0:
            raise ValueError(f"rows {first} to {end} of {count}")
        base_timestamp = max_timestamp = 0
        for index in range(first, end):
            row = rows[index] if rows != NULL else index
            if row < 0 or row >= self.count:
                raise ValueError(f"row {row} of {self.count}")
            timestamp = self.timestamp_of(row)
            if not taken:
                base_timestamp = max_timestamp = timestamp
            # Unsigned, because leaving int64 wraps around and must not be undefined.
            delta = zigzag64(<int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp))
            size = self.record_size(row, delta, taken, &body_size)
            if taken and used + size > max_bytes:
                break
            if used + size > MAX_INT32:
                raise oversized_record(row)
            used += size
            taken += 1
            max_timestamp = max(max_timestamp, timestamp)
        encoded = bytearray(used)
        cursor = <uint8_t*>PyByteArray_AS_STRING(encoded) + prefix_size
        for index in range(taken):
            row = rows[first + index] if rows != NULL else first + index
            delta = zigzag64(
                <int64_t>(<uint64_t>self.timestamp_of(row) - <uint64_t>base_timestamp)
            )
            self.record_size(row, delta, index, &body_size)
            cursor = self.write(cursor, row, delta, index, body_size)
        return encoded, taken, base_timestamp, max_timestamp
