# C types of sequences.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t
import cython

cdef object _STEADY
cdef object _UNRESOLVED


cdef class PartitionSequences:
    cdef public object state
    cdef public object identity
    cdef public int64_t next
    cdef public int64_t acked_end
    cdef public int64_t gap_end

    @cython.locals(first=int64_t)
    cpdef int64_t take(self, int64_t count) except? -2
    cpdef object acknowledged(self, int64_t end)
    cpdef object given_up(self, int64_t end)
