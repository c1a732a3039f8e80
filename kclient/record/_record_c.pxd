# C types of record.py for the compiled build: data only, no rules. Functions that are declared here
# become C functions; names that are not declared here stay Python objects.

from libc.stdint cimport int64_t, uint64_t
from cpython.object cimport PyTypeObject
import cython

cdef int64_t _INT64_MAX
cdef Py_ssize_t _SHOWN_BYTES


cdef class Origin:
    cdef readonly object topic
    cdef readonly object partition
    cdef readonly object timestamp_type
    cdef readonly object leader_epoch


cdef class Record:
    cdef Origin _origin
    cdef int64_t _offset
    cdef int64_t _timestamp
    cdef bytes _key
    cdef bytes _value
    cdef bytes _headers


cdef extern from *:
    """
    #define kclient_place_of_key(record) ((char *)&(record)->_key - (char *)(record))
    #define kclient_place_of_value(record) ((char *)&(record)->_value - (char *)(record))
    """
    Py_ssize_t kclient_place_of_key(Record record)
    Py_ssize_t kclient_place_of_value(Record record)

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        const char* name
        int type
        Py_ssize_t offset
        int flags
        const char* doc
    int T_OBJECT_EX
    int READONLY

cdef extern from "Python.h":
    object PyDescr_NewMember(PyTypeObject* cls, PyMemberDef* member)
    void PyType_Modified(PyTypeObject* cls)

cdef PyMemberDef _key_member
cdef PyMemberDef _value_member

cdef inline int expose_members() except -1:
    """Make ``key`` and ``value`` members of the struct: the interpreter reads those itself."""
    cdef Record sample = Record.__new__(Record)
    cdef PyTypeObject* cls = <PyTypeObject*> Record
    _key_member.name = "key"
    _key_member.doc = "The key, or None."
    _key_member.offset = kclient_place_of_key(sample)
    _value_member.name = "value"
    _value_member.doc = "The value; None is a tombstone."
    _value_member.offset = kclient_place_of_value(sample)
    _key_member.type = _value_member.type = T_OBJECT_EX
    _key_member.flags = _value_member.flags = READONLY
    names = <dict> cls.tp_dict
    names["key"] = PyDescr_NewMember(cls, &_key_member)
    names["value"] = PyDescr_NewMember(cls, &_value_member)
    PyType_Modified(cls)
    return 0


cpdef object corrupt(Py_ssize_t position, object what)

@cython.locals(shift=int, value=uint64_t, start=Py_ssize_t, byte=uint64_t)
cdef (int64_t, Py_ssize_t) long_varint(
    const unsigned char* data, Py_ssize_t pos, Py_ssize_t end) except *

@cython.locals(shift=int, value=uint64_t, start=Py_ssize_t, byte=uint64_t)
cdef (int64_t, Py_ssize_t) long_varlong(
    const unsigned char* data, Py_ssize_t pos, Py_ssize_t end) except *

@cython.locals(count=int64_t, size=int64_t)
cdef int check_headers(const unsigned char* data, Py_ssize_t pos, Py_ssize_t end) except -1

@cython.locals(byte=int, size=int64_t, stop=Py_ssize_t, timestamp_delta=int64_t,
               offset_delta=int64_t, key_size=int64_t, key_pos=Py_ssize_t, value_size=int64_t,
               value_pos=Py_ssize_t)
cdef (int64_t, int64_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t) \
    parse_record(const unsigned char* data, Py_ssize_t pos, Py_ssize_t end) except *

cdef int64_t offset_of(
    int64_t base_offset, int64_t delta, int64_t last_delta, Py_ssize_t pos) except? -1

cdef int64_t timestamp_of(int64_t base_timestamp, int64_t delta, Py_ssize_t pos) except? -1

cdef int check_end(Py_ssize_t pos, Py_ssize_t left, Py_ssize_t end) except -1

cdef inline const unsigned char* start_of(const unsigned char[::1] data) noexcept:
    return &data[0] if data.shape[0] else NULL

@cython.locals(data_view="const unsigned char[::1]", data_cstr="const unsigned char*",
               end=Py_ssize_t, records=list, taken=Py_ssize_t,
               fixed_time=bint, fixed_timestamp=int64_t, time_delta=int64_t, delta=int64_t,
               key_pos=Py_ssize_t, key_size=Py_ssize_t, value_pos=Py_ssize_t,
               value_size=Py_ssize_t, headers_pos=Py_ssize_t, stop=Py_ssize_t, offset=int64_t,
               timestamp=int64_t, most_delta=int64_t, record=Record)
cpdef tuple decode_records(
    object data, Py_ssize_t pos, Py_ssize_t left, int64_t base_offset, int64_t last_delta,
    int64_t base_timestamp, object append_timestamp, Origin origin, int64_t start_offset,
    Py_ssize_t limit)

@cython.locals(data_cstr="const unsigned char*", end=Py_ssize_t, pos=Py_ssize_t, count=int64_t,
               size=int64_t, raw_name=bytes)
cpdef object decode_headers(bytes data)

@cython.locals(parts=list, raw_name=bytes)
cpdef bytes encode_headers(object headers)

cdef Py_ssize_t _TABLE_SIZE
cdef list _LENGTHS

cdef bytes _length(Py_ssize_t size)
