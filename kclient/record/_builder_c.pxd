# C types of builder.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t, uint64_t
import cython

cdef int64_t _LAST_TIMESTAMP
cdef Py_ssize_t _INT32_MAX
cdef Py_ssize_t _MOST_OVERHEAD_BYTES
cdef Py_ssize_t _FIRST_BYTES
cdef Py_ssize_t _TABLE_SIZE
cdef bytearray _NOTHING
cdef bytes _NO_HEADERS
cdef bytes _NULL
cdef list _VARINTS

cdef extern from *:
    """
    static Py_ssize_t kclient_item_size(PyObject *items, Py_ssize_t at) {
        PyObject *item = PyList_GET_ITEM(items, at);
        return PyBytes_CheckExact(item) ? PyBytes_GET_SIZE(item) : -1;
    }
    #define kclient_item_cstr(items, at) PyBytes_AS_STRING(PyList_GET_ITEM((items), (at)))
    """
    # Size of a bytes object in a list, without changing its reference count. Negative for an object
    # of another type.
    Py_ssize_t item_size "kclient_item_size" (list items, Py_ssize_t at) noexcept
    const unsigned char* item_cstr "kclient_item_cstr" (list items, Py_ssize_t at) noexcept

cdef extern from *:
    """
    #define kclient_is_exported(buffer) (((PyByteArrayObject *)(buffer))->ob_exports > 0)
    """
    bint is_exported "kclient_is_exported" (bytearray buffer) noexcept


# Fields that every record reads or changes come first, so that they lie in two cache lines.
cdef class BatchBuilder:
    cdef Py_ssize_t _used
    cdef readonly Py_ssize_t record_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef Py_ssize_t _space
    cdef unsigned char* _memory
    cdef Py_ssize_t _size
    cdef bytearray _buffer
    cdef readonly bint closed
    cdef int _codec
    cdef int _attributes
    cdef Py_ssize_t _expected
    cdef bytes _payload

    cdef int _take(self, bytearray buffer) except -1

    @cython.locals(timestamp=int64_t)
    cpdef Py_ssize_t append(
        self, object timestamp_ms, object key, object value, object headers) except? -2

    @cython.locals(delta=int64_t, written=Py_ssize_t)
    cpdef Py_ssize_t put(
        self, int64_t timestamp, bytes key, bytes value, bytes headers) except? -2

    @cython.locals(delta=int64_t, written=Py_ssize_t)
    cdef Py_ssize_t _put_memory(
        self, int64_t timestamp, const unsigned char* key_cstr, Py_ssize_t key_size,
        const unsigned char* value_cstr, Py_ssize_t value_size,
        const unsigned char* headers_cstr, Py_ssize_t headers_size) except? -2

    @cython.locals(put=Py_ssize_t, value_bytes=Py_ssize_t, out_cstr="unsigned char*",
                   end=Py_ssize_t, pos=Py_ssize_t, index=uint64_t, time=uint64_t,
                   fixed_size=Py_ssize_t, value_size=Py_ssize_t, length=uint64_t,
                   size=Py_ssize_t)
    cpdef (Py_ssize_t, Py_ssize_t) put_values(
        self, int64_t timestamp, list values, Py_ssize_t count) except *

    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _note(self, int64_t timestamp, Py_ssize_t written) noexcept

    @cython.locals(key_cstr="const unsigned char*", value_cstr="const unsigned char*",
                   headers_cstr="const unsigned char*", key_size=Py_ssize_t,
                   value_size=Py_ssize_t)
    cdef Py_ssize_t _store(self, int64_t delta, bytes key, bytes value, bytes headers) except -1

    @cython.locals(time=uint64_t, index=uint64_t, key_length=uint64_t, value_length=uint64_t,
                   size=Py_ssize_t, total=Py_ssize_t, pos=Py_ssize_t, out_cstr="unsigned char*")
    cdef Py_ssize_t _write(
        self, int64_t delta, const unsigned char* key_cstr, Py_ssize_t key_size,
        const unsigned char* value_cstr, Py_ssize_t value_size,
        const unsigned char* headers_cstr, Py_ssize_t headers_size) except -1

    @cython.locals(size=Py_ssize_t)
    cdef int _grow(self, Py_ssize_t wanted) except -1

    @cython.locals(size=Py_ssize_t)
    cpdef object trim(self)

    cpdef bytearray give_back(self)


cdef uint64_t zigzag(int64_t number) noexcept

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t varint_size(uint64_t value) noexcept

cdef Py_ssize_t put_varint(unsigned char* out, Py_ssize_t pos, uint64_t value) noexcept

@cython.locals(timestamp=int64_t)
cdef int64_t checked_timestamp(object timestamp_ms) except? -2

cdef int check_size(Py_ssize_t size) except -1
