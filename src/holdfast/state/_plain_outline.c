/* Outlines, and the function that makes them. An outline never changes once it is made. */

#include "_plain.h"

/* The type ------------------------------------------------------------------------------------ */

/* How many words an outline has room for at first; it is doubled as needed. */
#define FIRST_ROOM 64

/* Return an outline with room for as many words, NULL with an exception set. The collector learns of it when it
 * is complete. */
static Outline *
new_outline(PyTypeObject *type, Py_ssize_t room)
{
    Outline *made = PyObject_GC_New(Outline, type);
    if (made == NULL)
        return NULL;
    made->count = 0;
    made->room = room;
    made->words = PyMem_Malloc((size_t)room * sizeof(Word));
    if (made->words == NULL) {
        made->room = 0;
        Py_DECREF(made);
        PyErr_NoMemory();
        return NULL;
    }
    return made;
}

static int
give_room(Outline *outline, Py_ssize_t room)
{
    Word *words = PyMem_Realloc(outline->words, (size_t)room * sizeof(Word));
    if (words == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    outline->words = words;
    outline->room = room;
    return 1;
}

/* Answer 1, or -1 with an exception set, as all functions do that add something. */
static int
add_word(Outline *found, Word word)
{
    if (found->count == found->room && give_room(found, 2 * found->room) < 0)
        return -1;
    found->words[found->count++] = word;
    return 1;
}

static int
add_reference(Outline *found, PyObject *object)
{
    int added = add_word(found, (Word)object);
    if (added == 1)
        Py_INCREF(object);
    return added;
}

static void
let_go(Outline *outline)
{
    Word *words = outline->words;
    Py_ssize_t count = outline->count;
    outline->words = NULL;
    outline->count = outline->room = 0;
    for (Py_ssize_t at = 0; at < count; at++)
        if (!is_mark(words[at]))
            Py_DECREF((PyObject *)words[at]);
    PyMem_Free(words);
}

static void
outline_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    let_go((Outline *)self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int
outline_clear(PyObject *self)
{
    let_go((Outline *)self);
    return 0;
}

/* Only classes can lead back here: everything else that is owned is a text or a number, or has nothing but texts. */
static int
outline_traverse(PyObject *self, visitproc visit, void *arg)
{
    Outline *outline = (Outline *)self;
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t at = 0; at < outline->count; at++)
        if (kind_of(outline->words[at]) == OBJECT)
            Py_VISIT((PyObject *)outline->words[at + 1]);
    return 0;
}

static PyObject *
outline_sizeof(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromSize_t(sizeof(Outline) + (size_t)((Outline *)self)->room * sizeof(Word));
}

static PyObject *
outline_concat(PyObject *self, PyObject *other)
{
    if (Py_TYPE(other) != Py_TYPE(self)) {
        PyErr_SetString(PyExc_TypeError, "only another outline can be added to one");
        return NULL;
    }
    Outline *parts[] = {(Outline *)self, (Outline *)other};
    Outline *made = new_outline(Py_TYPE(self), parts[0]->count + parts[1]->count);
    if (made == NULL)
        return NULL;
    for (int part = 0; part < 2; part++)
        for (Py_ssize_t at = 0; at < parts[part]->count; at++) {
            Word word = made->words[made->count++] = parts[part]->words[at];
            if (!is_mark(word))
                Py_INCREF((PyObject *)word);
        }
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

static PyMethodDef outline_methods[] = {
    {"__sizeof__", outline_sizeof, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot outline_slots[] = {
    {Py_tp_dealloc, outline_dealloc},
    {Py_tp_traverse, outline_traverse},
    {Py_tp_clear, outline_clear},
    {Py_tp_methods, outline_methods},
    {Py_sq_concat, outline_concat},
    {0, NULL},
};

PyType_Spec outline_spec = {
    .name = "holdfast.state._plain.Outline",
    .basicsize = sizeof(Outline),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION
        | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = outline_slots,
};

/* outline ------------------------------------------------------------------------------------- */

/* What an outline is made with: the classes whose objects may stand in it, and the outline. */
typedef struct {
    const State *state;
    PyObject *attributes;
    Outline *found;
} Making;

static int add_value(Making *making, PyObject *value);

static int
add_list(Making *making, PyObject *value)
{
    Py_ssize_t length = PyList_Size(value);
    int added = add_word(making->found, mark_of(LIST, length));
    for (Py_ssize_t at = 0; at < length && added == 1; at++)
        added = add_value(making, PyList_GetItem(value, at));
    return added;
}

static int
add_dict(Making *making, PyObject *value)
{
    PyObject *key, *item;
    Py_ssize_t position = 0, left = PyDict_Size(value);
    int added = add_word(making->found, mark_of(DICT, left));
    while (added == 1 && PyDict_Next(value, &position, &key, &item) && left-- > 0) {
        if (Py_TYPE(key) != &PyUnicode_Type) {
            PyErr_SetString(PyExc_TypeError, "a key is no text");
            return -1;
        }
        added = add_reference(making->found, key);
        if (added == 1)
            added = add_value(making, item);
    }
    if (added == 1 && left != 0) {
        PyErr_SetString(PyExc_RuntimeError, "a dict changed while it was outlined");
        return -1;
    }
    return added;
}

/* Return the attributes that an object consists of, borrowed. */
static PyObject *
names_of(PyObject *value, PyObject *attributes)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    PyObject *names = PyDict_GetItemWithError(attributes, type);
    if (names == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "an object of %R", type);
    return names;
}

static int
add_object(Making *making, PyObject *value)
{
    PyObject *names = names_of(value, making->attributes);
    Py_ssize_t length = names == NULL ? -1 : PyTuple_Size(names);
    if (length < 0)
        return -1;
    Py_INCREF(names);
    int added = add_word(making->found, mark_of(OBJECT, length));
    if (added == 1)
        added = add_reference(making->found, (PyObject *)Py_TYPE(value));
    if (added == 1)
        added = add_reference(making->found, names);
    for (Py_ssize_t at = 0; at < length && added == 1; at++) {
        PyObject *part = attribute(making->state, value, PyTuple_GetItem(names, at));
        added = add_value(making, part);
        Py_XDECREF(part);
    }
    Py_DECREF(names);
    return added;
}

static int
add_texts(Outline *found, PyObject *frozen)
{
    PyObject *items = PyObject_GetIter(frozen), *item;
    int added = items == NULL ? -1 : 1;
    while (added == 1 && (item = PyIter_Next(items)) != NULL) {
        if (Py_TYPE(item) == &PyUnicode_Type) {
            added = add_reference(found, item);
        } else {
            PyErr_SetString(PyExc_TypeError, "a set of more than texts");
            added = -1;
        }
        Py_DECREF(item);
    }
    Py_XDECREF(items);
    return PyErr_Occurred() ? -1 : added;
}

static int
add_set(Making *making, PyObject *value)
{
    PyObject *frozen = PyFrozenSet_New(value);
    if (frozen == NULL)
        return -1;
    int added = add_word(making->found, mark_of(SET, PySet_Size(frozen)));
    if (added == 1)
        added = add_reference(making->found, frozen);
    if (added == 1)
        added = add_texts(making->found, frozen);
    Py_DECREF(frozen);
    return added;
}

static int
add_value(Making *making, PyObject *value)
{
    if (value == NULL)
        return -1;
    PyTypeObject *type = Py_TYPE(value);
    if (is_scalar(type))
        return add_reference(making->found, value);
    if (Py_EnterRecursiveCall(" while a list was outlined"))
        return -1;
    Py_INCREF(value);
    int added = type == &PyDict_Type ? add_dict(making, value)
        : type == &PyList_Type ? add_list(making, value)
        : type == &PySet_Type ? add_set(making, value)
        : add_object(making, value);
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
    return added;
}

PyObject *
plain_outline(PyObject *module, PyObject *arguments)
{
    PyObject *values;
    Making making = {.state = PyModule_GetState(module)};
    if (!PyArg_ParseTuple(arguments, "O!O!:outline", &PyList_Type, &values, &PyDict_Type, &making.attributes))
        return NULL;
    Outline *found = making.found = new_outline(making.state->outline_type, FIRST_ROOM);
    if (found == NULL)
        return NULL;
    int added = 1;
    for (Py_ssize_t at = 0; added == 1 && at < PyList_Size(values); at++)
        added = add_value(&making, PyList_GetItem(values, at));
    if (added < 0 || give_room(found, found->count) < 0) {
        Py_DECREF(found);
        return NULL;
    }
    PyObject_GC_Track(found);
    return (PyObject *)found;
}
