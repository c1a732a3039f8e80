# C types of doors.py for the compiled build: data only, no rules.

from kclient.producer._quick_c cimport QuickWay


cdef class Doors:
    cdef public QuickWay _quick
    cdef public object _check
    cdef public object _put
