# C types of delivery.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t
import cython

cdef Py_ssize_t _TOLD_AT_ONCE
cdef Py_ssize_t _CALLED_AT_ONCE
cdef object _new_tuple
cdef object _copy_context

@cython.locals(first=Py_ssize_t)
cdef object _call_soon(object loop, list callbacks)


cdef class BatchOutcome:
    cdef public object host
    cdef public object topic
    cdef public Py_ssize_t partition
    cdef public Py_ssize_t count
    cdef public bint done
    cdef public int64_t base_offset
    cdef public int64_t log_append_time
    cdef public object error
    cdef public object record_errors
    cdef public bint reported
    cdef public list _parts
    cdef public object _raised
    cdef public list _waiting

    cpdef object _note_waiting(self, Delivery delivery)

    @cython.locals(delivery=Delivery, callbacks=list)
    cpdef object _tell(self, list waiting)

    cpdef object _error_of(self, Py_ssize_t index)


cdef class Delivery:
    cdef public BatchOutcome _outcome
    cdef public Py_ssize_t _index
    cdef int64_t _timestamp
    cdef public list _listeners

    cpdef bint done(self)

    @cython.locals(outcome=BatchOutcome, base=int64_t, appended=int64_t)
    cpdef object result(self)

    cpdef object exception(self)

    cdef BatchOutcome _resolved(self)

    cdef object _listen(self, object listener)

    cdef object _forget(self, object waiter)

    cdef object _fire(self, list callbacks)
