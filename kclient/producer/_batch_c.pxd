# C types of batch.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t
import cython

from kclient.producer._delivery_c cimport BatchOutcome
from kclient.record._builder_c cimport BatchBuilder

cdef object _OPEN
cdef object _SEALED
cdef object _SEAL
cdef object _SETTLED


cdef class ProducerBatch:
    # First and adjacent: the fields that each record reads or changes.
    cdef public BatchBuilder builder
    cdef public BatchOutcome outcome
    cdef public object watcher
    cdef public int64_t reserved
    cdef public Py_ssize_t attempts
    cdef public Py_ssize_t attempts_elsewhere
    cdef public bint compressed
    cdef public bint compressing
    cdef public double created
    cdef public double deadline
    cdef public object flushes
    cdef public object last_error
    cdef public bint maybe_written
    cdef public int64_t ordinal
    cdef public int64_t producer_epoch
    cdef public int64_t producer_id
    cdef public object queue
    cdef public double retry_at
    cdef public bint linger_over
    cdef public int64_t sequence
    cdef public object request
    cdef public bint split_in_doubt
    cdef public object state

    cpdef object records(self)
    cpdef object encode(self)
    cpdef object apply(self, object event)
    cpdef object forget(self)
    cpdef object seal(self)
