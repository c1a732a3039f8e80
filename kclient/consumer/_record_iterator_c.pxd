# C types of record_iterator.py for the compiled build, and the slots that Cython doesn't fill.

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.time cimport monotonic
from kclient._awaiting cimport PYGEN_RETURN, PyIter_Send, kclient_fill_steps
import cython


cdef class IteratorBuffer:
    cdef public object left
    cdef double turn_at


cdef class RecordIterator:
    cdef object _poller
    cdef IteratorBuffer _iterator_buffer
    cdef bint _converts
    cdef object _clock
    cdef bint _real
    cdef double _turn

    @cython.locals(now=double)
    cdef bint _is_due(self) except -1

    cdef object at_hand(self)


cdef class NextRecord:
    cdef RecordIterator _iterator
    cdef object _slow

    @cython.locals(iterator=RecordIterator, due=bint)
    cdef object begin(self)

cdef inline NextRecord step_of(RecordIterator iterator):
    """``NextRecord(iterator)``, which as a call of the class would cost twice as much."""
    cdef NextRecord step = NextRecord.__new__(NextRecord)
    step._iterator = iterator
    return step


cdef inline int send_to_step(NextRecord step, PyObject* value, PyObject** result) except -1:
    """``am_send``: -1 for an error, 0 for a result, 1 for something to wait for."""
    result[0] = NULL
    if step._slow is None:
        record = step.begin()
        if record is not None:
            Py_INCREF(record)
            result[0] = <PyObject*> record
            return PYGEN_RETURN
    return PyIter_Send(step._slow, value, result)

cdef inline int send_directly() except -1:
    kclient_fill_steps(<PyTypeObject*> NextRecord, <void*> send_to_step)
    return 0
