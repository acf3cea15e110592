/* The functions of plain.py, which says what they do: `is_plain`, and the module itself. */

#include "_plain.h"

/* The mark of tagged values and the greatest depth: MARK and MAX_DEPTH in tags.py. */
#define MARK "$t"
#define MAX_DEPTH 200

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

/* The module ---------------------------------------------------------------------------------- */

/* Return what ``type`` has by a name, to be asked of classes. */
static PyObject *
of_type(const char *name)
{
    PyObject *all = PyObject_GetAttrString((PyObject *)&PyType_Type, "__dict__");
    PyObject *key = all == NULL ? NULL : PyUnicode_FromString(name);
    PyObject *found = key == NULL ? NULL : PyObject_GetItem(all, key);
    Py_XDECREF(all);
    Py_XDECREF(key);
    return found;
}

/* Answer 0, or -1 with an exception set. */
static int
begin(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *object = (PyObject *)&PyBaseObject_Type, *set = (PyObject *)&PySet_Type;
    state->ask_class = (getattrofunc)PyType_GetSlot(&PyType_Type, Py_tp_getattro);
    state->read_slot = (descrgetfunc)PyType_GetSlot(&PyMemberDescr_Type, Py_tp_descr_get);
    if ((state->name_dict = PyUnicode_InternFromString("__dict__")) == NULL
        || (state->name_getattribute = PyUnicode_InternFromString("__getattribute__")) == NULL
        || (state->tells_dict = of_type("__dict__")) == NULL
        || (state->tells_mro = of_type("__mro__")) == NULL
        || (state->tells_weakrefoffset = of_type("__weakrefoffset__")) == NULL
        || (state->usual_way = state->ask_class(object, state->name_getattribute)) == NULL
        || find_weak_offset(state, set, &state->weak_offset_of_sets))
        return -1;
    state->outline_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &outline_spec, NULL);
    return state->outline_type == NULL ? -1 : 0;
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->tells_dict);
    Py_VISIT(state->tells_mro);
    Py_VISIT(state->tells_weakrefoffset);
    Py_VISIT(state->usual_way);
    Py_VISIT(state->outline_type);
    return 0;
}

static int
clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->name_dict);
    Py_CLEAR(state->name_getattribute);
    Py_CLEAR(state->tells_dict);
    Py_CLEAR(state->tells_mro);
    Py_CLEAR(state->tells_weakrefoffset);
    Py_CLEAR(state->usual_way);
    Py_CLEAR(state->outline_type);
    return 0;
}

static void
end(void *module)
{
    clear(module);
}

static PyMethodDef functions[] = {
    {"is_plain", plain_is_plain, METH_VARARGS, NULL},
    {"outline", plain_outline, METH_VARARGS, NULL},
    {"fits", plain_fits, METH_VARARGS, NULL},
    {"built", plain_built, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, begin},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast.state._plain",
    .m_doc = "The functions of holdfast.state.plain in C.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = end,
};

PyMODINIT_FUNC
PyInit__plain(void)
{
    return PyModuleDef_Init(&definition);
}
