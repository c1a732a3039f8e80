# C types of delivery.py for the compiled build, and what only C can do; no rules.

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from kclient._awaiting cimport PYGEN_NEXT, PYGEN_RETURN, kclient_fill_steps
from libc.stdint cimport int64_t
import cython

cdef extern from *:
    """
    static PyObject *kclient_new_tuple(PyObject *kind, Py_ssize_t size) {
        return ((PyTypeObject *) kind)->tp_alloc((PyTypeObject *) kind, size);
    }
    """
    tuple kclient_new_tuple(object kind, Py_ssize_t size)


cdef extern from "Python.h":
    void PyObject_GC_Track(object)
    void PyObject_GC_UnTrack(object)
    bint PyObject_GC_IsTracked(object)


cdef inline object new_metadata(
        object kind, object topic, object partition, object offset, object timestamp):
    cdef tuple made = kclient_new_tuple(kind, 4)
    Py_INCREF(topic)
    PyTuple_SET_ITEM(made, 0, topic)
    Py_INCREF(partition)
    PyTuple_SET_ITEM(made, 1, partition)
    Py_INCREF(offset)
    PyTuple_SET_ITEM(made, 2, offset)
    Py_INCREF(timestamp)
    PyTuple_SET_ITEM(made, 3, timestamp)
    return made


cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef inline int run_in(object context, object fn, object source) except -1:
    """``context.run(fn, source)``."""
    PyContext_Enter(context)
    try:
        fn(source)
    finally:
        PyContext_Exit(context)
    return 0


cdef Py_ssize_t _NOTIFIED_AT_ONCE
cdef Py_ssize_t _CALLED_AT_ONCE
cdef object _copy_context
cdef object _METADATA
cdef int _NEW
cdef int _WAITS
cdef int _FIRED
cdef int _DROPPED

@cython.locals(first=Py_ssize_t)
cdef object _call_soon(object loop, list callbacks)

@cython.locals(delivery=Delivery, callbacks=list)
cdef object _call_them(object loop, list deliveries, Py_ssize_t count)

@cython.locals(delivery=Delivery, callbacks=list)
cpdef object _call_all(object loop, list deliveries)



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

    @cython.locals(delivery=Delivery, group=list, count=Py_ssize_t)
    cpdef object _notify(self, list waiting)

    cpdef object _error_of(self, Py_ssize_t index)


@cython.locals(waiter=Waiter)
cdef inline Waiter _wait_for(Delivery delivery)


cdef class Waiter:
    cdef public bint _asyncio_future_blocking
    cdef Delivery _delivery
    cdef int _state
    cdef object _fn
    cdef object _context
    cdef list _more
    cdef object _message

    @cython.locals(delivery=Delivery)
    cdef bint _begins(self) except -1

    cpdef bint done(self)

    cdef object _fire(self, list callbacks)

    cdef object _hand_over(self, list callbacks)


cdef class Delivery:
    cdef public BatchOutcome _outcome
    cdef public Py_ssize_t _index
    cdef int64_t _timestamp
    cdef public object _listeners

    @cython.locals(outcome=BatchOutcome)
    cpdef bint done(self)

    @cython.locals(outcome=BatchOutcome, base=int64_t, appended=int64_t, offset=int64_t,
                   timestamp=int64_t)
    cpdef object result(self)

    cpdef object exception(self)

    cdef void _untrack(self) noexcept

    cdef void _track(self) noexcept

    cdef BatchOutcome _resolved(self)

    cdef list _all_listeners(self)

    cdef Py_ssize_t _listener_count(self) except -1

    cdef object _listen(self, object listener)

    cdef object _forget(self, Waiter waiter)

    cdef object _fire(self, list callbacks)

    @cython.locals(waiter=Waiter)
    cdef object _fire_one(self, object listener, list callbacks)


cdef inline int take_step(Waiter waiter, PyObject* value, PyObject** result) except -1:
    """``am_send``: -1 for an error, 0 for a result, 1 where the task is suspended."""
    result[0] = NULL
    if waiter._begins():
        Py_INCREF(waiter)
        result[0] = <PyObject*> waiter
        return PYGEN_NEXT
    outcome = waiter._delivery.result()
    Py_INCREF(outcome)
    result[0] = <PyObject*> outcome
    return PYGEN_RETURN

cdef inline int install_await_steps() except -1:
    kclient_fill_steps(<PyTypeObject*> Waiter, <void*> take_step)
    return 0
