/* The functions of plain.py, which says what they do.
 *
 * Most values are the very objects that they were. Those are not looked into, not even for their types: to
 * fetch them from memory takes longer than all else.
 *
 * Code of others can only run where an attribute of an object is asked for. A container is owned while it is
 * walked, and what stands in it is asked for anew at each step, so that such code may even change it.
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

/* What stands in an outline before a container, and before its length or its class and attributes. */
#define DICT ((PyObject *)&PyDict_Type)
#define LIST ((PyObject *)&PyList_Type)
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

/* Whether the name is that of all attributes together. */
static int
is_all(PyObject *name)
{
    return PyUnicode_GetLength(name) == 8 && PyUnicode_CompareWithASCIIString(name, "__dict__") == 0;
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

/* How far an outline has been read. */
typedef struct {
    PyObject *marks;
    Py_ssize_t at;
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

static int is_that(Reading *known, PyObject *value);

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
        same = is_that(known, PyList_GetItem(value, at));
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
            same = is_that(known, item);
    }
    return same;
}

static int
is_that_object(Reading *known, PyObject *value)
{
    PyObject *names = next_mark(known);
    int same = names == NULL ? -1 : 1;
    for (Py_ssize_t at = 0; same == 1 && at < PyTuple_Size(names); at++) {
        PyObject *part = attribute(value, PyTuple_GetItem(names, at));
        same = is_that(known, part);
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
    if (Py_EnterRecursiveCall(" while a list was compared"))
        return -1;
    Py_INCREF(value);
    int same = mark == DICT ? is_that_dict(known, value)
        : mark == LIST ? is_that_list(known, value)
        : is_that_object(known, value);
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
    return same;
}

static int
is_that(Reading *known, PyObject *value)
{
    PyObject *mark = next_mark(known);
    if (mark == NULL || value == NULL)
        return -1;
    if (mark == DICT || mark == LIST || mark == OBJECT)
        return is_that_container(known, mark, value);
    return mark == value ? 1 : is_equal(mark, value);
}

static PyObject *
plain_fits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Reading known = {NULL, 0};
    PyObject *values;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(arguments, "O!O!n:fits", &PyList_Type, &known.marks, &PyList_Type, &values, &at))
        return NULL;
    int same = 1;
    for (; same == 1 && known.at < PyList_Size(known.marks); at++)
        same = at < PyList_Size(values) ? is_that(&known, PyList_GetItem(values, at)) : 0;
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* copied -------------------------------------------------------------------------------------- */

static PyObject *copy_of(PyObject *value, PyObject *attributes);

static PyObject *
copy_of_list(PyObject *value, PyObject *attributes)
{
    PyObject *made = PyList_New(0);
    for (Py_ssize_t at = 0; made != NULL && at < PyList_Size(value); at++) {
        PyObject *item = copy_of(PyList_GetItem(value, at), attributes);
        if (item == NULL || PyList_Append(made, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

static PyObject *
copy_of_dict(PyObject *value, PyObject *attributes)
{
    PyObject *made = PyDict_Copy(value), *key, *item;
    Py_ssize_t position = 0;
    /* Only what is no scalar is put in again. That takes the place of a value, and moves none. */
    while (made != NULL && PyDict_Next(value, &position, &key, &item)) {
        if (Py_TYPE(key) != &PyUnicode_Type) {
            PyErr_SetString(PyExc_TypeError, "a key is no text");
            Py_CLEAR(made);
        }
        else if (!is_scalar(Py_TYPE(item))) {
            Py_INCREF(key);
            PyObject *copy = copy_of(item, attributes);
            if (copy == NULL || PyDict_SetItem(made, key, copy))
                Py_CLEAR(made);
            Py_XDECREF(copy);
            Py_DECREF(key);
        }
    }
    return made;
}

static PyObject *
copy_of_set(PyObject *value)
{
    PyObject *items = PyObject_GetIter(value), *item;
    int scalars = 1;
    while (items != NULL && (item = PyIter_Next(items)) != NULL) {
        scalars &= is_scalar(Py_TYPE(item));
        Py_DECREF(item);
    }
    Py_XDECREF(items);
    if (PyErr_Occurred())
        return NULL;
    if (!scalars) {
        PyErr_SetString(PyExc_TypeError, "a set of more than scalars");
        return NULL;
    }
    return PySet_New(value);
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
copy_of_object(PyObject *value, PyObject *attributes)
{
    PyObject *names = names_of(value, attributes);
    if (names == NULL)
        return NULL;
    PyObject *made = blank_of(Py_TYPE(value));
    for (Py_ssize_t at = 0; made != NULL && at < PyTuple_Size(names); at++) {
        PyObject *name = PyTuple_GetItem(names, at);
        PyObject *part = attribute(value, name);
        PyObject *copy = part == NULL ? NULL : copy_of(part, attributes);
        if (copy == NULL || PyObject_GenericSetAttr(made, name, copy))
            Py_CLEAR(made);
        Py_XDECREF(copy);
        Py_XDECREF(part);
    }
    return made;
}

static PyObject *
copy_of(PyObject *value, PyObject *attributes)
{
    PyTypeObject *type = Py_TYPE(value);
    if (is_scalar(type)) {
        Py_INCREF(value);
        return value;
    }
    if (Py_EnterRecursiveCall(" while a value was copied"))
        return NULL;
    Py_INCREF(value);
    PyObject *made = type == &PyDict_Type ? copy_of_dict(value, attributes)
        : type == &PyList_Type ? copy_of_list(value, attributes)
        : type == &PySet_Type ? copy_of_set(value)
        : copy_of_object(value, attributes);
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
    return made;
}

/* Recycling: what was handed out and came back -------------------------------------------------- */

/* The attribute of pydantic's models that names the fields which were given. */
#define GIVEN "__pydantic_fields_set__"
#define KINDS 8

/* The classes that one call has met, and where their objects keep weak references. */
typedef struct {
    PyObject *attributes;
    PyTypeObject *kinds[KINDS];
    Py_ssize_t offsets[KINDS];
    int met;
} Recycling;

static int is_untouched(Recycling *call, PyObject *spare, Py_ssize_t owners, PyObject *value);

static int
is_untouched_list(Recycling *call, PyObject *spare, PyObject *value)
{
    Py_ssize_t length = PyList_Size(value);
    int same = PyList_Size(spare) == length;
    for (Py_ssize_t at = 0; at < length && same == 1; at++)
        same = is_untouched(call, PyList_GetItem(spare, at), 1, PyList_GetItem(value, at));
    return same;
}

static int
is_untouched_dict(Recycling *call, PyObject *spare, PyObject *value)
{
    PyObject *key, *item, *spare_key, *spare_item;
    Py_ssize_t position = 0, spare_position = 0;
    int same = PyDict_Size(spare) == PyDict_Size(value);
    while (same == 1 && PyDict_Next(value, &position, &key, &item)) {
        same = PyDict_Next(spare, &spare_position, &spare_key, &spare_item) && spare_key == key;
        if (same == 1)
            same = is_untouched(call, spare_item, 1, item);
    }
    return same;
}

static Py_ssize_t
weak_offset(Recycling *call, PyTypeObject *kind)
{
    for (int at = 0; at < call->met; at++)
        if (call->kinds[at] == kind)
            return call->offsets[at];
    PyObject *number = PyObject_GetAttrString((PyObject *)kind, "__weakrefoffset__");
    Py_ssize_t offset = number == NULL ? -1 : PyLong_AsSsize_t(number);
    Py_XDECREF(number);
    if (call->met < KINDS && !PyErr_Occurred()) {
        call->kinds[call->met] = kind;
        call->offsets[call->met++] = offset;
    }
    return offset;
}

/* Tell whether somebody could get at an object by a weak reference. */
static int
has_weak_references(Recycling *call, PyObject *value)
{
    Py_ssize_t offset = weak_offset(call, Py_TYPE(value));
    if (offset == -1 && PyErr_Occurred())
        return -1;
    return offset != 0 && *(PyObject **)((char *)value + offset) != NULL;
}

static int
is_untouched_part(Recycling *call, PyObject *name, PyObject *spare, PyObject *value)
{
    if (Py_TYPE(value) != &PySet_Type)
        return is_untouched(call, spare, 2, value);
    /* Of other sets equality does not tell whether they are the same: 1 is True. */
    if (Py_TYPE(spare) != &PySet_Type || Py_REFCNT(spare) != 2
        || PyUnicode_CompareWithASCIIString(name, GIVEN) != 0)
        return 0;
    return PyObject_RichCompareBool(spare, value, Py_EQ);
}

static int
is_untouched_object(Recycling *call, PyObject *spare, PyObject *value)
{
    PyObject *names = names_of(value, call->attributes);
    if (names == NULL)
        return -1;
    /* Where only some attributes are named, somebody may have added others. */
    if (PyTuple_Size(names) == 0 || !is_all(PyTuple_GetItem(names, 0)))
        return 0;
    int weakly = has_weak_references(call, spare);
    int same = weakly < 0 ? -1 : !weakly;
    for (Py_ssize_t at = 0; same == 1 && at < PyTuple_Size(names); at++) {
        PyObject *name = PyTuple_GetItem(names, at);
        PyObject *part = attribute(value, name), *spare_part = attribute(spare, name);
        same = part == NULL || spare_part == NULL ? -1
            : is_untouched_part(call, name, spare_part, part);
        Py_XDECREF(spare_part);
        Py_XDECREF(part);
    }
    return same;
}

/* Tell whether nobody else has any part of what was a copy of ``value``, and it still is one.
 *
 * Its ``owners`` are those here who know of it. */
static int
is_untouched(Recycling *call, PyObject *spare, Py_ssize_t owners, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (is_scalar(type))
        return spare == value;
    if (Py_TYPE(spare) != type || Py_REFCNT(spare) != owners || type == &PySet_Type)
        return 0;
    if (Py_EnterRecursiveCall(" while a copy was looked at"))
        return -1;
    int same = type == &PyDict_Type ? is_untouched_dict(call, spare, value)
        : type == &PyList_Type ? is_untouched_list(call, spare, value)
        : is_untouched_object(call, spare, value);
    Py_LeaveRecursiveCall();
    return same;
}

/* Take out of a list what stands at a place, so that nobody else can. */
static PyObject *
taken(PyObject *list, Py_ssize_t at)
{
    PyObject *item = PyList_GetItem(list, at);
    Py_INCREF(item);
    Py_INCREF(Py_None);
    PyList_SetItem(list, at, Py_None);
    return item;
}

static PyObject *
recycled_or_copied(Recycling *call, PyObject *value, PyObject *spares, Py_ssize_t at)
{
    if (at >= PyList_Size(spares)) {
        PyObject *copy = copy_of(value, call->attributes);
        if (copy != NULL && PyList_Append(spares, copy))
            Py_CLEAR(copy);
        return copy;
    }
    PyObject *item = taken(spares, at);
    if (is_untouched(call, item, 1, value) != 1) {
        PyErr_Clear();
        Py_DECREF(item);
        item = copy_of(value, call->attributes);
    }
    if (item != NULL) {
        Py_INCREF(item);
        if (PyList_SetItem(spares, at, item))
            Py_CLEAR(item);
    }
    return item;
}

static PyObject *
recycled_list(PyObject *values, PyObject *spares, PyObject *attributes)
{
    Recycling call = {.attributes = attributes};
    PyObject *made = PyList_New(0);
    for (Py_ssize_t at = 0; made != NULL && at < PyList_Size(values); at++) {
        PyObject *value = PyList_GetItem(values, at);
        Py_INCREF(value);
        PyObject *item = recycled_or_copied(&call, value, spares, at);
        Py_DECREF(value);
        if (item == NULL || PyList_Append(made, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    if (made != NULL && PyList_SetSlice(spares, PyList_Size(made), PY_SSIZE_T_MAX, NULL))
        Py_CLEAR(made);
    return made;
}

static PyObject *
plain_copied(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *value, *attributes, *spares = Py_None;
    if (!PyArg_ParseTuple(arguments, "OO!|O:copied", &value, &PyDict_Type, &attributes, &spares))
        return NULL;
    if (Py_TYPE(spares) == &PyList_Type && Py_TYPE(value) == &PyList_Type)
        return recycled_list(value, spares, attributes);
    return copy_of(value, attributes);
}

/* The module ---------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"is_plain", plain_is_plain, METH_VARARGS, NULL},
    {"outline", plain_outline, METH_VARARGS, NULL},
    {"fits", plain_fits, METH_VARARGS, NULL},
    {"copied", plain_copied, METH_VARARGS, NULL},
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
    return PyModuleDef_Init(&definition);
}
