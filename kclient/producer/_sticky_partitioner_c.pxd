# C types of sticky_partitioner.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t


cdef class StickyPartitioner:
    cdef public Py_ssize_t current
    cdef public int64_t left
    cdef public int64_t switch_bytes
    cdef object _rng
    cdef object _backlog

    cpdef Py_ssize_t ready(self, int64_t more) noexcept
    cpdef bint due(self) noexcept
    cpdef object note(self, int64_t size)
