/* What the parts of this module share: outlines, as they lie in memory, and what is asked of objects.
 *
 * Only the stable interface of Python 3.11 and later is used: one build serves them all.
 */

#ifndef HOLDFAST_PLAIN_H
#define HOLDFAST_PLAIN_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* What the module keeps: names, what ``type`` itself has to tell of classes, how Python looks things up, and where
 * its sets keep weak references. */
typedef struct {
    PyTypeObject *outline_type;
    PyObject *name_dict, *name_getattribute;
    PyObject *tells_dict, *tells_mro, *tells_weakrefoffset;
    PyObject *usual_way;
    getattrofunc ask_class;
    descrgetfunc read_slot;
    Py_ssize_t weak_offset_of_sets;
} State;

/* A word is the address of an object, which is even, or a mark, which is odd: a kind of container in the lowest
 * three bits, and its length. Behind the mark of a list or a dict stands what is in it; behind that of a set, a
 * frozenset of its texts, and these in its order; behind that of an object its class, the names of its attributes,
 * and those. */
typedef uintptr_t Word;
enum { LIST = 1, DICT = 3, SET = 5, OBJECT = 7 };
#define KIND_BITS 3

static inline Word
mark_of(int kind, Py_ssize_t length)
{
    return (Word)length << KIND_BITS | (Word)kind;
}

static inline int
is_mark(Word word)
{
    return word & 1;
}

static inline int
kind_of(Word mark)
{
    return mark & ((1 << KIND_BITS) - 1);
}

static inline Py_ssize_t
length_of(Word mark)
{
    return (Py_ssize_t)(mark >> KIND_BITS);
}

/* It owns the objects among its words. */
typedef struct {
    PyObject_HEAD
    Word *words;
    Py_ssize_t count;
    Py_ssize_t room;
} Outline;

static inline int
is_scalar(PyTypeObject *type)
{
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type
        || type == &PyBool_Type || type == Py_TYPE(Py_None);
}

/* Return an attribute, or all of them. Names are those of attributes, which Python keeps once each. */
static inline PyObject *
attribute(const State *state, PyObject *value, PyObject *name)
{
    return name == state->name_dict ? PyObject_GenericGetDict(value, NULL) : PyObject_GetAttr(value, name);
}

/* Return what ``type`` tells of a class, whatever the metaclass has by that name. */
static inline PyObject *
told_of(PyObject *type, PyObject *tells)
{
    descrgetfunc tell = (descrgetfunc)PyType_GetSlot(Py_TYPE(tells), Py_tp_descr_get);
    return tell(tells, type, (PyObject *)Py_TYPE(type));
}

/* Find out where objects of a class keep weak references, 0 if nowhere. Answer 0, or -1 with an exception set. */
static inline int
find_weak_offset(const State *state, PyObject *type, Py_ssize_t *offset)
{
    PyObject *number = told_of(type, state->tells_weakrefoffset);
    *offset = number == NULL ? -1 : PyLong_AsSsize_t(number);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

extern PyType_Spec outline_spec;

PyObject *plain_outline(PyObject *module, PyObject *arguments);
PyObject *plain_fits(PyObject *module, PyObject *arguments);
PyObject *plain_built(PyObject *module, PyObject *arguments);

#endif
