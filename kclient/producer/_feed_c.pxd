# C types of feed.py for the compiled build: data only, no rules.

import cython


cdef class Feed:
    cdef object _records
    cdef public object error
    cdef Py_ssize_t _most_bytes
    cdef public list block
    cdef public Py_ssize_t count
    cdef public Py_ssize_t at

    cpdef object hold(self, object record)

    @cython.locals(block=list, count=Py_ssize_t)
    cpdef Py_ssize_t pull(self, Py_ssize_t most) except -1

    @cython.locals(part=bytes, size=Py_ssize_t)
    cdef bint _is_plain(self, object record) except -1
