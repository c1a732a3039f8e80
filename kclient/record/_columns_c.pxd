# C types of columns.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t
import cython
from cpython.array cimport array as c_array

from kclient.record._record_c cimport (
    check_end, decode_headers, offset_of, parse_record, start_of, timestamp_of)

cdef Py_ssize_t _INT32_MAX
cdef int64_t _INT64_MAX
cdef Py_ssize_t _EXPECTED_SHARE


cdef class BytesColumn:
    cdef Py_ssize_t _expected_rows
    cdef Py_ssize_t _expected_bytes
    cdef Py_ssize_t _asked
    cdef readonly bytearray data
    cdef unsigned char* _data_cstr
    cdef readonly object ends
    cdef int[::1] _ends_view
    cdef readonly bytearray present
    cdef unsigned char* _present_cstr

    @cython.locals(wanted=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t more, Py_ssize_t size_bytes) except -1

    @cython.locals(used=Py_ssize_t)
    cdef int trim(self, Py_ssize_t rows) except -1

    @cython.locals(used=Py_ssize_t, target="unsigned char*", source="const unsigned char*")
    cdef Py_ssize_t put(
        self, Py_ssize_t row, const unsigned char* data, Py_ssize_t pos, Py_ssize_t size) noexcept


cdef class ColumnStore:
    cdef bint _with_keys
    cdef bint _with_values
    cdef bint _with_headers
    cdef Py_ssize_t _expected_rows
    cdef readonly object offsets
    cdef readonly object timestamps
    cdef readonly object header_ends
    cdef readonly BytesColumn keys
    cdef readonly BytesColumn values
    cdef list _header_names
    cdef list _header_values
    cdef readonly Py_ssize_t key_nulls
    cdef readonly Py_ssize_t value_nulls
    cdef Py_ssize_t _headers
    cdef readonly Py_ssize_t rows
    cdef readonly bint stopped

    @cython.locals(wanted=Py_ssize_t, size=Py_ssize_t)
    cpdef int reserve(self, Py_ssize_t more, Py_ssize_t size_bytes) except -1

    @cython.locals(rows=Py_ssize_t)
    cpdef int trim(self) except -1

    cdef Py_ssize_t _add_headers(self, object headers) except -1

    @cython.locals(key_size=Py_ssize_t, value_size=Py_ssize_t, size=Py_ssize_t, row=Py_ssize_t)
    cpdef bint append(
        self, int64_t offset, int64_t timestamp, bytes key, bytes value, object headers) except -1

    @cython.locals(data_view="const unsigned char[::1]", data_cstr="const unsigned char*",
                   end=Py_ssize_t, offsets=cython.longlong[::1],
                   timestamps=cython.longlong[::1], header_ends=cython.int[::1], keys=BytesColumn,
                   values=BytesColumn, with_keys=bint, with_values=bint,
                   key_nulls=Py_ssize_t, value_nulls=Py_ssize_t,
                   headers=Py_ssize_t, row=Py_ssize_t,
                   last=Py_ssize_t, fixed_time=bint, fixed_timestamp=int64_t, time_delta=int64_t,
                   delta=int64_t, key_pos=Py_ssize_t, key_size=Py_ssize_t, value_pos=Py_ssize_t,
                   value_size=Py_ssize_t, headers_pos=Py_ssize_t, stop=Py_ssize_t, offset=int64_t,
                   timestamp=int64_t)
    cpdef tuple fill(
        self, object data, Py_ssize_t pos, Py_ssize_t left, int64_t base_offset,
        int64_t last_delta, int64_t base_timestamp, object append_timestamp,
        int64_t start_offset, Py_ssize_t limit, int64_t stop_offset=*)


cdef Py_ssize_t space_for(Py_ssize_t wanted, Py_ssize_t space, Py_ssize_t expected) noexcept

cdef int resize(bytearray data, Py_ssize_t size) except -1

cdef int resize_items(c_array data, Py_ssize_t size) except -1

@cython.locals(present_cstr="const unsigned char*", bits=bytearray, bits_cstr="unsigned char*",
               row=Py_ssize_t)
cpdef bytearray bitmap(bytearray present, Py_ssize_t rows)
