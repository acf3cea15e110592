/* fits and built: values are compared with an outline, and built from it.
 *
 * Most values are the very objects that they were. Those are not looked into, not even for their types: to
 * fetch them from memory takes longer than all else.
 *
 * Code of others can run where an attribute of an object or of its class is asked for, where a spare that is of no
 * use goes, and wherever Python 3.11 allocates something and collects garbage for it. So a container is owned while
 * it is walked, and what stands in it is asked for anew at each step: such code may even change it. Of an outline
 * never more is read than it has, because each mark says what follows: whatever is found to be shorter than that is
 * something else.
 */

#include "_plain.h"
#include <string.h>

/* Kept out of its callers, so that these stay short for what most values need. */
#ifdef __GNUC__
#define APART __attribute__((noinline))
#else
#define APART
#endif

/* Classes that were met ----------------------------------------------------------------------- */

/* An attribute of the objects of a class, and the slot they have it in, if that is so. */
typedef struct {
    PyObject *name;
    PyObject *slot;
} Part;

/* What is known of a class while outlines are read: the names in an outline, where its objects keep
 * weak references, 0 if nowhere, whether their ``__dict__`` is the first part, and all parts. */
typedef struct Class {
    struct Class *next;
    PyObject *type, *names;
    Py_ssize_t weak_offset;
    int has_dict;
    Py_ssize_t count;
    Part parts[];
} Class;

/* Note what a class or a base of it has of its own by those names that were not found yet. Answer how many are
 * left, or -1 with an exception set. */
static Py_ssize_t
find_own(const State *state, Class *class, PyObject *base)
{
    PyObject *own = told_of(base, state->tells_dict);
    Py_ssize_t left = own == NULL ? -1 : 0;
    for (Part *part = class->parts; left >= 0 && part < class->parts + class->count; part++) {
        if (part->slot != NULL || part->name == state->name_dict)
            continue;
        int has = PySequence_Contains(own, part->name);
        if (has == 1)
            part->slot = PyObject_GetItem(own, part->name);
        left = PyErr_Occurred() ? -1 : left + !has;
    }
    Py_XDECREF(own);
    return left;
}

/* Find the slots of a class. What an object has of its own cannot stand before one, provided that the class looks
 * attributes up as usual. Classes are asked past their metaclasses, which may have code of their own for it.
 * Answer 0, or -1 with an exception set. */
static int
find_slots(const State *state, Class *class)
{
    PyObject *way = state->ask_class(class->type, state->name_getattribute);
    PyObject *line = way == NULL ? NULL : told_of(class->type, state->tells_mro);
    int is_usual = way == state->usual_way && line != NULL && PyTuple_Check(line);
    Py_ssize_t left = line == NULL ? -1 : is_usual ? class->count - class->has_dict : 0;
    for (Py_ssize_t at = 0; left > 0 && at < PyTuple_Size(line); at++)
        left = find_own(state, class, PyTuple_GetItem(line, at));
    Py_XDECREF(way);
    Py_XDECREF(line);
    for (Part *part = class->parts; part < class->parts + class->count; part++)
        if (part->slot != NULL && Py_TYPE(part->slot) != &PyMemberDescr_Type)
            Py_CLEAR(part->slot);
    return left < 0 ? -1 : 0;
}

static void
forget_classes(Class *class)
{
    while (class != NULL) {
        Class *next = class->next;
        for (Py_ssize_t at = 0; at < class->count; at++)
            Py_XDECREF(class->parts[at].slot);
        Py_DECREF(class->type);
        Py_DECREF(class->names);
        PyMem_Free(class);
        class = next;
    }
}

static Class *
new_class(const State *state, PyObject *type, PyObject *names)
{
    Py_ssize_t count = PyTuple_Size(names);
    Class *class = PyMem_Malloc(sizeof(Class) + (size_t)count * sizeof(Part));
    if (class == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *class = (Class){.type = type, .names = names, .count = count};
    Py_INCREF(type);
    Py_INCREF(names);
    for (Py_ssize_t at = 0; at < count; at++)
        class->parts[at] = (Part){.name = PyTuple_GetItem(names, at)};
    if (count > 0)
        class->has_dict = class->parts[0].name == state->name_dict;
    if (find_weak_offset(state, type, &class->weak_offset) || find_slots(state, class)) {
        forget_classes(class);
        return NULL;
    }
    return class;
}

/* fits ---------------------------------------------------------------------------------------- */

/* How far outlines have been read, of which the one that is being read is owned, and whether what they are
 * compared with must be nobody else's. */
typedef struct {
    const State *state;
    PyObject *outlines;
    Py_ssize_t at;
    PyObject *outline;
    const Word *next;
    const Word *end;
    int unshared;
    Class *classes;
} Reading;

/* Open the next outline that has something. Answer 1, 0 behind the last one, or -1 with an exception set. */
static int
open_next(Reading *known)
{
    while (known->next == known->end) {
        if (known->at >= PyList_Size(known->outlines))
            return 0;
        PyObject *outline = PyList_GetItem(known->outlines, known->at++);
        if (Py_TYPE(outline) != known->state->outline_type) {
            PyErr_SetString(PyExc_TypeError, "only outlines can be read");
            return -1;
        }
        Py_INCREF(outline);
        Py_XDECREF(known->outline);
        known->outline = outline;
        known->next = ((Outline *)outline)->words;
        known->end = known->next + ((Outline *)outline)->count;
    }
    return 1;
}

/* Tell whether there is another value, as `open_next` does. */
static inline int
has_more(Reading *known)
{
    return known->next != known->end ? 1 : open_next(known);
}

static void
end_reading(Reading *known)
{
    forget_classes(known->classes);
    Py_XDECREF(known->outline);
}

static PyObject *
next_object(Reading *known)
{
    return (PyObject *)*known->next++;
}

/* Tell whether a scalar is the known one; the two are not the same object. */
APART static int
is_equal(PyObject *known, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (Py_TYPE(known) != type)
        return 0;
    if (type == &PyUnicode_Type || type == &PyLong_Type)
        return PyObject_RichCompareBool(known, value, Py_EQ);
    if (type == &PyFloat_Type) {
        /* By their bits: what equality does not see is the sign of zero. */
        double before = PyFloat_AsDouble(known), now = PyFloat_AsDouble(value);
        return memcmp(&before, &now, sizeof now) == 0;
    }
    return 0;
}

/* Tell whether a value is that of a word and those that belong to it. */
static int is_that_other(Reading *known, Word word, PyObject *value, Py_ssize_t owners);

/* Tell whether a value is that of the next words. Its ``owners`` are those here who know of it. */
static inline int
is_that(Reading *known, PyObject *value, Py_ssize_t owners)
{
    Word word = *known->next++;
    return word == (Word)value ? 1 : is_that_other(known, word, value, owners);
}

static int
is_that_list(Reading *known, Word mark, PyObject *value)
{
    Py_ssize_t length = length_of(mark);
    if (Py_TYPE(value) != &PyList_Type || PyList_Size(value) != length)
        return 0;
    int same = 1;
    for (Py_ssize_t at = 0; at < length && same == 1; at++)
        same = is_that(known, PyList_GetItem(value, at), 1);
    return same;
}

APART static int
is_that_dict(Reading *known, Word mark, PyObject *value)
{
    PyObject *key, *item;
    Py_ssize_t position = 0, left = length_of(mark);
    if (Py_TYPE(value) != &PyDict_Type || PyDict_Size(value) != left)
        return 0;
    while (left-- > 0) {
        /* It may have become shorter meanwhile, or longer. */
        if (!PyDict_Next(value, &position, &key, &item))
            return 0;
        Word before = known->next[0], word = known->next[1];
        known->next += 2;
        int same = before == (Word)key ? 1 : is_equal((PyObject *)before, key);
        if (same == 1 && word != (Word)item)
            same = is_that_other(known, word, item, 1);
        if (same != 1)
            return same;
    }
    return 1;
}

/* Tell whether somebody could get at an object or a set by a weak reference. */
static int
is_weakly_held(PyObject *value, Py_ssize_t offset)
{
    return offset != 0 && *(PyObject **)((char *)value + offset) != NULL;
}

static int
is_that_set(Reading *known, Word mark, PyObject *value)
{
    Py_ssize_t left = length_of(mark);
    if (Py_TYPE(value) != &PySet_Type || PySet_Size(value) != left)
        return 0;
    if (known->unshared && is_weakly_held(value, known->state->weak_offset_of_sets))
        return 0;
    PyObject *frozen = next_object(known), *items = PyObject_GetIter(value);
    int same = items == NULL ? -1 : 1;
    while (same == 1 && left-- > 0) {
        PyObject *item = PyIter_Next(items), *before = next_object(known);
        if (item == NULL)
            same = PyErr_Occurred() ? -1 : 0;
        else if (item != before)
            same = Py_TYPE(item) == &PyUnicode_Type ? PySet_Contains(frozen, item) : 0;
        Py_XDECREF(item);
    }
    Py_XDECREF(items);
    return same;
}

/* Return what is known of the class that comes next, NULL with an exception set. */
static Class *
next_class(Reading *known)
{
    PyObject *type = next_object(known), *names = next_object(known);
    Class *class = known->classes;
    while (class != NULL && (class->type != type || class->names != names))
        class = class->next;
    if (class == NULL && (class = new_class(known->state, type, names)) != NULL) {
        class->next = known->classes;
        known->classes = class;
    }
    return class;
}

/* Return an attribute as `attribute` does, past all that Python asks a class before it reads a slot. */
static PyObject *
part_of(const State *state, PyObject *value, const Part *part)
{
    if (part->slot == NULL)
        return attribute(state, value, part->name);
    PyObject *found = state->read_slot(part->slot, value, (PyObject *)Py_TYPE(value));
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        /* The class may have a way for those that are not there. */
        PyErr_Clear();
        return PyObject_GetAttr(value, part->name);
    }
    return found;
}

/* Tell whether the ``__dict__`` of an object is that of the next words. It is as deep as the object itself. */
static int
has_that_dict(Reading *known, PyObject *value)
{
    Word word = *known->next++;
    PyObject *all = PyObject_GenericGetDict(value, NULL);
    if (all == NULL)
        return -1;
    int same = kind_of(word) != DICT ? is_that_other(known, word, all, 2)
        : known->unshared && Py_REFCNT(all) != 2 ? 0
        : is_that_dict(known, word, all);
    Py_DECREF(all);
    return same;
}

static int
is_that_object(Reading *known, PyObject *value)
{
    if ((Word)Py_TYPE(value) != *known->next)
        return 0;
    Class *class = next_class(known);
    if (class == NULL)
        return -1;
    /* One whose dict is not looked at may have been given more than the names say. */
    if (known->unshared && (!class->has_dict || is_weakly_held(value, class->weak_offset)))
        return 0;
    int same = class->has_dict ? has_that_dict(known, value) : 1;
    const Part *part = class->parts + class->has_dict, *end = class->parts + class->count;
    for (; part < end && same == 1; part++) {
        PyObject *found = part_of(known->state, value, part);
        same = is_that(known, found, 2);
        Py_XDECREF(found);
    }
    return same;
}

APART static int
is_that_container(Reading *known, Word mark, PyObject *value)
{
    int kind = kind_of(mark);
    if (Py_EnterRecursiveCall(" while a list was compared"))
        return -1;
    Py_INCREF(value);
    int same = kind == DICT ? is_that_dict(known, mark, value)
        : kind == LIST ? is_that_list(known, mark, value)
        : kind == SET ? is_that_set(known, mark, value)
        : is_that_object(known, value);
    Py_DECREF(value);
    Py_LeaveRecursiveCall();
    return same;
}

static int
is_that_other(Reading *known, Word word, PyObject *value, Py_ssize_t owners)
{
    if (value == NULL)
        return -1;
    if (!is_mark(word))
        return is_equal((PyObject *)word, value);
    if (known->unshared && Py_REFCNT(value) != owners)
        return 0;
    /* Most containers in messages are empty. */
    if (word == mark_of(DICT, 0))
        return Py_TYPE(value) == &PyDict_Type && PyDict_Size(value) == 0;
    if (word == mark_of(LIST, 0))
        return Py_TYPE(value) == &PyList_Type && PyList_Size(value) == 0;
    return is_that_container(known, word, value);
}

PyObject *
plain_fits(PyObject *module, PyObject *arguments)
{
    Reading known = {.state = PyModule_GetState(module)};
    PyObject *values;
    if (!PyArg_ParseTuple(arguments, "O!O!:fits", &PyList_Type, &known.outlines, &PyList_Type, &values))
        return NULL;
    int more = 1, same = 1;
    for (Py_ssize_t at = 0; same == 1 && (more = has_more(&known)) == 1; at++)
        same = at < PyList_Size(values) ? is_that(&known, PyList_GetItem(values, at), 1) : 0;
    end_reading(&known);
    return more < 0 || same < 0 ? NULL : PyBool_FromLong(same);
}

/* built --------------------------------------------------------------------------------------- */

/* Return the value of the next words, made anew. */
static PyObject *build(Reading *known);

static PyObject *
build_set(Reading *known, Py_ssize_t length)
{
    PyObject *frozen = next_object(known);
    known->next += length;
    return PySet_New(frozen);
}

static PyObject *
build_list(Reading *known, Py_ssize_t length)
{
    PyObject *made = PyList_New(0);
    while (made != NULL && length-- > 0) {
        PyObject *item = build(known);
        if (item == NULL || PyList_Append(made, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

static PyObject *
build_dict(Reading *known, Py_ssize_t length)
{
    PyObject *made = PyDict_New();
    while (made != NULL && length-- > 0) {
        PyObject *key = next_object(known), *item = build(known);
        if (item == NULL || PyDict_SetItem(made, key, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    return made;
}

/* Return what object.__new__ does, which looks whether that is enough for the class. */
static PyObject *
blank_of(PyTypeObject *type)
{
    newfunc usual = (newfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_new);
    if ((newfunc)PyType_GetSlot(type, Py_tp_new) != usual)
        return PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__new__", "O", type);
    PyObject *nothing = PyTuple_New(0);
    PyObject *made = nothing == NULL ? NULL : usual(type, nothing, NULL);
    Py_XDECREF(nothing);
    return made;
}

static PyObject *
build_object(Reading *known, Py_ssize_t length)
{
    PyObject *type = next_object(known), *names = next_object(known);
    PyObject *made = blank_of((PyTypeObject *)type);
    for (Py_ssize_t at = 0; made != NULL && at < length; at++) {
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
    Word word = *known->next++;
    if (!is_mark(word)) {
        Py_INCREF((PyObject *)word);
        return (PyObject *)word;
    }
    if (Py_EnterRecursiveCall(" while a value was built"))
        return NULL;
    Py_ssize_t length = length_of(word);
    int kind = kind_of(word);
    PyObject *made = kind == DICT ? build_dict(known, length)
        : kind == LIST ? build_list(known, length)
        : kind == SET ? build_set(known, length)
        : build_object(known, length);
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

/* Return the value of the next words: the spare at a place, if it still is that and nobody has any part of it. */
static PyObject *
build_or_recycle(Reading *known, PyObject *spares, Py_ssize_t at)
{
    const Word *begin = known->next;
    PyObject *item = taken(spares, at);
    if (item == NULL || is_that(known, item, 1) != 1) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
            /* An interrupt is none of its faults. */
            Py_XDECREF(item);
            return NULL;
        }
        PyErr_Clear();
        Py_XDECREF(item);
        known->next = begin;
        item = build(known);
    }
    if (item != NULL && leave(spares, at, item))
        Py_CLEAR(item);
    return item;
}

PyObject *
plain_built(PyObject *module, PyObject *arguments)
{
    Reading known = {.state = PyModule_GetState(module), .unshared = 1};
    PyObject *spares;
    if (!PyArg_ParseTuple(arguments, "O!O!:built", &PyList_Type, &known.outlines, &PyList_Type, &spares))
        return NULL;
    PyObject *made = PyList_New(0);
    int more = 1;
    for (Py_ssize_t at = 0; made != NULL && (more = has_more(&known)) == 1; at++) {
        PyObject *item = build_or_recycle(&known, spares, at);
        if (item == NULL || PyList_Append(made, item))
            Py_CLEAR(made);
        Py_XDECREF(item);
    }
    if (more < 0)
        Py_CLEAR(made);
    end_reading(&known);
    return made;
}
