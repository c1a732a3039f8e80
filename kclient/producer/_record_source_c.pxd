# C types of record_source.py for the compiled build, and what only C can do.

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
import cython

from kclient.record._murmur_c cimport partition_of

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define kclient_fetch(at) __builtin_prefetch((at), 1, 3)
    #else
    #define kclient_fetch(at) ((void)(at))
    #endif
    #define kclient_fetch_two(it) (kclient_fetch(it), kclient_fetch((char *)(it) + 64))
    #define kclient_fetch_item(items, at) kclient_fetch_two(PyList_GET_ITEM((items), (at)))
    """
    void fetch "kclient_fetch" (const void* at) noexcept
    void prefetch_two_lines "kclient_fetch_two" (const void* at) noexcept
    void prefetch_item "kclient_fetch_item" (list items, Py_ssize_t at) noexcept


# Prefetches all memory that putting a record reads and changes at once, instead of waiting for each
# piece in turn. ``builder_addresses`` are those of a ``TopicState``.
cdef inline int prefetch_batch(list batches, bytearray builder_addresses, Py_ssize_t index) except -1:
    prefetch_item(batches, index)
    if builder_addresses is not None and len(builder_addresses) > <Py_ssize_t>sizeof(void*) * index:
        prefetch_two_lines((<void**>PyByteArray_AS_STRING(builder_addresses))[index])
    return 0


cdef class RecordSource:
    cdef object _records
    cdef public object error
    cdef Py_ssize_t _most_bytes
    cdef public list block
    cdef public Py_ssize_t count
    cdef public Py_ssize_t at
    cdef public Py_ssize_t bare
    cdef public Py_ssize_t bare_bytes
    # Partitions of the block's keys, chosen in advance among ``spread`` of them; -1: none are.
    cdef Py_ssize_t spread
    cdef Py_ssize_t[8] targets  # as many as BLOCK
    cdef list batches
    cdef bytearray builder_addresses

    cdef int _new_block(self) except -1

    cpdef object hold(self, object record)

    @cython.locals(block=list, count=Py_ssize_t, bare=Py_ssize_t, size=Py_ssize_t,
                   value_size=Py_ssize_t)
    cpdef Py_ssize_t pull(self, Py_ssize_t most) except -1

    @cython.locals(part=bytes, size=Py_ssize_t)
    cdef bint _is_plain(self, object record) except -1


# Chooses the partition of ``record``, the one at ``n`` in the block, as Java's producers do, and
# prefetches what putting it needs: it is in the cache once the rest of the block was pulled.
cdef inline int choose_ahead(RecordSource feed, Py_ssize_t n, object record) except -1:
    feed.targets[n] = -1
    if PyTuple_CheckExact(record) and PyTuple_GET_SIZE(record) == 2:
        key = (<tuple>record)[0]
        if PyBytes_CheckExact(key):
            feed.targets[n] = partition_of(
                <unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), feed.spread)
            prefetch_batch(feed.batches, feed.builder_addresses, feed.targets[n])
    return 0
