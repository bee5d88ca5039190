"""The compiled twin of `gathering.GatheringPure`; see there.

No lock: the interpreter's own is held from the first line of a method to its last. Nothing between
the look at `is_closed` and the append may run Python code, so the record is made before.
"""

cdef enum:
    RECORD_OVERHEAD = 21


cdef class Gathering:
    """See `gathering.GatheringPure`."""

    cdef readonly list records
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t limit
    cdef readonly bint is_closed

    def __init__(self, Py_ssize_t start_size, Py_ssize_t limit):
        self.records = []
        self.size = start_size
        self.limit = limit
        self.is_closed = False

    def add(self, timestamp, key, value, headers, Py_ssize_t size=0):
        cdef tuple record
        cdef Py_ssize_t index
        if size == 0:
            if headers:
                return -1
            size = RECORD_OVERHEAD
            if key is not None:
                if type(key) is not bytes:
                    return -1
                size += len(<bytes>key)
            if value is not None:
                if type(value) is not bytes:
                    return -1
                size += len(<bytes>value)
        record = (timestamp, key, value, headers)
        if self.is_closed or self.size + size > self.limit:
            return -1
        index = len(self.records)
        self.records.append(record)
        self.size += size
        return index

    def close(self):
        self.is_closed = True
        return len(self.records)

    def clear(self):
        self.records = []
