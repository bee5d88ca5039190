# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twins of `codec_pure`; see there for what they do.

They read and write raw pointers. Every read is checked against the end of its record before it is
made; every record is measured, and room made for it, before it is written.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

include "_varint.pxi"
include "_varint_write.pxi"
include "_record.pxi"

from odradek.errors import InvalidRecordError
from odradek.records.codec_pure import describe_record
from odradek.records.codec_pure import check_offset_deltas, oversized_record, unusable_record
from odradek.records.malformed import malformed_record, malformed_region

cdef enum:
    MAX_INT32 = 0x7FFFFFFF
    BATCH_OVERHEAD = 61
    # Length, timestamp and offset at their longest, and the attributes.
    RECORD_OVERHEAD = 21
    # Most bytes taken ahead on the strength of the first record.
    MAX_GUESS = 1 << 20


# Encoding.

cdef inline uint8_t* write_bytes(uint8_t* cursor, bytes field) noexcept:
    """A length and as many bytes; it has been measured before."""
    cdef Py_ssize_t size
    if field is None:
        cursor[0] = 1
        return cursor + 1
    size = PyBytes_GET_SIZE(field)
    cursor = write_base128(cursor, <uint64_t>size << 1)
    memcpy(cursor, PyBytes_AS_STRING(field), size)
    return cursor + size


cdef inline int64_t bytes_size(bytes field) except -1:
    """What `write_bytes` takes."""
    cdef Py_ssize_t size
    if field is None:
        return 1
    size = PyBytes_GET_SIZE(field)
    if size > MAX_INT32:
        raise OverflowError
    return varint_size(<uint32_t>size << 1) + size


cdef inline bytes plain_bytes(object field):
    if field is None or PyBytes_CheckExact(field):
        return <bytes>field
    if not isinstance(field, (bytes, bytearray, memoryview)):
        raise TypeError
    return bytes(field)


cdef inline tuple plain_tuple(object value):
    if PyTuple_CheckExact(value):
        return <tuple>value
    if not isinstance(value, (tuple, list)):
        raise TypeError
    return tuple(value)


cdef class NewFields:
    """One record that is going to be encoded, checked and measured."""

    cdef int64_t timestamp
    cdef bytes key
    cdef bytes value
    cdef Py_ssize_t header_count
    # Names and values of the headers in turn.
    cdef list header_fields
    # All of the record that does not depend on its place in the batch.
    cdef int64_t fixed_size

    cdef inline int load(self, object record) except -1:
        """Any error means that it cannot be encoded."""
        cdef tuple fields = plain_tuple(record)
        cdef object timestamp
        cdef int overflow
        if PyTuple_GET_SIZE(fields) != 4:
            raise TypeError
        timestamp = fields[0]
        if not PyLong_Check(timestamp):
            raise TypeError
        self.timestamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow:
            raise ValueError
        self.key = plain_bytes(fields[1])
        self.value = plain_bytes(fields[2])
        self.fixed_size = bytes_size(self.key) + bytes_size(self.value) + 1
        self.header_count = 0
        headers = fields[3]
        if not PyTuple_CheckExact(headers) or PyTuple_GET_SIZE(headers):
            self.load_headers(plain_tuple(headers))
        return 0

    cdef int load_headers(self, tuple headers) except -1:
        cdef tuple header
        cdef bytes name
        self.header_fields = []
        for item in headers:
            header = plain_tuple(item)
            if PyTuple_GET_SIZE(header) != 2 or not isinstance(header[0], str):
                raise TypeError
            name = (<str>header[0]).encode("utf-8", "surrogateescape")
            content = plain_bytes(header[1])
            self.header_fields.append(name)
            self.header_fields.append(content)
            self.fixed_size += bytes_size(name) + bytes_size(content)
        self.header_count = PyTuple_GET_SIZE(headers)
        self.fixed_size += varint_size(<uint32_t>self.header_count << 1) - 1
        return 0

    cdef inline uint8_t* write(
        self, uint8_t* cursor, uint32_t body_size, uint64_t timestamp_delta, uint32_t offset_delta
    ):
        """Returns the byte behind the record. There must be room for all of it."""
        cursor = write_base128(cursor, <uint64_t>body_size << 1)
        cursor[0] = 0
        cursor = write_base128(cursor + 1, timestamp_delta)
        cursor = write_base128(cursor, offset_delta)
        cursor = write_bytes(cursor, self.key)
        cursor = write_bytes(cursor, self.value)
        cursor = write_base128(cursor, <uint64_t>self.header_count << 1)
        if self.header_count:
            for field in self.header_fields:
                cursor = write_bytes(cursor, <bytes>field)
        return cursor


def encode_records(records, base_timestamp=None, offset_deltas=None, Py_ssize_t prefix_size=0):
    """See `codec_pure.encode_records_pure`."""
    # A copy: fields may run code of their own, and what is counted here must stay as it is.
    cdef list items = list(records)
    cdef list deltas = None
    cdef NewFields fields = NewFields.__new__(NewFields)
    cdef bytearray encoded
    cdef Py_ssize_t capacity, used = prefix_size, needed, index = 0
    cdef int64_t base = 0, max_timestamp = -1, body_size
    cdef uint64_t timestamp_delta
    cdef uint32_t offset_delta = 0
    cdef bint has_base = base_timestamp is not None
    if has_base:
        base = base_timestamp
    if offset_deltas is not None:
        deltas = list(offset_deltas)
        check_offset_deltas(deltas, len(items))
    if prefix_size < 0:
        raise ValueError(f"a prefix of {prefix_size} bytes, expected 0 or more")
    capacity = prefix_size
    encoded = bytearray(prefix_size)
    for record in items:
        try:
            fields.load(record)
        except (TypeError, ValueError):
            raise unusable_record(index, record) from None
        except OverflowError:
            raise oversized_record(index) from None
        if not has_base:
            base = fields.timestamp
            has_base = True
        # Unsigned, because leaving int64 wraps around and must not be undefined.
        timestamp_delta = zigzag64(<int64_t>(<uint64_t>fields.timestamp - <uint64_t>base))
        if deltas is None:
            offset_delta = <uint32_t>(index << 1)
        else:
            offset_delta = <uint32_t>(<int64_t>deltas[index] << 1)
        body_size = (
            1 + varlong_size(timestamp_delta) + varint_size(offset_delta) + fields.fixed_size
        )
        if body_size > MAX_INT32:
            raise oversized_record(index)
        needed = used + varint_size(<uint32_t>body_size << 1) + body_size
        if needed > MAX_INT32:
            raise oversized_record(index)
        if needed > capacity:
            capacity = grown(capacity, needed, needed - used, len(items) - index)
            PyByteArray_Resize(encoded, capacity)
        fields.write(
            <uint8_t*>PyByteArray_AS_STRING(encoded) + used,
            <uint32_t>body_size,
            timestamp_delta,
            offset_delta,
        )
        used = needed
        if fields.timestamp > max_timestamp:
            max_timestamp = fields.timestamp
        index += 1
    PyByteArray_Resize(encoded, used)
    return encoded, max_timestamp


cdef Py_ssize_t grown(
    Py_ssize_t capacity, Py_ssize_t needed, Py_ssize_t record_size, Py_ssize_t record_count
) noexcept:
    """Room for as many records of that size, within reason, or half as much again."""
    cdef Py_ssize_t guess = MAX_GUESS
    if record_count < MAX_GUESS // record_size:
        # Offsets and sizes get longer on the way.
        guess = record_count * (record_size + 2)
    return max(needed + guess, capacity + capacity // 2)


def estimate_record_size(key, value, headers=()):
    """See `codec_pure.estimate_record_size_pure`."""
    if (
        (key is None or PyBytes_CheckExact(key))
        and (value is None or PyBytes_CheckExact(value))
        and PyTuple_CheckExact(headers)
        and not PyTuple_GET_SIZE(headers)
    ):
        # Nearly always; producers ask for every record they are given.
        try:
            return RECORD_OVERHEAD + bytes_size(<bytes>key) + bytes_size(<bytes>value) + 1
        except OverflowError:
            raise oversized_record(None) from None
    return estimate(NewFields.__new__(NewFields), None, (0, key, value, headers))


def count_fitting(records, Py_ssize_t start, Py_ssize_t max_bytes):
    """See `codec_pure.count_fitting_pure`."""
    cdef NewFields fields = NewFields.__new__(NewFields)
    cdef Py_ssize_t left = max_bytes - BATCH_OVERHEAD, index
    if start < 0:
        raise ValueError(f"start {start}, expected 0 or more")
    for index in range(start, len(records)):
        with cython.boundscheck(True):  # Fields may run code of their own.
            record = records[index]
        left -= estimate(fields, index, record)
        if left < 0 and index > start:
            return index - start
    return max(0, len(records) - start)


cdef int64_t estimate(NewFields fields, object index, object record) except -1:
    try:
        fields.load(record)
    except (TypeError, ValueError):
        raise unusable_record(index, record) from None
    except OverflowError:
        raise oversized_record(index) from None
    return RECORD_OVERHEAD + fields.fixed_size


# Decoding.

@cython.final
cdef class RecordSource:
    """What all records of a batch have in common."""

    cdef str topic
    cdef object partition
    cdef object timestamp_type
    cdef object leader_epoch


# Records hold bytes, text, numbers and tuples of these, so they are never part of a cycle, and
# making many at once need not wake the collector.
@cython.final
@cython.no_gc
cdef class ConsumerRecord:
    """A record and where it came from. Cannot be changed."""

    cdef RecordSource source
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly bytes key
    cdef readonly bytes value
    # A tuple, or the bytes of well-formed headers that no caller has asked for yet.
    cdef object some_headers

    def __init__(
        self,
        str topic not None,
        int64_t partition,
        int64_t offset,
        int64_t timestamp,
        timestamp_type,
        bytes key,
        bytes value,
        tuple headers not None=(),
        leader_epoch=None,
    ):
        self.source = RecordSource.__new__(RecordSource)
        self.source.topic = topic
        self.source.partition = partition
        self.source.timestamp_type = timestamp_type
        self.source.leader_epoch = leader_epoch
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.some_headers = headers

    @property
    @cython.nonecheck(True)  # One that was made without `__init__` has no source.
    def topic(self):
        return self.source.topic

    @property
    @cython.nonecheck(True)  # One that was made without `__init__` has no source.
    def partition(self):
        return self.source.partition

    @property
    @cython.nonecheck(True)  # One that was made without `__init__` has no source.
    def timestamp_type(self):
        return self.source.timestamp_type

    @property
    @cython.nonecheck(True)  # One that was made without `__init__` has no source.
    def leader_epoch(self):
        return self.source.leader_epoch

    @property
    def headers(self):
        if PyBytes_CheckExact(self.some_headers):
            self.some_headers = decode_headers(self.some_headers)
        return self.some_headers

    @cython.nonecheck(True)
    cdef tuple arguments(self):
        return (
            self.source.topic,
            self.source.partition,
            self.offset,
            self.timestamp,
            self.source.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.source.leader_epoch,
        )

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self.arguments() == (<ConsumerRecord>other).arguments()

    @cython.nonecheck(True)
    def __hash__(self):
        return hash((self.source.topic, self.source.partition, self.offset))

    def __repr__(self):
        return describe_record(*self.arguments())

    def __reduce__(self):
        # By the name of the twin in use, so that either of them reads what the other has pickled.
        from odradek.records.codec import restore_record

        return restore_record, self.arguments()


cdef tuple decode_headers(bytes section):
    """Headers from their count on. They have been checked, so nothing here can fail."""
    cdef const uint8_t* cursor = <const uint8_t*>PyBytes_AS_STRING(section)
    cdef const uint8_t* end = cursor + PyBytes_GET_SIZE(section)
    cdef int32_t count = 0, length = 0
    cdef list headers = []
    cursor = read_varint(cursor, end, &count)
    while count > 0:
        cursor = skip_bytes(cursor, end, 0, &length)
        assert cursor != NULL
        name = PyUnicode_DecodeUTF8(<const char*>cursor - length, length, "surrogateescape")
        cursor = skip_bytes(cursor, end, -1, &length)
        assert cursor != NULL
        headers.append((name, bytes_or_none(cursor - length, length)))
        count -= 1
    return tuple(headers)


cdef inline bytes bytes_or_none(const uint8_t* start, Py_ssize_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char*>start, length)


def decode_records(region, header, int64_t from_offset, str topic, partition, timestamp_type):
    """See `codec_pure.decode_records_pure`."""
    cdef Py_ssize_t record_count = header.record_count, index
    cdef int64_t base_offset = header.base_offset, base_timestamp = header.base_timestamp
    cdef int64_t max_timestamp = header.max_timestamp, offset
    cdef bint is_append_time = header.is_log_append_time
    cdef RecordSource source = RecordSource.__new__(RecordSource)
    cdef Py_buffer view
    cdef const uint8_t* cursor
    cdef const uint8_t* end
    cdef const uint8_t* behind
    cdef RecordFields fields
    cdef ConsumerRecord record
    cdef list records = []
    if record_count < 0:
        raise InvalidRecordError(f"{record_count} records, expected 0 or more")
    source.topic = topic
    source.partition = partition
    source.timestamp_type = timestamp_type
    source.leader_epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
    try:
        cursor = <const uint8_t*>view.buf
        end = cursor + view.len
        for index in range(record_count):
            behind = read_record(cursor, end, &fields)
            if behind == NULL:
                raise malformed_record(
                    region, cursor - <const uint8_t*>view.buf, view.len, index
                )
            cursor = behind
            # Unsigned, because leaving int64 wraps around and must not be undefined.
            offset = <int64_t>(<uint64_t>base_offset + <uint64_t><int64_t>fields.offset_delta)
            if offset < from_offset:
                continue
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.source = source
            record.offset = offset
            if is_append_time:
                record.timestamp = max_timestamp
            else:
                record.timestamp = <int64_t>(
                    <uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta
                )
            record.key = bytes_or_none(fields.key, fields.key_length)
            record.value = bytes_or_none(fields.value, fields.value_length)
            if fields.header_count:
                record.some_headers = bytes_or_none(fields.headers, behind - fields.headers)
            else:
                record.some_headers = ()
            records.append(record)
        if cursor != end:
            raise malformed_region(cursor - <const uint8_t*>view.buf, view.len, record_count)
    finally:
        PyBuffer_Release(&view)
    return records
