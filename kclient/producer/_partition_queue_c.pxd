# C types of partition_queue.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t
import cython

from kclient.producer._batch_c cimport ProducerBatch
from kclient.producer._delivery_c cimport BatchOutcome
from kclient.record._builder_c cimport BatchBuilder

cdef Py_ssize_t WINDOW
cdef object _SEALED
cdef object _RETRYING
cdef object _SEND
cdef object _ACKNOWLEDGE
cdef object _STEADY
cdef object _BROKEN
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


cdef class PartitionQueue:
    cdef public int64_t _doubted_end
    cdef public bint _forgotten
    cdef public bint _log_is_new
    cdef public Py_ssize_t _max_in_flight
    cdef public int64_t _next_ordinal
    cdef public Py_ssize_t _retrying
    cdef list _open_batches
    cdef public Py_ssize_t batch_limit
    cdef public Py_ssize_t filled
    cdef public object index
    cdef public object leader
    cdef public int64_t leader_epoch
    cdef public object outstanding
    cdef public object sealed
    cdef public PartitionSequences sequences
    cdef public object topic
    cdef public object topic_partition

    @cython.locals(sequences=PartitionSequences)
    cpdef object needs_identity(self)

    @cython.locals(batch=ProducerBatch, builder=BatchBuilder)
    cpdef ProducerBatch seal_open(self)

    @cython.locals(head=ProducerBatch)
    cpdef ProducerBatch next_batch(self, double now)

    @cython.locals(head=ProducerBatch)
    cpdef ProducerBatch next_repeat(self, double now)

    @cython.locals(sequences=PartitionSequences, head=ProducerBatch)
    cpdef object may_send_new(self)

    @cython.locals(head=ProducerBatch)
    cpdef object retry_due(self)

    @cython.locals(sequences=PartitionSequences, head=ProducerBatch, batch=ProducerBatch)
    cpdef ProducerBatch _next_repeat(self)

    cpdef object is_broken(self)

    @cython.locals(sequences=PartitionSequences)
    cpdef object sent(self, ProducerBatch batch)

    cpdef object is_first(self, ProducerBatch batch)

    @cython.locals(sequences=PartitionSequences)
    cpdef object acknowledged(self, ProducerBatch batch)

    @cython.locals(sequences=PartitionSequences)
    cdef object _conclude(self)

    cdef object _left(self, ProducerBatch batch)
