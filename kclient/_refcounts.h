/* Included before each compiled module's own text, see setup.py.

   Python 3.12 and 3.13 count a reference by writing half of the counter, and drop one by reading
   all of it. Code that does both soon after each other, as a step per record does, waits some four
   nanoseconds each time until the half has reached memory. Here both take the whole counter. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000 && SIZEOF_VOID_P > 4 \
    && !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG)
static inline void kclient_incref(PyObject *op) {
    if (!_Py_IsImmortal(op)) {
        op->ob_refcnt++;
    }
}
#undef Py_INCREF
#define Py_INCREF(op) kclient_incref(_PyObject_CAST(op))
#endif
