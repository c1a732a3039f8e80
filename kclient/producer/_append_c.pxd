# C types of append.py for the compiled build, and what only C can do.

from cpython.time cimport time as _seconds
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t
import cython

from kclient.producer._batch_c cimport ProducerBatch
from kclient.producer._record_source_c cimport RecordSource, fetch, prefetch_batch, prefetch_two_lines
from kclient.producer._sticky_partitioner_c cimport StickyPartitioner
from kclient.producer._delivery_c cimport BatchOutcome, Delivery
from kclient.record._record_c cimport encode_headers
from kclient.record._builder_c cimport BatchBuilder
from kclient.record._murmur_c cimport partition_of

cdef int64_t _LAST_TIMESTAMP
cdef Py_ssize_t _SCATTERED
cdef int64_t _OVERHEAD
cdef int64_t _HEADER_BOUND
cdef bytes _NO_HEADERS
cdef object _NOBODY
cdef object _get_running_loop
cdef Py_ssize_t _forks

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030C0000
    /* Reading the loop costs no system call any more, and next to nothing as a call of C. */
    static PyObject *kclient_running_loop = NULL;

    static PyObject *kclient_running_mark(void) {
        if (kclient_running_loop == NULL) {
            PyObject *module = PyImport_ImportModule("asyncio.events");
            if (module == NULL) return NULL;
            kclient_running_loop = PyObject_GetAttrString(module, "_get_running_loop");
            Py_DECREF(module);
            if (kclient_running_loop == NULL) return NULL;
        }
        if (PyCFunction_CheckExact(kclient_running_loop)
                && PyCFunction_GET_FLAGS(kclient_running_loop) == METH_NOARGS) {
            return PyCFunction_GET_FUNCTION(kclient_running_loop)(
                PyCFunction_GET_SELF(kclient_running_loop), NULL);
        }
        return PyObject_CallNoArgs(kclient_running_loop);
    }
    #else
    static PyObject *kclient_running_key = NULL;

    static PyObject *kclient_running_mark(void) {
        PyObject *state, *mark = NULL;
        if (kclient_running_key == NULL) {
            kclient_running_key = PyUnicode_InternFromString("__asyncio_running_event_loop__");
            if (kclient_running_key == NULL) return NULL;
        }
        state = PyThreadState_GetDict();
        if (state != NULL) {
            mark = PyDict_GetItemWithError(state, kclient_running_key);
            if (mark == NULL && PyErr_Occurred()) return NULL;
        }
        if (mark == NULL) mark = Py_None;
        Py_INCREF(mark);
        return mark;
    }
    #endif
    """
    # The loop that runs in this thread, or what asyncio up to 3.11 keeps of it; None without one.
    object running_mark "kclient_running_mark" ()

cdef extern from *:
    """
    #ifndef _WIN32
    #include <time.h>
    static int64_t kclient_wall_ms(void) {
        struct timespec now;
        if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    static double kclient_steady(void) {
        struct timespec now;
        if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return -1;
        return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    }
    #else
    static int64_t kclient_wall_ms(void) { return -1; }
    static double kclient_steady(void) { return -1; }
    #endif
    """
    # Negative where the system has no such clock.
    int64_t wall_ms "kclient_wall_ms" () noexcept
    double steady "kclient_steady" () noexcept


@cython.locals(now=int64_t)
cdef inline int64_t real_ms() except? -1:
    now = wall_ms()
    return now if now >= 0 else <int64_t>(_seconds() * 1000.0)


cdef class MemoryBudget:
    cdef public int64_t used
    cdef public int64_t limit
    cdef public Py_ssize_t waiting
    cdef public Py_ssize_t sealed
    cdef public Py_ssize_t per_turn

    cpdef void take(self, ProducerBatch batch, int64_t size) noexcept
    cpdef void give_back(self, ProducerBatch batch) noexcept


cdef class TopicState:
    cdef public Py_ssize_t count
    cdef public list batches
    cdef public StickyPartitioner sticky
    # By partition: address of the last builder that took a record. Only to prefetch from: other
    # data may be there by now.
    cdef bytearray builder_addresses


cdef class YieldTimer:
    cdef MemoryBudget _budget
    cdef object _effort
    cdef double _length
    cdef Py_ssize_t _sealed
    cdef double _until
    cdef bint _real

    @cython.locals(budget=MemoryBudget, sealed=Py_ssize_t)
    cpdef bint due(self) except -1

    @cython.locals(now=double)
    cdef double _now(self) except? -1


cdef class RecordAppender:
    cdef public dict topics
    cdef MemoryBudget _budget
    cdef object _home
    cdef object _mark
    cdef Py_ssize_t _forks
    cdef object _wall_ns
    cdef bint _real
    cdef int64_t _max_record

    @cython.locals(topic_state=TopicState, batch=ProducerBatch, when=int64_t, index=Py_ssize_t,
                   outcome=BatchOutcome, delivery=Delivery, size=int64_t, encoded=bytes,
                   part=bytes, now=int64_t)
    cpdef object take(
        self, object topic, object value, object key, object headers, object partition,
        object timestamp)

    @cython.locals(topic_state=TopicState, batch=ProducerBatch, when=int64_t, index=Py_ssize_t,
                   taken=Py_ssize_t, most=Py_ssize_t, at=Py_ssize_t, block=list, size=int64_t,
                   part=bytes)
    cpdef object take_many(self, object topic, RecordSource feed, YieldTimer turn, object watcher)

    @cython.locals(budget=MemoryBudget, index=Py_ssize_t, batch=ProducerBatch, size=int64_t,
                   count=Py_ssize_t)
    cdef Py_ssize_t _take_bare(
        self, TopicState topic_state, RecordSource feed, int64_t when, object watcher) except -1

    @cython.locals(now=int64_t)
    cdef int64_t _now_ms(self) except? -1

    cdef bint _is_here(self) except -1

    @cython.locals(encoded=bytes)
    cdef bytes _encoded(self, object headers, int64_t size)

    @cython.locals(budget=MemoryBudget, index=Py_ssize_t, batch=ProducerBatch, sticky=StickyPartitioner,
                   scattered=bint)
    cdef ProducerBatch _choose(
        self, TopicState topic_state, bytes key, object partition, int64_t size, RecordSource feed)


cdef class SendMethods:
    cdef public RecordAppender _appender
    cdef public object _check
    cdef public object _put


cdef bint _is_plain(object part) noexcept

@cython.locals(pair=tuple)
cdef bint _are_plain(object headers) except -1


# Prefetches the memory that the record after this one, of ``size`` bytes, will be written to in
# this partition. Notes the builder's address.
cdef inline int prefetch_tail(TopicState topic_state, Py_ssize_t index, ProducerBatch batch, int64_t size) except -1:
    cdef BatchBuilder builder = batch.builder
    cdef unsigned char* tail = builder._memory + builder._used + size
    prefetch_two_lines(tail)
    fetch(tail + 128)
    fetch(<void*>batch.outcome)
    if topic_state.builder_addresses is None or len(topic_state.builder_addresses) != <Py_ssize_t>sizeof(void*) * topic_state.count:
        topic_state.builder_addresses = bytearray(sizeof(void*) * topic_state.count)
    (<void**>PyByteArray_AS_STRING(topic_state.builder_addresses))[index] = <void*>builder
    return 0


cdef inline int prefetch_open_batch(TopicState topic_state, Py_ssize_t index) except -1:
    return prefetch_batch(topic_state.batches, topic_state.builder_addresses, index)


# Has ``feed`` choose the partitions of its next block's keys in advance, if that pays off.
cdef inline int aim(RecordSource feed, TopicState topic_state) except -1:
    cdef bint brings = _SCATTERED <= topic_state.count <= len(topic_state.batches) and len(feed.block) <= 8
    feed.spread = topic_state.count if brings else -1
    feed.batches = topic_state.batches
    feed.builder_addresses = topic_state.builder_addresses
    return 0


# The partition of the record that was returned last, if it was chosen in advance; else -1.
cdef inline Py_ssize_t target_of(RecordSource feed, TopicState topic_state) except -2:
    if feed is None or feed.spread != topic_state.count:
        return -1
    return feed.targets[feed.at - 1]
