# C types of murmur.py for the compiled build: data only, no rules.

from libc.stdint cimport uint32_t
import cython

cdef uint32_t _SEED
cdef uint32_t _MULTIPLIER
cdef uint32_t _MASK


cpdef object partition_of_key(bytes key, Py_ssize_t partitions)

cdef Py_ssize_t partition_of(
    const unsigned char* data_cstr, Py_ssize_t size, Py_ssize_t partitions) noexcept

@cython.locals(mixed=uint32_t, word=uint32_t, pos=Py_ssize_t, left=Py_ssize_t)
cdef uint32_t _murmur2(const unsigned char* data_cstr, Py_ssize_t size) noexcept
