# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `key_table_pure.KeyTablePure`; see there for what it does.

Open addressing with linear probing over slots of 24 bytes. A key is known by its SipHash-2-4 of 128
bits under a secret of its own, so that no client can make two keys meet. The place of a hash is
computed by a multiplication whose result is below the number of slots for any hash; a probe steps
through at most all of them, and one slot is always free. Reads of records are checked by
`_record.pxi`; what is written is counted beforehand, at its largest.

Regions from a few kilobytes on, and runs of batches, are worked on without the GIL: one thread at a
time may use a table.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from odradek.errors import InvalidRecordError
from odradek.records.malformed import malformed_record, malformed_region

include "_varint.pxi"
include "_record.pxi"
include "_crc32c.pxi"

cdef enum:
    # Places of a batch's fields, from the table in batch.py.
    LENGTH = 8
    MAGIC = 16
    CRC = 17
    ATTRIBUTES = 21
    LAST_OFFSET_DELTA = 23
    BASE_TIMESTAMP = 27
    MAX_TIMESTAMP = 35
    RECORD_COUNT = 57
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CURRENT_MAGIC = 2
    # Compressed, transactional, control.
    NOT_PLAIN_MASK = 0x37
    LOG_APPEND_TIME_MASK = 0x08
    DELETE_HORIZON_MASK = 0x40
    # Bytes from which work takes longer than handing over the GIL is worth.
    NOGIL_SIZE = 4096
    # What a record may grow by: nine bytes of its time, four of its length.
    MAX_GROWTH = 16
    MAX_SLOTS = 0x7FFFFFFF

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t offset_plus_one  # 0 = the slot is free.

cdef struct Kept:
    Py_ssize_t count
    Py_ssize_t size
    Py_ssize_t unkeyed
    int64_t max_timestamp
    bint has_tombstone

cdef struct RunBatch:
    int64_t last_offset
    int64_t max_timestamp
    Py_ssize_t size

cdef struct Run:
    Py_ssize_t position  # Behind the last batch that was taken.
    Py_ssize_t size  # Of what is kept.
    Py_ssize_t batch_count
    int64_t records_read
    int64_t records_kept
    int64_t unkeyed


cdef inline uint32_t read_uint32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read_int64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t>read_uint32(at) << 32 | read_uint32(at + 4))


cdef inline void write_uint32(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value


cdef inline Py_ssize_t plain_batch_size(const uint8_t* batch, Py_ssize_t available) noexcept nogil:
    """The size of a plain batch by its header; 0 if it is not one, or not whole."""
    cdef int64_t size
    if available < HEADER_SIZE or batch[MAGIC] != CURRENT_MAGIC:
        return 0
    size = <int64_t><int32_t>read_uint32(batch + LENGTH) + LOG_OVERHEAD
    if (
        size < HEADER_SIZE
        or size > available
        # Sums of offsets stay far from the largest int64, and no batch has a negative one.
        or <uint64_t>read_int64(batch) >> 62
        or batch[ATTRIBUTES + 1] & NOT_PLAIN_MASK
        or <int32_t>read_uint32(batch + LAST_OFFSET_DELTA) < 0
        or <int32_t>read_uint32(batch + RECORD_COUNT) < 0
    ):
        return 0
    return size


cdef inline bint has_valid_crc(const uint8_t* batch, Py_ssize_t size) noexcept nogil:
    return compute_crc32c(batch + ATTRIBUTES, size - ATTRIBUTES) == read_uint32(batch + CRC)


cdef inline bint holds(const int64_t* numbers, Py_ssize_t count, int64_t wanted) noexcept nogil:
    """Whether ascending numbers hold another."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t middle
    while low < count:
        middle = (low + count) >> 1
        if numbers[middle] < wanted:
            low = middle + 1
        elif numbers[middle] > wanted:
            count = middle
        else:
            return True
    return False


cdef inline uint64_t rotate(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = rotate(v[2], 32)


cdef inline uint64_t load_word(const uint8_t* data, int size) noexcept nogil:
    """Little-endian, whatever the machine; compilers make one load of eight bytes of it."""
    cdef uint64_t word = 0
    cdef int index
    for index in range(size):
        word |= <uint64_t>data[index] << (8 * index)
    return word


cdef void sip_hash(
    const uint8_t* data, int32_t size, uint64_t k0, uint64_t k1, uint64_t* low, uint64_t* high
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int32_t left = size
    cdef int index
    v[0] = <uint64_t>0x736F6D6570736575 ^ k0
    v[1] = <uint64_t>0x646F72616E646F6D ^ k1 ^ 0xEE
    v[2] = <uint64_t>0x6C7967656E657261 ^ k0
    v[3] = <uint64_t>0x7465646279746573 ^ k1
    while left >= 8:
        word = load_word(data, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        data += 8
        left -= 8
    word = load_word(data, left) | (<uint64_t>(size & 0xFF) << 56)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for index in range(4):
        sip_round(v)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for index in range(4):
        sip_round(v)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline uint8_t* write_base128(uint8_t* cursor, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        cursor[0] = <uint8_t>(raw & 0x7F) | 0x80
        cursor += 1
        raw >>= 7
    cursor[0] = <uint8_t>raw
    return cursor + 1


cdef inline int base128_size(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


def hash_key(key, secret):
    """The 16 bytes that a table with this secret knows a key by."""
    cdef uint64_t low, high
    cdef const uint8_t[::1] view = key
    cdef const uint8_t[::1] words = secret
    if words.shape[0] != 16:
        raise ValueError(f"a secret of {words.shape[0]} bytes, expected 16")
    if view.shape[0] > 0x7FFFFFFF:
        raise ValueError(f"a key of {view.shape[0]} bytes is longer than any key of a record")
    sip_hash(
        &view[0] if view.shape[0] else NULL, <int32_t>view.shape[0],
        load_word(&words[0], 8), load_word(&words[8], 8), &low, &high,
    )
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


cdef class KeyTable:
    """See `key_table_pure.KeyTablePure`."""

    cdef Slot* slots
    cdef uint64_t slot_count
    cdef uint64_t used
    cdef uint64_t most
    cdef uint64_t k0
    cdef uint64_t k1
    # What a run keeps, and what there is to say of each batch of it.
    cdef uint8_t* kept_bytes
    cdef RunBatch* kept_batches
    cdef Py_ssize_t run_room

    def __cinit__(self, Py_ssize_t slot_count, double load_factor, secret):
        cdef const uint8_t[::1] words = secret
        if not 2 <= slot_count <= MAX_SLOTS:
            raise ValueError(f"{slot_count} slots, expected 2..{MAX_SLOTS}")
        if not 0 < load_factor <= 1:
            raise ValueError(f"load factor {load_factor}, expected above 0 and at most 1")
        if words.shape[0] != 16:
            raise ValueError(f"a secret of {words.shape[0]} bytes, expected 16")
        self.k0 = load_word(&words[0], 8)
        self.k1 = load_word(&words[8], 8)
        self.slot_count = slot_count
        # At least one key fits, and at least one slot stays free: it is what ends a search.
        self.most = min(max(<uint64_t>(slot_count * load_factor), 1), <uint64_t>slot_count - 1)
        self.used = 0
        self.kept_bytes = NULL
        self.kept_batches = NULL
        self.run_room = 0
        self.slots = <Slot*>calloc(slot_count, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no room for {slot_count} slots of {sizeof(Slot)} bytes")

    def __dealloc__(self):
        free(self.slots)
        free(self.kept_bytes)
        free(self.kept_batches)

    def __len__(self):
        return self.used

    @property
    def capacity(self):
        return self.most

    cdef inline Slot* find(self, const uint8_t* key, int32_t size) noexcept nogil:
        """The slot of the key, or the free one where it belongs."""
        cdef uint64_t low, high, place, step
        cdef Slot* slot
        sip_hash(key, size, self.k0, self.k1, &low, &high)
        # Below slot_count, since the left factor is below 2**32.
        place = ((high >> 32) * self.slot_count) >> 32
        for step in range(self.slot_count):
            slot = &self.slots[place]
            if slot.offset_plus_one == 0:
                slot.low = low
                slot.high = high
                return slot
            if slot.low == low and slot.high == high:
                return slot
            place += 1
            if place == self.slot_count:
                place = 0
        return NULL

    cdef int put_region(
        self, const uint8_t** cursor, const uint8_t* end, Py_ssize_t record_count,
        int64_t base_offset, int64_t first_offset, Py_ssize_t* walked,
    ) noexcept nogil:
        """1: all keys are in; 0: the next one does not fit; -1: a record is malformed."""
        cdef RecordFields fields
        cdef const uint8_t* behind
        cdef Slot* slot
        cdef int64_t offset
        for walked[0] in range(record_count):
            behind = read_record(cursor[0], end, &fields)
            if behind == NULL:
                return -1
            offset = base_offset + fields.offset_delta
            if fields.key_length >= 0 and offset >= first_offset:
                slot = self.find(fields.key, fields.key_length)
                if slot == NULL:
                    return 0
                if slot.offset_plus_one == 0:
                    if self.used >= self.most:
                        return 0
                    self.used += 1
                if offset >= slot.offset_plus_one:
                    slot.offset_plus_one = offset + 1
            cursor[0] = behind
        return 1

    def put(
        self, region, Py_ssize_t record_count, int64_t base_offset, int64_t first_offset,
    ):
        """See `KeyTablePure.put`."""
        cdef Py_buffer view
        cdef const uint8_t* cursor
        cdef const uint8_t* end
        cdef Py_ssize_t walked = 0
        cdef int outcome
        PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
        try:
            if record_count < 0:
                raise InvalidRecordError(f"{record_count} records, expected 0 or more")
            cursor = <const uint8_t*>view.buf
            end = cursor + view.len
            if view.len < NOGIL_SIZE:
                outcome = self.put_region(
                    &cursor, end, record_count, base_offset, first_offset, &walked
                )
            else:
                with nogil:
                    outcome = self.put_region(
                        &cursor, end, record_count, base_offset, first_offset, &walked
                    )
            if outcome < 0:
                raise malformed_record(
                    region, cursor - <const uint8_t*>view.buf, view.len, walked
                )
            if outcome > 0 and cursor != end:
                raise malformed_region(
                    cursor - <const uint8_t*>view.buf, view.len, record_count
                )
            return outcome > 0
        finally:
            PyBuffer_Release(&view)

    def get(self, key):
        """See `KeyTablePure.get`."""
        cdef const uint8_t[::1] view = key
        cdef Slot* slot
        if view.shape[0] > 0x7FFFFFFF:
            raise ValueError(f"a key of {view.shape[0]} bytes is longer than any key of a record")
        slot = self.find(&view[0] if view.shape[0] else NULL, <int32_t>view.shape[0])
        return -1 if slot == NULL else slot.offset_plus_one - 1

    cdef const uint8_t* filter_region(
        self, const uint8_t* cursor, const uint8_t* end, Py_ssize_t record_count,
        int64_t base_offset, int64_t base_timestamp, int64_t latest_offset,
        bint drop_tombstones, uint8_t* output, Kept* kept, Py_ssize_t* walked,
    ) noexcept nogil:
        """Copies what stays; returns the end of the records, or the malformed one."""
        cdef RecordFields fields
        cdef const uint8_t* behind
        cdef const uint8_t* run = cursor
        cdef int64_t offset, timestamp
        cdef Slot* slot
        cdef bint is_kept
        for walked[0] in range(record_count):
            behind = read_record(cursor, end, &fields)
            if behind == NULL:
                return cursor
            offset = base_offset + fields.offset_delta
            if offset > latest_offset:
                is_kept = True
            elif fields.key_length < 0:
                is_kept = False
                kept.unkeyed += 1
            else:
                slot = self.find(fields.key, fields.key_length)
                # A free slot says 0, which is below every offset + 1.
                is_kept = slot == NULL or offset + 1 >= slot.offset_plus_one
                if is_kept and drop_tombstones and fields.value_length < 0:
                    is_kept = False
            if is_kept:
                # Unsigned, because leaving int64 wraps around and must not be undefined.
                timestamp = <int64_t>(
                    <uint64_t>base_timestamp + <uint64_t>fields.timestamp_delta
                )
                if kept.count == 0 or timestamp > kept.max_timestamp:
                    kept.max_timestamp = timestamp
                if fields.value_length < 0:
                    kept.has_tombstone = True
                kept.count += 1
            else:
                if cursor > run:
                    memcpy(output + kept.size, run, cursor - run)
                    kept.size += cursor - run
                run = behind
            cursor = behind
        walked[0] = record_count
        if cursor > run:
            memcpy(output + kept.size, run, cursor - run)
            kept.size += cursor - run
        return cursor

    def filter(
        self, region, Py_ssize_t record_count, int64_t base_offset, int64_t base_timestamp,
        int64_t latest_offset, bint drop_tombstones,
    ):
        """See `KeyTablePure.filter`."""
        cdef Py_buffer view
        cdef Kept kept
        cdef const uint8_t* start
        cdef const uint8_t* behind
        cdef uint8_t* output
        cdef Py_ssize_t walked = 0
        kept.count = kept.size = kept.unkeyed = 0
        kept.max_timestamp = -1
        kept.has_tombstone = False
        PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
        # What is kept is never more than what is there.
        output = <uint8_t*>malloc(view.len + 1)
        try:
            if output == NULL:
                raise MemoryError
            if record_count < 0:
                raise InvalidRecordError(f"{record_count} records, expected 0 or more")
            start = <const uint8_t*>view.buf
            if view.len < NOGIL_SIZE:
                behind = self.filter_region(
                    start, start + view.len, record_count, base_offset, base_timestamp,
                    latest_offset, drop_tombstones, output, &kept, &walked,
                )
            else:
                with nogil:
                    behind = self.filter_region(
                        start, start + view.len, record_count, base_offset, base_timestamp,
                        latest_offset, drop_tombstones, output, &kept, &walked,
                    )
            if walked < record_count:
                raise malformed_record(region, behind - start, view.len, walked)
            if behind != start + view.len:
                raise malformed_region(behind - start, view.len, record_count)
            return (
                kept.count,
                None if kept.count == record_count
                else PyBytes_FromStringAndSize(<char*>output, kept.size),
                kept.max_timestamp,
                bool(kept.has_tombstone),
                kept.unkeyed,
            )
        finally:
            free(output)
            PyBuffer_Release(&view)

    # Runs of plain batches

    cdef Py_ssize_t put_batches(
        self, const uint8_t* data, Py_ssize_t position, Py_ssize_t end, int64_t first_offset,
        int64_t* last_offset,
    ) noexcept nogil:
        cdef const uint8_t* batch
        cdef const uint8_t* cursor
        cdef Py_ssize_t size, walked
        cdef int64_t base_offset, batch_last_offset
        while True:
            batch = data + position
            size = plain_batch_size(batch, end - position)
            if size == 0 or not has_valid_crc(batch, size):
                return position
            base_offset = read_int64(batch)
            batch_last_offset = base_offset + <int32_t>read_uint32(batch + LAST_OFFSET_DELTA)
            if batch_last_offset >= first_offset:
                cursor = batch + HEADER_SIZE
                if self.put_region(
                    &cursor, batch + size, <int32_t>read_uint32(batch + RECORD_COUNT),
                    base_offset, first_offset, &walked,
                ) <= 0 or cursor != batch + size:
                    return position
                last_offset[0] = batch_last_offset
            position += size

    def put_run(self, data, Py_ssize_t position, int64_t first_offset):
        """See `KeyTablePure.put_run`."""
        cdef Py_buffer view
        cdef int64_t last_offset = -1
        cdef const uint8_t* start
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= view.len:
                raise ValueError(f"position {position} is not within {view.len} bytes")
            start = <const uint8_t*>view.buf
            if plain_batch_size(start + position, view.len - position) > 0:
                with nogil:
                    position = self.put_batches(
                        start, position, view.len, first_offset, &last_offset
                    )
            return position, last_offset
        finally:
            PyBuffer_Release(&view)

    cdef void filter_batches(
        self, const uint8_t* data, Py_ssize_t end, int64_t latest_offset, int64_t now_ms,
        const int64_t* spared, Py_ssize_t spared_count, Run* run,
    ) noexcept nogil:
        cdef const uint8_t* batch
        cdef const uint8_t* behind
        cdef uint8_t* output
        cdef Kept kept
        cdef Py_ssize_t size, record_count, walked
        cdef int64_t base_timestamp, last_offset, max_timestamp
        cdef uint8_t attributes
        while True:
            batch = data + run.position
            size = plain_batch_size(batch, end - run.position)
            if size == 0 or not has_valid_crc(batch, size):
                return
            attributes = batch[ATTRIBUTES + 1]
            record_count = <int32_t>read_uint32(batch + RECORD_COUNT)
            base_timestamp = read_int64(batch + BASE_TIMESTAMP)
            last_offset = read_int64(batch) + <int32_t>read_uint32(batch + LAST_OFFSET_DELTA)
            # There is room for as much as was read, and what is kept is never more.
            output = self.kept_bytes + run.size
            kept.count = kept.size = kept.unkeyed = 0
            kept.max_timestamp = -1
            kept.has_tombstone = False
            walked = 0
            behind = self.filter_region(
                batch + HEADER_SIZE, batch + size, record_count, read_int64(batch),
                base_timestamp, latest_offset,
                attributes & DELETE_HORIZON_MASK and base_timestamp <= now_ms,
                output + HEADER_SIZE, &kept, &walked,
            )
            if walked < record_count or behind != batch + size:
                return  # Malformed: the reader that comes next will say how.
            if kept.count == 0:
                if holds(spared, spared_count, last_offset):
                    return
            elif kept.has_tombstone and not attributes & DELETE_HORIZON_MASK:
                return
            else:
                max_timestamp = read_int64(batch + MAX_TIMESTAMP)
                memcpy(output, batch, HEADER_SIZE)
                if kept.count < record_count:
                    size = HEADER_SIZE + kept.size
                    if not attributes & LOG_APPEND_TIME_MASK:
                        max_timestamp = kept.max_timestamp
                    if max_timestamp < -1:
                        max_timestamp = -1
                    write_uint32(output + LENGTH, <uint32_t>(size - LOG_OVERHEAD))
                    write_uint32(output + MAX_TIMESTAMP, <uint32_t>(<uint64_t>max_timestamp >> 32))
                    write_uint32(output + MAX_TIMESTAMP + 4, <uint32_t>max_timestamp)
                    write_uint32(output + RECORD_COUNT, <uint32_t>kept.count)
                    write_uint32(
                        output + CRC, compute_crc32c(output + ATTRIBUTES, size - ATTRIBUTES)
                    )
                self.kept_batches[run.batch_count].last_offset = last_offset
                self.kept_batches[run.batch_count].max_timestamp = max_timestamp
                self.kept_batches[run.batch_count].size = size
                run.batch_count += 1
                run.size += size
            run.records_read += record_count
            run.records_kept += kept.count
            run.unkeyed += kept.unkeyed
            run.position = behind - data

    def filter_run(
        self, data, Py_ssize_t position, int64_t latest_offset, int64_t now_ms, spared,
    ):
        """See `KeyTablePure.filter_run`."""
        cdef Py_buffer view
        cdef const int64_t[::1] numbers = spared
        cdef const int64_t* first = &numbers[0] if numbers.shape[0] else NULL
        cdef Py_ssize_t count = numbers.shape[0]
        cdef Py_ssize_t room, index
        cdef const uint8_t* start
        cdef Run run
        run.position = position
        run.size = run.batch_count = 0
        run.records_read = run.records_kept = run.unkeyed = 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= view.len:
                raise ValueError(f"position {position} is not within {view.len} bytes")
            start = <const uint8_t*>view.buf
            if plain_batch_size(start + position, view.len - position) == 0:
                return position, b"", [], 0, 0, 0
            room = view.len - position
            if room > self.run_room:
                self.make_room(room)
            with nogil:
                self.filter_batches(start, view.len, latest_offset, now_ms, first, count, &run)
            return (
                run.position,
                PyBytes_FromStringAndSize(<char*>self.kept_bytes, run.size),
                [
                    (
                        self.kept_batches[index].last_offset,
                        self.kept_batches[index].max_timestamp,
                        self.kept_batches[index].size,
                    )
                    for index in range(run.batch_count)
                ],
                run.records_read,
                run.records_kept,
                run.unkeyed,
            )
        finally:
            PyBuffer_Release(&view)

    cdef int make_room(self, Py_ssize_t size) except -1:
        """Room for a run over that many bytes."""
        cdef void* room
        self.run_room = 0
        room = realloc(self.kept_bytes, size)
        if room == NULL:
            raise MemoryError(f"no room for {size} bytes of kept batches")
        self.kept_bytes = <uint8_t*>room
        room = realloc(self.kept_batches, (size // HEADER_SIZE + 1) * sizeof(RunBatch))
        if room == NULL:
            raise MemoryError(f"no room for what there is to say of {size // HEADER_SIZE} batches")
        self.kept_batches = <RunBatch*>room
        self.run_room = size
        return 0


cdef const uint8_t* shift_region(
    const uint8_t* cursor, const uint8_t* end, Py_ssize_t record_count, int64_t shift,
    uint8_t** output, Py_ssize_t* walked,
) noexcept nogil:
    cdef RecordFields fields
    cdef const uint8_t* behind
    cdef const uint8_t* body
    cdef const uint8_t* rest
    cdef int32_t length
    cdef int64_t delta
    cdef uint64_t zigzag, body_size
    for walked[0] in range(record_count):
        behind = read_record(cursor, end, &fields)
        if behind == NULL:
            return cursor
        # All three are within the record, which was found whole.
        body = read_varint(cursor, end, &length)
        rest = read_varlong(body + 1, behind, &delta)
        delta = <int64_t>(<uint64_t>delta + <uint64_t>shift)
        zigzag = (<uint64_t>delta << 1) ^ (0 - (<uint64_t>delta >> 63))
        body_size = 1 + base128_size(zigzag) + (behind - rest)
        output[0] = write_base128(output[0], body_size << 1)
        output[0][0] = body[0]
        output[0] = write_base128(output[0] + 1, zigzag)
        memcpy(output[0], rest, behind - rest)
        output[0] += behind - rest
        cursor = behind
    walked[0] = record_count
    return cursor


def shift_timestamps(region, Py_ssize_t record_count, int64_t shift):
    """See `key_table_pure.shift_timestamps_pure`."""
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef const uint8_t* behind
    cdef uint8_t* output
    cdef uint8_t* cursor
    cdef Py_ssize_t walked = 0
    PyObject_GetBuffer(region, &view, PyBUF_SIMPLE)
    output = NULL
    try:
        if record_count < 0:
            raise InvalidRecordError(f"{record_count} records, expected 0 or more")
        start = <const uint8_t*>view.buf
        # More records than can be there are found malformed before they need room.
        output = <uint8_t*>malloc(
            view.len + MAX_GROWTH * (min(record_count, view.len // MIN_RECORD_SIZE) + 1)
        )
        if output == NULL:
            raise MemoryError
        cursor = output
        if view.len < NOGIL_SIZE:
            behind = shift_region(start, start + view.len, record_count, shift, &cursor, &walked)
        else:
            with nogil:
                behind = shift_region(
                    start, start + view.len, record_count, shift, &cursor, &walked
                )
        if walked < record_count:
            raise malformed_record(region, behind - start, view.len, walked)
        if behind != start + view.len:
            raise malformed_region(behind - start, view.len, record_count)
        return PyBytes_FromStringAndSize(<char*>output, cursor - output)
    finally:
        free(output)
        PyBuffer_Release(&view)
