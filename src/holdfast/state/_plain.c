/* The functions of plain.py, which says what they do.
 *
 * Most values are the very objects that they were. Those are not looked into, not even for their types: to
 * fetch them from memory takes longer than all else.
 *
 * Code of others can only run where an attribute of an object is asked for, and where a spare that
 * is of no use goes. A container is owned while it is walked, and what
 * stands in it is asked for anew at each step, so that such code may even change it.
 *
 * Only the stable interface of Python 3.11 and later is used: one build serves them all.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

/* The mark of tagged values and the greatest depth: MARK and MAX_DEPTH in tags.py. */
#define MARK "$t"
#define MAX_DEPTH 200

/* What stands in an outline before a container, and before its length, its class and attributes, or its texts. */
#define DICT ((PyObject *)&PyDict_Type)
#define LIST ((PyObject *)&PyList_Type)
#define SET ((PyObject *)&PySet_Type)
#define OBJECT ((PyObject *)&PyBaseObject_Type)

static int
is_scalar(PyTypeObject *type)
{
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type
        || type == &PyBool_Type || type == Py_TYPE(Py_None);
}

/* is_plain ------------------------------------------------------------------------------------ */

/* How much deeper and larger a value may be. */
typedef struct {
    Py_ssize_t room;
    Py_ssize_t size;
} Bounds;

static int
is_plain_text(PyObject *text, Bounds *left)
{
    Py_ssize_t length = PyUnicode_GetLength(text);
    if ((left->size -= length) < 0)
        return 0;
    Py_ssize_t found = PyUnicode_FindChar(text, 0, 0, length, 1);
    return found == -2 ? -1 : found == -1;
}

/* Answer 1 or 0, or -1 with an exception set, as all functions here do. */
static int
is_plain(PyObject *value, Bounds *left)
{
    PyTypeObject *type = Py_TYPE(value);
    if (--left->size < 0)
        return 0;
    if (type == &PyUnicode_Type)
        return is_plain_text(value, left);
    if (type == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        return number - number == 0.0;
    }
    if (type == &PyList_Type) {
        int plain = left->room-- > 0;
        for (Py_ssize_t at = 0, end = PyList_Size(value); at < end && plain == 1; at++)
            plain = is_plain(PyList_GetItem(value, at), left);
        left->room++;
        return plain;
    }
    if (type == &PyDict_Type) {
        PyObject *key, *item;
        Py_ssize_t position = 0;
        int plain = left->room-- > 0;
        while (plain == 1 && PyDict_Next(value, &position, &key, &item)) {
            plain = Py_TYPE(key) == &PyUnicode_Type
                && PyUnicode_CompareWithASCIIString(key, MARK) != 0;
            if (plain == 1)
                plain = is_plain_text(key, left);
            if (plain == 1)
                plain = is_plain(item, left);
        }
        left->room++;
        return plain;
    }
    return is_scalar(type);
}

static PyObject *
plain_is_plain(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *value;
    Bounds left = {MAX_DEPTH, PY_SSIZE_T_MAX};
    if (!PyArg_ParseTuple(arguments, "O|nn:is_plain", &value, &left.room, &left.size))
        return NULL;
    int plain = is_plain(value, &left);
    return plain < 0 ? NULL : PyBool_FromLong(plain);
}

/* outline ------------------------------------------------------------------------------------- */

static int add_value(PyObject *found, PyObject *value, PyObject *attributes);

static int
add_kind(PyObject *found, PyTypeObject *kind, Py_ssize_t length)
{
    PyObject *number = PyLong_FromSsize_t(length);
    if (number == NULL)
        return -1;
    int failed = PyList_Append(found, (PyObject *)kind) || PyList_Append(found, number);
    Py_DECREF(number);
    return failed ? -1 : 1;
}

static int
add_list(PyObject *found, PyObject *value, PyObject *attributes)
{
    Py_ssize_t length = PyList_Size(value);
    int added = add_kind(found, &PyList_Type, length);
    for (Py_ssize_t at = 0; at < length && added == 1; at++)
        added = add_value(found, PyList_GetItem(value, at), attributes);
    return added;
}

static int
add_dict(PyObject *found, PyObject *value, PyObject *attributes)
{
    PyObject *key, *item;
    Py_ssize_t position = 0;
    int added = add_kind(found, &PyDict_Type, PyDict_Size(value));
    while (added == 1 && PyDict_Next(value, &position, &key, &item)) {
        if (Py_TYPE(key) != &PyUnicode_Type) {
            PyErr_SetString(PyExc_TypeError, "a key is no text");
            return -1;
        }
        added = PyList_Append(found, key) ? -1 : add_value(found, item, attributes);
    }
    return added;
}

/* The name of all attributes together. Names are those of attributes, which Python keeps once each. */
static PyObject *all_attributes;

static int
is_all(PyObject *name)
{
    return name == all_attributes;
}

static PyObject *
attribute(PyObject *value, PyObject *name)
{
    if (is_all(name))
        return PyObject_GenericGetDict(value, NULL);
    return PyObject_GetAttr(value, name);
}

/* Return the attributes that an object consists of, borrowed. */
static PyObject *
names_of(PyObject *value, PyObject *attributes)
{
    PyObject *kind = (PyObject *)Py_TYPE(value);
    PyObject *names = PyDict_GetItemWithError(attributes, kind);
    if (names == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "an object of %R", kind);
    return names;
}

static int
add_object(PyObject *found, PyObject *value, PyObject *attributes)
{
    PyObject *kind = (PyObject *)Py_TYPE(value), *names = names_of(value, attributes);
    if (names == NULL)
        return -1;
    int failed = PyList_Append(found, OBJECT) || PyList_Append(found, kind) || PyList_Append(found, names);
    int added = failed ? -1 : 1;
    for (Py_ssize_t at = 0, end = PyTuple_Size(names); at < end && added == 1; at++) {
        PyObject *part = attribute(value, PyTuple_GetItem(names, at));
        added = add_value(found, part, attributes);
        Py_XDECREF(part);
    }
    return added;
}

/* Tell whether a set has texts only. */
static int
has_texts(PyObject *set)
{
    PyObject *items = PyObject_GetIter(set), *item;
    int texts = items == NULL ? -1 : 1;
    while (texts == 1 && (item = PyIter_Next(items)) != NULL) {
        texts = Py_TYPE(item) == &PyUnicode_Type;
        Py_DECREF(item);
    }
    Py_XDECREF(items);
    return PyErr_Occurred() ? -1 : texts;
}

static int
add_set(PyObject *found, PyObject *value)
{
    int texts = has_texts(value);
    if (texts == 0)
        PyErr_SetString(PyExc_TypeError, "a set of more than texts");
    PyObject *frozen = texts == 1 ? PyFrozenSet_New(value) : NULL;
    if (frozen == NULL)
        return -1;
    int failed = PyList_Append(found, SET) || PyList_Append(found, frozen);
    Py_DECREF(frozen);
    return failed ? -1 : 1;
}

static int
add_value(PyObject *found, PyObject *value, PyObject *attributes)
{
    if (value == NULL)
        return -1;
    PyTypeObject *type = Py_TYPE(value);
    if (is_scalar(type))
        return PyList_Append(found, value) ? -1 : 1;
    if (Py_EnterRecursiveCall(" while a list was outlined"))
        return -1;
    Py_INCREF(value);
    int added = type == &PyDict_Type ? add_dict(found, value, attributes)
        : type == &PyList_Type ? add_list(found, value, attributes)
        : type == &PySet_Type ? add_set(found, value)
        : add_object(found, value, attributes);
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
    return added;
}

static PyObject *
plain_outline(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *values, *attributes;
    if (!PyArg_ParseTuple(arguments, "O!O!:outline", &PyList_Type, &values, &PyDict_Type, &attributes))
        return NULL;
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    for (Py_ssize_t at = 0; at < PyList_Size(values); at++)
        if (add_value(found, PyList_GetItem(values, at), attributes) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    return found;
}

/* fits ---------------------------------------------------------------------------------------- */

/* A class that was met: where its objects keep weak references, 0 if nowhere, and whether their attributes are
 * looked up as usual, unless there is none. */
typedef struct {
    PyTypeObject *type;
    Py_ssize_t weak_offset;
    int is_usual;
} Kind;

/* How far an outline has been read, and whether what it is compared with must be nobody else's. */
#define KINDS 4
typedef struct {
    PyObject *marks;
    Py_ssize_t at;
    int unshared;
    Kind kinds[KINDS];
} Reading;

static PyObject *
next_mark(Reading *known)
{
    return PyList_GetItem(known->marks, known->at++);
}

/* Tell whether a scalar is that of a mark; the two are not the same object. */
static int
is_equal(PyObject *mark, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (Py_TYPE(mark) != type)
        return 0;
    if (type == &PyUnicode_Type || type == &PyLong_Type)
        return PyObject_RichCompareBool(mark, value, Py_EQ);
    if (type == &PyFloat_Type) {
        /* By their bits: what equality does not see is the sign of zero. */
        double before = PyFloat_AsDouble(mark), now = PyFloat_AsDouble(value);
        return memcmp(&before, &now, sizeof now) == 0;
    }
    return 0;
}

/* Tell whether a value is that of the next marks. Its ``owners`` are those here who know of it. */
static int is_that(Reading *known, PyObject *value, Py_ssize_t owners);

/* Tell whether a container is as long as its mark says. */
static int
is_length(Reading *known, Py_ssize_t length)
{
    PyObject *mark = next_mark(known);
    return mark == NULL ? -1 : PyLong_AsSsize_t(mark) == length;
}

static int
is_that_list(Reading *known, PyObject *value)
{
    Py_ssize_t length = PyList_Size(value);
    int same = is_length(known, length);
    for (Py_ssize_t at = 0; at < length && same == 1; at++)
        same = is_that(known, PyList_GetItem(value, at), 1);
    return same;
}

static int
is_that_dict(Reading *known, PyObject *value)
{
    PyObject *key, *item;
    Py_ssize_t position = 0, left = PyDict_Size(value);
    int same = is_length(known, left);
    /* Counted down, so that one that has grown meanwhile reads no mark that is not its own. */
    while (same == 1 && left-- > 0 && PyDict_Next(value, &position, &key, &item)) {
        PyObject *mark = next_mark(known);
        same = mark == key ? 1 : mark == NULL ? -1 : is_equal(mark, key);
        if (same == 1)
            same = is_that(known, item, 1);
    }
    return same;
}

static int
look_at(Kind *kind, PyTypeObject *type)
{
    PyObject *offset = PyObject_GetAttrString((PyObject *)type, "__weakrefoffset__");
    PyObject *way = PyObject_GetAttrString((PyObject *)type, "__getattribute__");
    PyObject *usual = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__getattribute__");
    kind->weak_offset = offset == NULL ? -1 : PyLong_AsSsize_t(offset);
    kind->is_usual = way == usual;
    kind->type = PyErr_Occurred() ? NULL : type;
    Py_XDECREF(offset);
    Py_XDECREF(way);
    Py_XDECREF(usual);
    return kind->type == NULL ? -1 : 0;
}

/* Return what is known of the class of an object, NULL with an exception set. */
static Kind *
kind_of(Reading *known, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    int at = 0;
    while (at < KINDS - 1 && known->kinds[at].type != NULL && known->kinds[at].type != type)
        at++;
    Kind *kind = &known->kinds[at];
    return kind->type != type && look_at(kind, type) ? NULL : kind;
}

/* Tell whether somebody could get at an object or a set by a weak reference. */
static int
is_weakly_held(Kind *kind, PyObject *value)
{
    Py_ssize_t offset = kind->weak_offset;
    return offset != 0 && *(PyObject **)((char *)value + offset) != NULL;
}

/* Return an attribute as `attribute` does, past the ways of a class for those that are not there. */
static PyObject *
usual_attribute(PyObject *value, PyObject *name)
{
    if (is_all(name))
        return attribute(value, name);
    PyObject *found = PyObject_GenericGetAttr(value, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return PyObject_GetAttr(value, name);
    }
    return found;
}

/* Tell whether somebody may have given an object more than its names say. */
static int
may_have_more(PyObject *names)
{
    return PyTuple_Size(names) == 0 || !is_all(PyTuple_GetItem(names, 0));
}

static int
is_that_set(Reading *known, PyObject *value)
{
    PyObject *frozen = next_mark(known);
    Kind *kind = kind_of(known, value);
    if (frozen == NULL || kind == NULL)
        return -1;
    if (PySet_Size(value) != PySet_Size(frozen) || (known->unshared && is_weakly_held(kind, value)))
        return 0;
    PyObject *items = PyObject_GetIter(value), *item;
    int same = items == NULL ? -1 : 1;
    while (same == 1 && (item = PyIter_Next(items)) != NULL) {
        same = Py_TYPE(item) == &PyUnicode_Type ? PySet_Contains(frozen, item) : 0;
        Py_DECREF(item);
    }
    Py_XDECREF(items);
    return PyErr_Occurred() ? -1 : same;
}

static int
is_that_object(Reading *known, PyObject *value)
{
    PyObject *names = next_mark(known);
    Kind *kind = kind_of(known, value);
    if (names == NULL || kind == NULL)
        return -1;
    int same = !known->unshared || !(is_weakly_held(kind, value) || may_have_more(names));
    /* Taken here: objects inside may need the room of this kind. */
    PyObject *(*part_of)(PyObject *, PyObject *) = kind->is_usual ? usual_attribute : attribute;
    for (Py_ssize_t at = 0, end = PyTuple_Size(names); same == 1 && at < end; at++) {
        PyObject *part = part_of(value, PyTuple_GetItem(names, at));
        same = is_that(known, part, 2);
        Py_XDECREF(part);
    }
    return same;
}

static int
is_that_container(Reading *known, PyObject *mark, PyObject *value)
{
    PyObject *kind = mark == OBJECT ? next_mark(known) : mark;
    if (kind != (PyObject *)Py_TYPE(value))
        return kind == NULL ? -1 : 0;
    /* Most containers in messages are empty. */
    if ((mark == DICT && PyDict_Size(value) == 0) || (mark == LIST && PyList_Size(value) == 0))
        return is_length(known, 0);
    if (Py_EnterRecursiveCall(" while a list was compared"))
        return -1;
    Py_INCREF(value);
    int same = mark == DICT ? is_that_dict(known, value)
        : mark == LIST ? is_that_list(known, value)
        : mark == SET ? is_that_set(known, value)
        : is_that_object(known, value);
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
    return same;
}

static int
is_that(Reading *known, PyObject *value, Py_ssize_t owners)
{
    PyObject *mark = next_mark(known);
    if (mark == NULL || value == NULL)
        return -1;
    if (mark == DICT || mark == LIST || mark == SET || mark == OBJECT)
        return known->unshared && Py_REFCNT(value) != owners ? 0
            : is_that_container(known, mark, value);
    return mark == value ? 1 : is_equal(mark, value);
}

static PyObject *
plain_fits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Reading known = {0};
    PyObject *values;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(arguments, "O!O!n:fits", &PyList_Type, &known.marks, &PyList_Type, &values, &at))
        return NULL;
    int same = 1;
    for (; same == 1 && known.at < PyList_Size(known.marks); at++)
        same = at < PyList_Size(values) ? is_that(&known, PyList_GetItem(values, at), 1) : 0;
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* built --------------------------------------------------------------------------------------- */

/* Return the value of the next marks, made anew. */
static PyObject *build(Reading *known);

static Py_ssize_t
next_length(Reading *known)
{
    PyObject *mark = next_mark(known);
    return mark == NULL ? -1 : PyLong_AsSsize_t(mark);
}

static PyObject *
build_list(Reading *known)
{
    Py_ssize_t left = next_length(known);
    PyObject *made = left < 0 ? NULL : PyList_New(0);
    while (made != NULL && left-- > 0) {
        PyObject *item = build(known);
        if (item == NULL || PyList_Append(made, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

static PyObject *
build_dict(Reading *known)
{
    Py_ssize_t left = next_length(known);
    PyObject *made = left < 0 ? NULL : PyDict_New();
    while (made != NULL && left-- > 0) {
        PyObject *key = next_mark(known), *item = key == NULL ? NULL : build(known);
        if (item == NULL || PyDict_SetItem(made, key, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

/* Return what object.__new__ does, which looks whether that is enough for the class. */
static PyObject *
blank_of(PyTypeObject *kind)
{
    newfunc usual = (newfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_new);
    if ((newfunc)PyType_GetSlot(kind, Py_tp_new) != usual)
        return PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__new__", "O", kind);
    PyObject *nothing = PyTuple_New(0);
    PyObject *made = nothing == NULL ? NULL : usual(kind, nothing, NULL);
    Py_XDECREF(nothing);
    return made;
}

static PyObject *
build_object(Reading *known)
{
    PyObject *kind = next_mark(known), *names = kind == NULL ? NULL : next_mark(known);
    PyObject *made = names == NULL ? NULL : blank_of((PyTypeObject *)kind);
    for (Py_ssize_t at = 0; made != NULL && at < PyTuple_Size(names); at++) {
        PyObject *part = build(known);
        if (part == NULL || PyObject_GenericSetAttr(made, PyTuple_GetItem(names, at), part))
            Py_CLEAR(made);
        Py_XDECREF(part);
    }
    return made;
}

static PyObject *
build(Reading *known)
{
    PyObject *mark = next_mark(known), *made;
    if (mark == NULL)
        return NULL;
    if (Py_EnterRecursiveCall(" while a value was built"))
        return NULL;
    if (mark == DICT)
        made = build_dict(known);
    else if (mark == LIST)
        made = build_list(known);
    else if (mark == OBJECT)
        made = build_object(known);
    else if (mark == SET)
        made = (mark = next_mark(known)) == NULL ? NULL : PySet_New(mark);
    else
        Py_INCREF(made = mark);
    Py_LeaveRecursiveCall();
    return made;
}

/* Take out of a list what stands at a place, so that nobody else can; NULL where nothing does. */
static PyObject *
taken(PyObject *list, Py_ssize_t at)
{
    if (at >= PyList_Size(list))
        return NULL;
    PyObject *item = PyList_GetItem(list, at);
    Py_INCREF(item);
    Py_INCREF(Py_None);
    PyList_SetItem(list, at, Py_None);
    return item;
}

/* Leave an item at a place of a list, or behind its end. */
static int
leave(PyObject *list, Py_ssize_t at, PyObject *item)
{
    if (at >= PyList_Size(list))
        return PyList_Append(list, item);
    Py_INCREF(item);
    return PyList_SetItem(list, at, item);
}

/* Return the value of the next marks: the spare at a place, if it still is that and nobody has any part of it. */
static PyObject *
build_or_recycle(Reading *known, PyObject *spares, Py_ssize_t at)
{
    Py_ssize_t begin = known->at;
    PyObject *item = taken(spares, at);
    if (item == NULL || is_that(known, item, 1) != 1) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
            /* An interrupt is none of its faults. */
            Py_XDECREF(item);
            return NULL;
        }
        PyErr_Clear();
        Py_XDECREF(item);
        known->at = begin;
        item = build(known);
    }
    if (item != NULL && leave(spares, at, item))
        Py_CLEAR(item);
    return item;
}

static PyObject *
plain_built(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Reading known = {.unshared = 1};
    PyObject *spares;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(arguments, "O!O!n:built", &PyList_Type, &known.marks, &PyList_Type, &spares, &at))
        return NULL;
    PyObject *made = PyList_New(0);
    for (; made != NULL && known.at < PyList_Size(known.marks); at++) {
        PyObject *item = build_or_recycle(&known, spares, at);
        if (item == NULL || PyList_Append(made, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

/* The module ---------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"is_plain", plain_is_plain, METH_VARARGS, NULL},
    {"outline", plain_outline, METH_VARARGS, NULL},
    {"fits", plain_fits, METH_VARARGS, NULL},
    {"built", plain_built, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast.state._plain",
    .m_doc = "The functions of holdfast.state.plain in C.",
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__plain(void)
{
    all_attributes = PyUnicode_InternFromString("__dict__");
    return all_attributes == NULL ? NULL : PyModuleDef_Init(&definition);
}
