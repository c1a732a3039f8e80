# C types of arrow_append.py for the compiled build: data only, no rules.

from libc.stdint cimport int64_t
import cython

from kclient.producer._batch_c cimport ProducerBatch
from kclient.producer._append_c cimport MemoryBudget, TopicState
from kclient.producer._sticky_partitioner_c cimport StickyPartitioner
from kclient.record._arrow_rows_c cimport ArrowRows

cdef int64_t _BYTES_AT_ONCE

@cython.locals(targets_view=cython.int[::1], nexts_view=cython.longlong[::1], partitions=Py_ssize_t,
               left=int64_t, target=Py_ssize_t, sticky=bint, batch=ProducerBatch,
               size=Py_ssize_t)
cpdef Py_ssize_t append_rows(
    ArrowRows rows, Py_ssize_t row, Py_ssize_t last, TopicState topic_state, MemoryBudget budget, object targets,
    object nexts, object watcher, int64_t now) except -1
