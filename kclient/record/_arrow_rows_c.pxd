# C types of arrow_rows.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t, uint32_t
import cython

from kclient.record._builder_c cimport BatchBuilder, put_varint, zigzag
from kclient.record._murmur_c cimport partition_of

cdef Py_ssize_t RECORD_OVERHEAD
cdef Py_ssize_t HEADER_OVERHEAD
cdef int64_t _LAST_TIMESTAMP
cdef int64_t MOST_PARTITIONS
cdef bytes _NO_HEADERS
cdef Py_ssize_t _CELLS_AT_ONCE
cdef int64_t _HASHED_AT_ONCE


cdef class ArrowBits:
    cdef bint _any
    cdef Py_ssize_t _start
    cdef const unsigned char[::1] _bits

    @cython.locals(at=Py_ssize_t)
    cdef bint is_null(self, Py_ssize_t row) noexcept


cdef class ArrowBytes:
    cdef Py_ssize_t pos
    cdef ArrowBits _nulls
    cdef Py_ssize_t _start
    cdef int _width
    cdef Py_ssize_t _size
    cdef const int[::1] _narrow
    cdef const long long[::1] _wide
    cdef const unsigned char[::1] _data
    cdef const unsigned char* _data_cstr

    @cython.locals(at=Py_ssize_t, first=int64_t, last=int64_t)
    cdef Py_ssize_t locate(self, Py_ssize_t row) except -2

    @cython.locals(size=Py_ssize_t)
    cdef object get(self, Py_ssize_t row)

    @cython.locals(size=Py_ssize_t, pos=Py_ssize_t, last=Py_ssize_t)
    cdef bint is_text(self, Py_ssize_t row) except -1


cdef class ArrowInts:
    cdef ArrowBits _nulls
    cdef Py_ssize_t _start
    cdef const long long[::1] _numbers
    cdef int64_t _times
    cdef int64_t _over
    cdef int64_t _most

    cdef bint is_null(self, Py_ssize_t row) noexcept

    @cython.locals(number=int64_t)
    cdef int64_t get(self, Py_ssize_t row) noexcept


cdef class ArrowHeaders:
    cdef ArrowBits _nulls
    cdef Py_ssize_t _start
    cdef int _width
    cdef const int[::1] _narrow
    cdef const long long[::1] _wide
    cdef int64_t _first
    cdef int64_t _items
    cdef ArrowBits _item_nulls
    cdef ArrowBytes _names
    cdef ArrowBytes _values
    cdef Py_ssize_t from_item
    cdef Py_ssize_t to_item
    cdef bytearray _scratch
    cdef unsigned char* _scratch_cstr

    @cython.locals(at=Py_ssize_t, first=int64_t, last=int64_t)
    cdef Py_ssize_t locate(self, Py_ssize_t row) except -2

    @cython.locals(size=Py_ssize_t, item=Py_ssize_t, name_size=Py_ssize_t, value_size=Py_ssize_t)
    cdef Py_ssize_t size(self, Py_ssize_t row) except -2

    @cython.locals(item=Py_ssize_t)
    cdef int fault(self, Py_ssize_t row) except -1

    cdef object bad_name(self, Py_ssize_t row)

    @cython.locals(wanted=Py_ssize_t, pos=Py_ssize_t, item=Py_ssize_t)
    cdef Py_ssize_t encode(self, Py_ssize_t row) except -2

    @cython.locals(size=Py_ssize_t, out_cstr="unsigned char*")
    cdef Py_ssize_t _put(self, Py_ssize_t pos, ArrowBytes column, Py_ssize_t item) except -2

    cdef tuple get(self, Py_ssize_t row)


cdef class ArrowRows:
    cdef readonly Py_ssize_t count
    cdef ArrowBytes _value
    cdef ArrowBytes _key
    cdef ArrowHeaders _headers
    cdef ArrowInts _partition
    cdef ArrowInts _timestamp
    cdef Py_ssize_t _key_size
    cdef Py_ssize_t _value_size
    cdef Py_ssize_t _at_once

    @cython.locals(last=Py_ssize_t)
    cpdef Py_ssize_t piece(self, Py_ssize_t row)

    @cython.locals(wrong=Py_ssize_t, highest=int64_t, fault=int, partition=int64_t)
    cpdef tuple check(
        self, Py_ssize_t row, Py_ssize_t last, Py_ssize_t largest, Py_ssize_t keep,
        int64_t partitions=*)

    @cython.locals(partition=int64_t, fault=int)
    cdef int _fault(self, Py_ssize_t row, Py_ssize_t largest, int64_t partitions) except -1

    cpdef int64_t partition(self, Py_ssize_t row)

    @cython.locals(targets_view=cython.int[::1], target=int64_t, size=Py_ssize_t, left=int64_t)
    cpdef Py_ssize_t route(
        self, object targets, Py_ssize_t row, Py_ssize_t last, int64_t partitions) except -1

    @cython.locals(key=ArrowBytes)
    cdef Py_ssize_t _partition_of_key(self, Py_ssize_t size, Py_ssize_t partitions) noexcept

    cpdef object key(self, Py_ssize_t row)

    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t stage(self, Py_ssize_t row) except -2

    @cython.locals(stamp=int64_t)
    cdef int64_t timestamp(self, Py_ssize_t row, int64_t now) noexcept

    @cython.locals(stamp=int64_t, value=ArrowBytes, key=ArrowBytes, raw="const unsigned char*",
                   raw_size=Py_ssize_t, index=Py_ssize_t)
    cdef Py_ssize_t put(self, BatchBuilder builder, Py_ssize_t row, int64_t now) except -2

    cpdef Py_ssize_t append(
        self, BatchBuilder builder, Py_ssize_t row, Py_ssize_t last, int64_t now) except -1

    @cython.locals(size=Py_ssize_t)
    cpdef tuple record(self, Py_ssize_t row, int64_t now)

    cdef int _refuse_beyond(self, Py_ssize_t row, Py_ssize_t last) except -1


cdef object view_of(object buffer, Py_ssize_t width, Py_ssize_t count, str code)
