# C types of feed.py for the compiled build: data only, no rules.

from cpython.bytes cimport PyBytes_GET_SIZE
import cython


cdef class Feed:
    cdef object _records
    cdef public object error
    cdef Py_ssize_t _most_bytes
    cdef public list block
    cdef public Py_ssize_t count
    cdef public Py_ssize_t at
    cdef public Py_ssize_t bare
    cdef public Py_ssize_t bare_bytes
    # Partitions of the block's keys, chosen ahead among ``spread`` of them; -1: none were.
    cdef Py_ssize_t spread
    cdef Py_ssize_t[8] targets  # as many as BLOCK

    cdef int _new_block(self) except -1

    cpdef object hold(self, object record)

    @cython.locals(block=list, count=Py_ssize_t, bare=Py_ssize_t, size=Py_ssize_t,
                   value_size=Py_ssize_t)
    cpdef Py_ssize_t pull(self, Py_ssize_t most) except -1

    @cython.locals(part=bytes, size=Py_ssize_t)
    cdef bint _is_plain(self, object record) except -1
