# How ``await`` gets the result of a C object's step without an exception being made for it.
#
# Up to 3.11 the interpreter calls ``am_send``, which returns a result. From 3.12 on it calls
# ``tp_iternext`` instead where nothing is sent in, and takes the result out of a StopIteration: one
# is kept here and used again for as long as nobody else holds it. It keeps the latest result alive
# until the next step.

from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030C0000
    static sendfunc kclient_step;
    static PyStopIterationObject *kclient_stop;

    static int kclient_is_free(PyStopIterationObject *stop) {
        return Py_REFCNT(stop) == 1 && stop->traceback == NULL && stop->context == NULL
            && stop->cause == NULL && stop->dict == NULL;
    }

    static void kclient_forget(void) {
        if (kclient_stop != NULL && kclient_is_free(kclient_stop)) {
            Py_CLEAR(kclient_stop->value);
        }
    }

    static PySendResult kclient_send(PyObject *self, PyObject *value, PyObject **result) {
        PySendResult how = kclient_step(self, value, result);
        if (how != PYGEN_RETURN) {
            kclient_forget();  /* what waits keeps no earlier result alive */
        }
        return how;
    }

    static PyObject *kclient_next(PyObject *self) {
        PyObject *result = NULL, *earlier, *replaced = NULL;
        if (kclient_send(self, Py_None, &result) != PYGEN_RETURN) {
            return result;
        }
        if (kclient_stop == NULL || !kclient_is_free(kclient_stop)) {
            PyObject *fresh = PyObject_CallNoArgs(PyExc_StopIteration);
            if (fresh == NULL) {
                Py_DECREF(result);
                return NULL;
            }
            replaced = (PyObject *) kclient_stop;
            kclient_stop = (PyStopIterationObject *) fresh;
        }
        earlier = kclient_stop->value;
        kclient_stop->value = result;
        PyErr_SetRaisedException(Py_NewRef((PyObject *) kclient_stop));
        /* Only now, as it isn't free any more: what goes may run code that takes a step, too. */
        Py_XDECREF(earlier);
        Py_XDECREF(replaced);
        return NULL;
    }

    static void kclient_fill_steps(PyTypeObject *cls, void *step) {
        kclient_step = (sendfunc) step;
        cls->tp_as_async->am_send = kclient_send;
        cls->tp_iternext = kclient_next;
        PyType_Modified(cls);
    }
    #else
    static void kclient_fill_steps(PyTypeObject *cls, void *step) {
        cls->tp_as_async->am_send = (sendfunc) step;
    }
    #endif
    """
    void kclient_fill_steps(PyTypeObject* cls, void* step)

cdef extern from "Python.h":
    int PYGEN_RETURN
    int PYGEN_NEXT
    int PyIter_Send(object iterator, PyObject* value, PyObject** result)
