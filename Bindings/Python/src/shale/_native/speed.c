/* speed: the most frequent calls and encodings, in C.
 *
 * It does the same as the modules in Python, and calls them for every case that it does not handle. Without it (another
 * Python, no compiler) they do everything. It is compiled against the stable ABI, and gets the addresses of libshale's
 * functions from ctypes: so there is one library, wherever it comes from. CPython without the GIL has no stable ABI.
 *
 * The GIL is released for each call of the library, which may wait for a lock or a rebuild. The objects that a call
 * uses are referenced by its caller, or belong to this call alone.
 *
 * A running call references the handle, as a call context does in handles.py; `Calls.active` counts running calls.
 *
 * Each interpreter of the process has a module of its own, with a `state`. Without the GIL a lock of each `Calls` guards
 * its fields, and lists and dicts are read only through functions that lock them. */
#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <structmember.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shale.h"

enum {
    MAX_DEPTH = 200,     /* as in packed.py */
    MAX_KEY_DEPTH = 32,  /* as in keys.py */
    LONG_NUMBER = 640,   /* as in values.py */
    BATCH = 128,
    LARGEST_KEPT = 1 << 20,
    LARGEST_KEPT_OF_BATCH = 1 << 14,
    MOST_IDLE = 16,
    MOST_BELIEVED = 4096,
    SHORT_TEXT = 1024, /* the str would keep the UTF-8 of a longer one */
    SHORT_KEY = 32,
    KEYS = 32,
    LARGE = 256, /* from here on keys are likely to occur again */
};

#define MARKER "\xffP1"
enum { MARKER_SIZE = 3, META_SIZE = 4 };

/* Types of values, by the names of their modules and of their own. */
enum { DATE, DATETIME, TIMEDELTA, DECIMAL, UUID, ORDERED, TYPES };
static const char *const type_names[TYPES][2] = {{"datetime", "date"},      {"datetime", "datetime"},
                                                 {"datetime", "timedelta"}, {"decimal", "Decimal"},
                                                 {"uuid", "UUID"},          {"collections", "OrderedDict"}};

/* Names of attributes. */
enum { YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, MICROSECOND, FOLD, TZINFO, DAYS, SECONDS, MICROSECONDS, BYTES, NAMES };
static const char *const attribute_names[NAMES] = {"year",    "month",        "day",  "hour",   "minute",
                                                   "second",  "microsecond",  "fold", "tzinfo", "days",
                                                   "seconds", "microseconds", "bytes"};

/* The module's. The functions, of the library and of Python, are the arguments of speed.setup. */
typedef struct {
    shale_status (*library_get)(shale_cache *, const void *, size_t, uint32_t, shale_value *);
    shale_status (*library_set)(shale_cache *, const void *, size_t, const void *, size_t, const shale_set_options *);
    shale_status (*library_get_many)(shale_cache *, size_t, const shale_bytes *, uint32_t, shale_value *,
                                     shale_status *);
    void (*library_value_free)(shale_value *);
    PyObject *given; /* the tuple of the arguments, which has the references of the next eight */
    PyObject *failure, *unreadable, *encode_key, *pack_other, *unpack_other, *int_of_bytes, *unpack_slowly,
        *loads_slowly;
    PyObject *types[TYPES]; /* NULL: not used yet */
    PyObject *names[NAMES];
    PyObject *utc;
} state;

/* The result of a step. ELSE: the modules in Python handle it, and no exception is set. */
typedef enum { FAILED = -1, ELSE = 0, DONE = 1 } outcome;

/* Bytes to write. */

typedef struct {
    state *of;
    char *data;
    size_t size, capacity;
    int remembers; /* whether `last` is set */
    struct {
        PyObject *value;
        size_t at, size; /* of its form */
    } last[TYPES];       /* of each type: rows often share an object */
    char first[512];
} writer;

static void writer_begin(writer *to, state *of) {
    to->of = of;
    to->data = to->first;
    to->size = 0;
    to->capacity = sizeof to->first;
    to->remembers = 0;
}

static void forget(writer *to) {
    for (int type = 0; type < TYPES && to->remembers; type++)
        Py_XDECREF(to->last[type].value);
    to->remembers = 0;
}

static void writer_end(writer *to) {
    forget(to);
    if (to->data != to->first)
        free(to->data);
}

/* Space for another `size` bytes, or NULL and MemoryError. */
static char *room(writer *to, size_t size) {
    if (to->capacity - to->size < size) {
        size_t capacity = to->capacity * 2;
        if (capacity < to->size + size)
            capacity = to->size + size;
        char *data = to->data == to->first ? malloc(capacity) : realloc(to->data, capacity);
        if (!data) {
            PyErr_NoMemory();
            return NULL;
        }
        if (to->data == to->first)
            memcpy(data, to->first, to->size);
        to->data = data;
        to->capacity = capacity;
    }
    return to->data + to->size;
}

static outcome write_bytes(writer *to, const char *data, size_t size) {
    char *at = room(to, size);
    if (!at)
        return FAILED;
    memcpy(at, data, size);
    to->size += size;
    return DONE;
}

/* A letter, and a size as in varint.py. */
static outcome write_head(writer *to, char letter, size_t size) {
    char *at = room(to, 11);
    if (!at)
        return FAILED;
    char *start = at;
    *at++ = letter;
    while (size >= 0x80) {
        *at++ = (char)((size & 0x7f) | 0x80);
        size >>= 7;
    }
    *at++ = (char)size;
    to->size += (size_t)(at - start);
    return DONE;
}

/* The UTF-8 of a str. ELSE for one with lone surrogates. The caller releases `*owner`, if it is not NULL. */
static outcome text_of(PyObject *text, const char **data, Py_ssize_t *size, PyObject **owner) {
    *owner = NULL;
    if (PyUnicode_GetLength(text) <= SHORT_TEXT) {
        *data = PyUnicode_AsUTF8AndSize(text, size);
        if (*data)
            return DONE;
    } else {
        *owner = PyUnicode_AsUTF8String(text);
        if (*owner)
            return PyBytes_AsStringAndSize(*owner, (char **)data, size) < 0 ? FAILED : DONE;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return FAILED;
    PyErr_Clear();
    return ELSE;
}

/* A new reference to an item of a list, or NULL and no exception: another thread made the list shorter. */
static PyObject *item_of(PyObject *list, Py_ssize_t index) {
#ifdef Py_GIL_DISABLED
    PyObject *item = PyList_GetItemRef(list, index);
#else
    PyObject *item = PyList_GetItem(list, index);
    Py_XINCREF(item);
#endif
    if (!item)
        PyErr_Clear();
    return item;
}

/* The pairs of a dict, in its order. Without the GIL: of a copy, which no other thread changes. */
typedef struct {
    PyObject *dict, *copy;
    Py_ssize_t at;
} pairs;

static int pairs_begin(pairs *of, PyObject *dict) {
    *of = (pairs){dict, NULL, 0};
#ifdef Py_GIL_DISABLED
    of->dict = of->copy = PyDict_Copy(dict);
#endif
    return of->dict ? 0 : -1;
}

/* The key and the value are borrowed. */
static int pairs_next(pairs *of, PyObject **key, PyObject **value) {
    return PyDict_Next(of->dict, &of->at, key, value);
}

/* ELSE for an int of more than 64 bits. */
static outcome number_of(PyObject *object, long long *number) {
    int overflow = 0;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow)
        return ELSE;
    return *number == -1 && PyErr_Occurred() ? FAILED : DONE;
}

/* Two's complement in as few bytes as possible. Returns their number. */
static int number_size(long long number) {
    unsigned long long bits = (unsigned long long)(number >= 0 ? number : ~number);
    int size = 1;
    while (bits >= 0x80) {
        bits >>= 8;
        size++;
    }
    return size;
}

/* Keys, as in keys.py */

static outcome write_key_item(writer *to, PyObject *key, int depth);

static outcome write_key_payload(writer *to, PyObject *key, int depth, char *letter) {
    if (PyUnicode_CheckExact(key)) {
        *letter = 's';
        const char *data;
        Py_ssize_t size;
        PyObject *owner;
        outcome done = text_of(key, &data, &size, &owner);
        if (done == DONE)
            done = write_bytes(to, data, (size_t)size);
        Py_XDECREF(owner);
        return done;
    }
    if (PyBytes_CheckExact(key)) {
        *letter = 'b';
        return write_bytes(to, PyBytes_AsString(key), (size_t)PyBytes_Size(key));
    }
    if (PyLong_CheckExact(key)) {
        *letter = 'i';
        long long number;
        outcome done = number_of(key, &number);
        if (done != DONE)
            return done;
        int size = number_size(number);
        char *at = room(to, (size_t)size);
        if (!at)
            return FAILED;
        for (int byte = size - 1; byte >= 0; byte--)
            *at++ = (char)(number >> (8 * byte));
        to->size += (size_t)size;
        return DONE;
    }
    if (!PyTuple_CheckExact(key) || depth == MAX_KEY_DEPTH)
        return ELSE;
    *letter = 't';
    Py_ssize_t count = PyTuple_Size(key);
    for (Py_ssize_t index = 0; index < count; index++) {
        outcome done = write_key_item(to, PyTuple_GetItem(key, index), depth + 1);
        if (done != DONE)
            return done;
    }
    return DONE;
}

static outcome write_key_item(writer *to, PyObject *key, int depth) {
    /* The payload is written after the longest possible head, and then moved. */
    enum { LONGEST_HEAD = 11 };
    size_t head = to->size;
    if (!room(to, LONGEST_HEAD))
        return FAILED;
    to->size += LONGEST_HEAD;
    char letter;
    outcome done = write_key_payload(to, key, depth, &letter);
    if (done != DONE)
        return done;
    size_t size = to->size - head - LONGEST_HEAD;
    to->size = head;
    if (write_head(to, letter, size) != DONE)
        return FAILED;
    memmove(to->data + to->size, to->data + head + LONGEST_HEAD, size);
    to->size += size;
    return DONE;
}

static outcome write_key(writer *to, PyObject *key) {
    size_t start = to->size;
    outcome done;
    if (PyBytes_CheckExact(key)) {
        const char *data = PyBytes_AsString(key);
        size_t size = (size_t)PyBytes_Size(key);
        int plain = size && (size < MARKER_SIZE || memcmp(data, MARKER, MARKER_SIZE));
        done = plain ? write_bytes(to, data, size) : ELSE;
    } else {
        char letter = 0;
        if (write_bytes(to, MARKER "?", META_SIZE) != DONE)
            return FAILED;
        done = write_key_payload(to, key, 0, &letter);
        if (done == DONE)
            to->data[start + MARKER_SIZE] = letter;
    }
    if (done != ELSE)
        return done;
    to->size = start;
    PyObject *stored = PyObject_CallFunctionObjArgs(to->of->encode_key, key, NULL);
    if (!stored)
        return FAILED;
    done = write_bytes(to, PyBytes_AsString(stored), (size_t)PyBytes_Size(stored));
    Py_DECREF(stored);
    return done;
}

/* The JSON of a list or dict, as Codec writes it */

static outcome write_json_text(writer *to, PyObject *text) {
    const char *data;
    Py_ssize_t size;
    PyObject *owner;
    outcome done = text_of(text, &data, &size, &owner);
    char *at = done == DONE ? room(to, (size_t)size * 6 + 2) : NULL;
    if (at) {
        char *start = at;
        *at++ = '"';
        for (Py_ssize_t index = 0; index < size; index++) {
            unsigned char byte = (unsigned char)data[index];
            if (byte >= 0x20 && byte != '"' && byte != '\\') {
                *at++ = (char)byte;
                continue;
            }
            static const char digits[] = "0123456789abcdef";
            static const char named[] = "btn_fr"; /* from 8 on; 11 has none */
            *at++ = '\\';
            if (byte == '"' || byte == '\\')
                *at++ = (char)byte;
            else if (byte >= 8 && byte <= 13 && byte != 11)
                *at++ = named[byte - 8];
            else {
                memcpy(at, "u00", 3);
                at[3] = digits[byte >> 4];
                at[4] = digits[byte & 15];
                at += 5;
            }
        }
        *at++ = '"';
        to->size += (size_t)(at - start);
    } else if (done == DONE)
        done = FAILED;
    Py_XDECREF(owner);
    return done;
}

static outcome write_json_number(writer *to, PyObject *object) {
    long long number;
    outcome done = number_of(object, &number);
    if (done != DONE)
        return done;
    char *at = room(to, 20);
    if (!at)
        return FAILED;
    char digits[20];
    int count = 0;
    unsigned long long rest = number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    do
        digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        digits[count++] = '-';
    to->size += (size_t)count;
    while (count)
        *at++ = digits[--count];
    return DONE;
}

static outcome write_json(writer *to, PyObject *value, int depth);

static outcome write_json_list(writer *to, PyObject *list, int depth) {
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t index = 0; index < count; index++) {
        if (write_bytes(to, index ? "," : "[", 1) != DONE)
            return FAILED;
        PyObject *item = item_of(list, index);
        outcome done = item ? write_json(to, item, depth + 1) : ELSE;
        Py_XDECREF(item);
        if (done != DONE)
            return done;
    }
    return count ? write_bytes(to, "]", 1) : write_bytes(to, "[]", 2);
}

static outcome write_json_dict(writer *to, PyObject *dict, int depth) {
    PyObject *key, *value;
    Py_ssize_t count = 0;
    outcome done = DONE;
    pairs items;
    if (pairs_begin(&items, dict) < 0)
        return FAILED;
    while (done == DONE && pairs_next(&items, &key, &value)) {
        done = PyUnicode_CheckExact(key) ? write_bytes(to, count++ ? "," : "{", 1) : ELSE;
        if (done == DONE)
            done = write_json_text(to, key);
        if (done == DONE)
            done = write_bytes(to, ":", 1);
        if (done == DONE)
            done = write_json(to, value, depth + 1);
    }
    Py_XDECREF(items.copy);
    if (done != DONE)
        return done;
    return count ? write_bytes(to, "}", 1) : write_bytes(to, "{}", 2);
}

/* Runs no Python code: with the GIL no object changes while it is written. */
static outcome write_json(writer *to, PyObject *value, int depth) {
    if (PyUnicode_CheckExact(value))
        return write_json_text(to, value);
    if (PyLong_CheckExact(value))
        return write_json_number(to, value);
    if (value == Py_None)
        return write_bytes(to, "null", 4);
    if (value == Py_True)
        return write_bytes(to, "true", 4);
    if (value == Py_False)
        return write_bytes(to, "false", 5);
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AsDouble(value);
        if (!isfinite(number))
            return ELSE;
        char *text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
        if (!text)
            return FAILED;
        outcome done = write_bytes(to, text, strlen(text));
        PyMem_Free(text);
        return done;
    }
    if (depth == MAX_DEPTH)
        return ELSE;
    if (PyList_CheckExact(value))
        return write_json_list(to, value, depth);
    if (PyDict_CheckExact(value))
        return write_json_dict(to, value, depth);
    return ELSE;
}

/* Whether no reader finds a number in it that is too long. */
static int has_no_long_number(const writer *of) {
    size_t run = 0;
    if (of->size < LONG_NUMBER)
        return 1;
    for (size_t index = 0; index < of->size; index++) {
        run = of->data[index] >= '0' && of->data[index] <= '9' ? run + 1 : 0;
        if (run == LONG_NUMBER)
            return 0;
    }
    return 1;
}

/* The form of packed.py */

static outcome write_packed(writer *to, PyObject *value, int depth);

static outcome write_packed_list(writer *to, PyObject *list, int depth) {
    Py_ssize_t count = PyList_Size(list);
    if (write_head(to, 'l', (size_t)count) != DONE)
        return FAILED;
    for (Py_ssize_t index = 0; index < count; index++) {
        /* Packing an item may let another thread change the list. */
        if (PyList_Size(list) != count)
            return ELSE;
        PyObject *item = item_of(list, index);
        outcome done = item ? write_packed(to, item, depth + 1) : ELSE;
        Py_XDECREF(item);
        if (done != DONE)
            return done;
    }
    return DONE;
}

static outcome write_packed_tuple(writer *to, PyObject *tuple, int depth) {
    Py_ssize_t count = PyTuple_Size(tuple);
    outcome done = write_head(to, 't', (size_t)count);
    for (Py_ssize_t index = 0; index < count && done == DONE; index++)
        done = write_packed(to, PyTuple_GetItem(tuple, index), depth + 1);
    return done;
}

static outcome write_packed_dict(writer *to, PyObject *dict, int depth) {
    PyObject *key, *value;
    pairs items;
    if (pairs_begin(&items, dict) < 0)
        return FAILED;
    Py_ssize_t count = PyDict_Size(items.dict), written = 0;
    outcome done = write_head(to, 'd', (size_t)count);
    while (done == DONE && pairs_next(&items, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        done = write_packed(to, key, depth + 1);
        if (done == DONE)
            done = write_packed(to, value, depth + 1);
        Py_DECREF(key);
        Py_DECREF(value);
        written++;
        if (PyDict_Size(items.dict) != count && done == DONE)
            done = ELSE;
    }
    Py_XDECREF(items.copy);
    return done == DONE && written != count ? ELSE : done;
}

/* `pairs` of an OrderedDict: the order of its items is its own. */
static outcome write_packed_ordered(writer *to, PyObject *ordered, int depth) {
    PyObject *items = PyMapping_Items(ordered);
    if (!items)
        return FAILED;
    Py_ssize_t count = PyList_Size(items);
    outcome done = write_head(to, 'O', (size_t)count);
    for (Py_ssize_t index = 0; index < count && done == DONE; index++) {
        PyObject *pair = PyList_GetItem(items, index);
        done = write_packed(to, PyTuple_GetItem(pair, 0), depth + 1);
        if (done == DONE)
            done = write_packed(to, PyTuple_GetItem(pair, 1), depth + 1);
    }
    Py_DECREF(items);
    return done;
}

typedef struct {
    const char *data;
    size_t size;
} span;

static int compare_spans(const void *left, const void *right) {
    const span *one = left, *other = right;
    int order = memcmp(one->data, other->data, one->size < other->size ? one->size : other->size);
    return order ? order : (one->size > other->size) - (one->size < other->size);
}

/* The items of a set are in the order of their forms, so equal sets have equal bytes. */
static outcome write_packed_set(writer *to, PyObject *set, char letter, int depth) {
    PyObject *items = PySequence_List(set); /* a copy: packing an item may let another thread change the set */
    if (!items)
        return FAILED;
    size_t count = (size_t)PyList_Size(items);
    outcome done = write_head(to, letter, count);
    size_t start = to->size;
    span few[16], *spans = count <= 16 ? few : malloc(count * sizeof *spans);
    char *copy = NULL;
    if (!spans) {
        PyErr_NoMemory();
        done = FAILED;
    }
    for (size_t index = 0; index < count && done == DONE; index++) {
        size_t before = to->size;
        done = write_packed(to, PyList_GetItem(items, (Py_ssize_t)index), depth + 1);
        if (done == DONE)
            spans[index].size = to->size - before;
    }
    if (done == DONE && count > 1) {
        size_t size = to->size - start;
        copy = malloc(size);
        if (copy) {
            memcpy(copy, to->data + start, size);
            const char *from = copy;
            for (size_t index = 0; index < count; index++) {
                spans[index].data = from;
                from += spans[index].size;
            }
            qsort(spans, count, sizeof *spans, compare_spans);
            forget(to); /* forms move */
            char *at = to->data + start;
            for (size_t index = 0; index < count; index++) {
                memcpy(at, spans[index].data, spans[index].size);
                at += spans[index].size;
            }
        } else {
            PyErr_NoMemory();
            done = FAILED;
        }
    }
    free(copy);
    if (spans != few)
        free(spans);
    Py_DECREF(items);
    return done;
}

/* The types of packed_types.py */

/* A type of another module, borrowed. NULL without an exception: its module is not imported yet, so no value has the
 * type. With `import`, NULL with an exception. */
static PyObject *type_of(state *of, int which, int import) {
    PyObject *type = __atomic_load_n(&of->types[which], __ATOMIC_ACQUIRE);
    if (type)
        return type;
    PyObject *name = PyUnicode_FromString(type_names[which][0]);
    PyObject *module = !name ? NULL : import ? PyImport_Import(name) : PyImport_GetModule(name);
    Py_XDECREF(name);
    type = module ? PyObject_GetAttrString(module, type_names[which][1]) : NULL;
    Py_XDECREF(module);
    if (!type) {
        /* (A module that is being imported has not all its names yet.) */
        if (!import && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        return NULL;
    }
    PyObject *before = NULL;
    if (__atomic_compare_exchange_n(&of->types[which], &before, type, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return type;
    Py_DECREF(type);
    return before;
}

static outcome write_attribute(writer *to, PyObject *object, int name, int bytes) {
    PyObject *number = PyObject_GetAttr(object, to->of->names[name]);
    if (!number)
        return FAILED;
    long value = PyLong_AsLong(number);
    Py_DECREF(number);
    if (value == -1 && PyErr_Occurred())
        return FAILED;
    char *at = room(to, (size_t)bytes);
    if (!at)
        return FAILED;
    for (int byte = 0; byte < bytes; byte++)
        *at++ = (char)((unsigned long)value >> (8 * byte));
    to->size += (size_t)bytes;
    return DONE;
}

typedef struct {
    char name, bytes;
} field;

static outcome write_fields(writer *to, PyObject *object, char letter, const field *fields, size_t count) {
    outcome done = write_bytes(to, &letter, 1);
    for (size_t index = 0; index < count && done == DONE; index++)
        done = write_attribute(to, object, fields[index].name, fields[index].bytes);
    return done;
}

static const field date_fields[] = {{YEAR, 2}, {MONTH, 1}, {DAY, 1}};
static const field datetime_fields[] = {{YEAR, 2},   {MONTH, 1},  {DAY, 1},         {HOUR, 1},
                                        {MINUTE, 1}, {SECOND, 1}, {MICROSECOND, 4}, {FOLD, 1}};
static const field timedelta_fields[] = {{DAYS, 4}, {SECONDS, 4}, {MICROSECONDS, 4}};
#define FIELDS(fields) fields, sizeof fields / sizeof *fields

static outcome write_by_python(writer *to, PyObject *value) {
    PyObject *form = PyObject_CallFunctionObjArgs(to->of->pack_other, value, NULL);
    if (!form)
        return FAILED;
    outcome done = form == Py_None ? ELSE : write_bytes(to, PyBytes_AsString(form), (size_t)PyBytes_Size(form));
    Py_DECREF(form);
    return done;
}

static outcome write_datetime(writer *to, PyObject *value) {
    PyObject *zone = PyObject_GetAttr(value, to->of->names[TZINFO]);
    if (!zone)
        return FAILED;
    int is_none = zone == Py_None, is_utc = zone == to->of->utc;
    Py_DECREF(zone);
    if (!is_none && !is_utc)
        return write_by_python(to, value);
    outcome done = write_fields(to, value, 'w', FIELDS(datetime_fields));
    return done == DONE ? write_bytes(to, is_none ? "n" : "o\0\0\0\0\0\0\0", is_none ? 1 : 9) : done;
}

/* The text of a Decimal, and a copy with an "E" of its exponent: the context of the thread may choose "e". */
static PyObject *decimal_text(PyObject *number) {
    PyObject *text = PyObject_Str(number);
    if (!text || PyUnicode_FindChar(text, 'e', 0, PyUnicode_GetLength(text), 1) < 0)
        return text;
    PyObject *upper = PyObject_CallMethod(text, "replace", "ss", "e", "E");
    Py_DECREF(text);
    return upper;
}

static outcome write_text(writer *to, PyObject *text, char letter) {
    const char *data;
    Py_ssize_t size;
    PyObject *owner;
    outcome done = text_of(text, &data, &size, &owner);
    if (done == DONE)
        done = write_head(to, letter, (size_t)size);
    if (done == DONE)
        done = write_bytes(to, data, (size_t)size);
    Py_XDECREF(owner);
    return done;
}

static outcome write_decimal(writer *to, PyObject *number) {
    PyObject *text = decimal_text(number);
    outcome done = text ? write_text(to, text, 'm') : FAILED;
    Py_XDECREF(text);
    return done;
}

static outcome write_uuid(writer *to, PyObject *value) {
    PyObject *bytes = PyObject_GetAttr(value, to->of->names[BYTES]);
    outcome done = bytes ? ELSE : FAILED;
    if (bytes && PyBytes_CheckExact(bytes) && PyBytes_Size(bytes) == 16) {
        done = write_bytes(to, "u", 1);
        if (done == DONE)
            done = write_bytes(to, PyBytes_AsString(bytes), 16);
    }
    Py_XDECREF(bytes);
    return done;
}

static outcome write_of_type(writer *to, PyObject *value, int which, int depth) {
    switch (which) {
    case DATE: return write_fields(to, value, 'D', FIELDS(date_fields));
    case DATETIME: return write_datetime(to, value);
    case TIMEDELTA: return write_fields(to, value, 'v', FIELDS(timedelta_fields));
    case DECIMAL: return write_decimal(to, value);
    case UUID: return write_uuid(to, value);
    default: return depth == MAX_DEPTH ? ELSE : write_packed_ordered(to, value, depth);
    }
}

static outcome write_packed_other(writer *to, PyObject *value, int depth) {
    PyObject *kind = (PyObject *)Py_TYPE(value);
    int which = 0;
    while (which < TYPES && kind != type_of(to->of, which, 0)) {
        if (PyErr_Occurred())
            return FAILED;
        which++;
    }
    if (which == TYPES)
        return write_by_python(to, value);
    if (which == ORDERED)
        return write_of_type(to, value, which, depth);
    if (!to->remembers)
        memset(to->last, 0, sizeof to->last);
    to->remembers = 1;
    if (to->last[which].value == value) {
        size_t size = to->last[which].size;
        char *at = room(to, size);
        if (!at)
            return FAILED;
        memcpy(at, to->data + to->last[which].at, size);
        to->size += size;
        return DONE;
    }
    size_t before = to->size;
    outcome done = write_of_type(to, value, which, depth);
    if (done == DONE) {
        Py_XDECREF(to->last[which].value);
        Py_INCREF(value);
        to->last[which].value = value;
        to->last[which].at = before;
        to->last[which].size = to->size - before;
    }
    return done;
}

static outcome write_packed(writer *to, PyObject *value, int depth) {
    if (PyUnicode_CheckExact(value))
        return write_text(to, value, 's');
    if (PyBytes_CheckExact(value)) {
        size_t size = (size_t)PyBytes_Size(value);
        outcome done = write_head(to, 'b', size);
        return done == DONE ? write_bytes(to, PyBytes_AsString(value), size) : done;
    }
    if (PyLong_CheckExact(value)) {
        long long number;
        outcome done = number_of(value, &number);
        if (done != DONE)
            return done;
        int size = number_size(number);
        char *at = room(to, 10);
        if (!at)
            return FAILED;
        *at++ = 'i';
        *at++ = (char)size;
        for (int byte = 0; byte < size; byte++)
            *at++ = (char)(number >> (8 * byte));
        to->size += (size_t)size + 2;
        return DONE;
    }
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AsDouble(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        char *at = room(to, 9);
        if (!at)
            return FAILED;
        *at++ = 'f';
        for (int byte = 0; byte < 8; byte++)
            *at++ = (char)(bits >> (8 * byte));
        to->size += 9;
        return DONE;
    }
    if (value == Py_None || value == Py_True || value == Py_False)
        return write_bytes(to, value == Py_None ? "N" : value == Py_True ? "T" : "F", 1);
    if (PyByteArray_CheckExact(value)) {
        PyObject *bytes = PyBytes_FromObject(value); /* a copy: another thread may change its size */
        outcome done = bytes ? write_head(to, 'B', (size_t)PyBytes_Size(bytes)) : FAILED;
        if (done == DONE)
            done = write_bytes(to, PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
        Py_XDECREF(bytes);
        return done;
    }
    int is_set = Py_IS_TYPE(value, &PySet_Type), is_frozen = PyFrozenSet_CheckExact(value);
    int is_list = PyList_CheckExact(value), is_tuple = PyTuple_CheckExact(value), is_dict = PyDict_CheckExact(value);
    if (!is_list && !is_tuple && !is_dict && !is_set && !is_frozen)
        return write_packed_other(to, value, depth);
    if (depth == MAX_DEPTH)
        return ELSE;
    return is_list    ? write_packed_list(to, value, depth)
           : is_tuple ? write_packed_tuple(to, value, depth)
           : is_dict  ? write_packed_dict(to, value, depth)
                      : write_packed_set(to, value, is_set ? 'S' : 'Z', depth);
}

/* Bytes to read. NULL without an exception is ELSE. */

/* Bytes that were read, and their value, which cannot change. */
typedef struct {
    const unsigned char *at;
    size_t size;
    PyObject *value; /* NULL: none */
} known;

#define OTHERS "Dwvcmu" /* the letters of packed_types.py */

typedef struct {
    state *of;
    const unsigned char *at, *end, *start;
    PyObject *whole; /* the same as a bytes object, if one was needed */
    known *keys;     /* KEYS of them, or NULL */
    known last[sizeof OTHERS - 1];
} reader;

static void learn(known *it, const unsigned char *at, size_t size, PyObject *value) {
    Py_XDECREF(it->value);
    Py_INCREF(value);
    *it = (known){at, size, value};
}

/* The str of UTF-8. */
static PyObject *read_text(const unsigned char *at, size_t size, const char *errors) {
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, errors);
    if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

/* The place for a key of a dict, or NULL. The keys of a row are those of the row before. */
static known *place_of(reader *from, const unsigned char *at, size_t size) {
    if (!from->keys || size == 0 || size > SHORT_KEY)
        return NULL;
    return &from->keys[(at[0] * 31u + at[size / 2] * 7u + at[size - 1] + size) % KEYS];
}

static PyObject *known_at(const known *it, const unsigned char *at, size_t size) {
    if (!it || !it->value || it->size != size || memcmp(it->at, at, size))
        return NULL;
    Py_INCREF(it->value);
    return it->value;
}

static PyObject *read_json(reader *from, int depth);

static PyObject *read_json_text(reader *from, int is_key) {
    const unsigned char *start = ++from->at; /* after the quote */
    const unsigned char *end = memchr(start, '"', (size_t)(from->end - start));
    if (!end)
        return NULL;
    known *place = is_key ? place_of(from, start, (size_t)(end - start)) : NULL;
    PyObject *text = known_at(place, start, (size_t)(end - start));
    if (text) {
        from->at = end + 1;
        return text;
    }
    for (const unsigned char *at = start; at < end; at++)
        if (*at < 0x20 || *at == '\\')
            return NULL;
    from->at = end + 1;
    text = read_text(start, (size_t)(end - start), NULL);
    if (text && place)
        learn(place, start, (size_t)(end - start), text);
    return text;
}

static PyObject *read_json_number(reader *from) {
    char text[64];
    size_t size = 0;
    int is_float = 0;
    const unsigned char *at = from->at;
    for (; at < from->end && size < sizeof text; at++) {
        if (*at == '.' || *at == 'e' || *at == 'E')
            is_float = 1;
        else if ((*at < '0' || *at > '9') && *at != '-' && *at != '+')
            break;
        text[size++] = (char)*at;
    }
    if (size == 0 || size == sizeof text)
        return NULL;
    text[size] = 0;
    int sign = text[0] == '-';
    /* Another program may have written it in a form that JSON forbids. */
    if (text[sign] < '0' || text[sign] > '9' || (text[sign] == '0' && text[sign + 1] >= '0' && text[sign + 1] <= '9'))
        return NULL;
    if (is_float) {
        const char *point = strchr(text, '.');
        if (point && (point[1] < '0' || point[1] > '9'))
            return NULL;
        char *end;
        double number = PyOS_string_to_double(text, &end, NULL);
        if (PyErr_Occurred() || *end) {
            PyErr_Clear();
            return NULL;
        }
        from->at = at;
        return PyFloat_FromDouble(number);
    }
    if (size > 18)
        return NULL;
    long long number = 0;
    for (size_t index = (size_t)sign; index < size; index++) {
        if (text[index] < '0')
            return NULL;
        number = number * 10 + (text[index] - '0');
    }
    from->at = at;
    return PyLong_FromLongLong(sign ? -number : number);
}

static int next_is(reader *from, char what) {
    if (from->at == from->end || *from->at != (unsigned char)what)
        return 0;
    from->at++;
    return 1;
}

static PyObject *read_json_list(reader *from, int depth) {
    from->at++;
    PyObject *list = PyList_New(0);
    if (!list || next_is(from, ']'))
        return list;
    for (;;) {
        PyObject *item = read_json(from, depth + 1);
        int failed = !item || PyList_Append(list, item) < 0;
        Py_XDECREF(item);
        if (!failed && next_is(from, ','))
            continue;
        if (!failed && next_is(from, ']'))
            return list;
        Py_DECREF(list);
        return NULL;
    }
}

static PyObject *read_json_dict(reader *from, int depth) {
    from->at++;
    PyObject *dict = PyDict_New();
    if (!dict || next_is(from, '}'))
        return dict;
    for (;;) {
        PyObject *key = from->at < from->end && *from->at == '"' ? read_json_text(from, 1) : NULL;
        PyObject *value = key && next_is(from, ':') ? read_json(from, depth + 1) : NULL;
        int failed = !value || PyDict_SetItem(dict, key, value) < 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (!failed && next_is(from, ','))
            continue;
        if (!failed && next_is(from, '}'))
            return dict;
        Py_DECREF(dict);
        return NULL;
    }
}

static PyObject *read_word(reader *from, const char *word, PyObject *value) {
    size_t size = strlen(word);
    if ((size_t)(from->end - from->at) < size || memcmp(from->at, word, size))
        return NULL;
    from->at += size;
    Py_INCREF(value);
    return value;
}

static PyObject *read_json(reader *from, int depth) {
    if (from->at == from->end || depth > MAX_DEPTH)
        return NULL;
    switch (*from->at) {
    case '"': return read_json_text(from, 0);
    case '[': return read_json_list(from, depth);
    case '{': return read_json_dict(from, depth);
    case 'n': return read_word(from, "null", Py_None);
    case 't': return read_word(from, "true", Py_True);
    case 'f': return read_word(from, "false", Py_False);
    default: return read_json_number(from);
    }
}

static int read_size(reader *from, size_t *size) {
    *size = 0;
    for (int shift = 0; shift < 63 && from->at < from->end; shift += 7) {
        unsigned char byte = *from->at++;
        *size |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return 1;
    }
    return 0;
}

static PyObject *read_packed(reader *from, int depth);

/* Clears the exception that an exact builtin type raises for wrong arguments, and no other: a signal handler may have
 * raised that one. */
static void clear_wrong_value(void) {
    if (PyErr_Occurred() && (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_ArithmeticError)))
        PyErr_Clear();
}

static PyObject *read_by_python(reader *from, char letter) {
    if (!from->whole)
        from->whole = PyBytes_FromStringAndSize((const char *)from->start, from->end - from->start);
    if (!from->whole)
        return NULL;
    PyObject *found = PyObject_CallFunction(from->of->unpack_other, "y#On", &letter, (Py_ssize_t)1, from->whole,
                                            (Py_ssize_t)(from->at - from->start));
    if (!found) {
        if (PyErr_ExceptionMatches(PyExc_ValueError))
            PyErr_Clear();
        return NULL;
    }
    PyObject *value = PyTuple_GetItem(found, 0);
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GetItem(found, 1));
    from->at = from->start + at;
    if (from->at > from->end)
        value = NULL; /* cut off */
    Py_XINCREF(value);
    Py_DECREF(found);
    return value;
}

static uint32_t read_little(const unsigned char *at, int bytes) {
    uint32_t number = 0;
    while (bytes--)
        number = number << 8 | at[bytes];
    return number;
}

/* Calls a type with the fields that begin at `at`, and with `last`. NULL without an exception for wrong ones. */
static PyObject *read_fields(reader *from, int which, const unsigned char *at, const field *fields, size_t count,
                             PyObject *last) {
    PyObject *type = type_of(from->of, which, 1), *arguments = type ? PyTuple_New((Py_ssize_t)count + !!last) : NULL;
    if (!arguments)
        return NULL;
    int failed = 0;
    for (size_t index = 0; index < count && !failed; index++) {
        uint32_t bits = read_little(at, fields[index].bytes);
        PyObject *number = PyLong_FromLong(fields[index].name == DAYS ? (long)(int32_t)bits : (long)bits);
        failed = !number || PyTuple_SetItem(arguments, (Py_ssize_t)index, number) < 0;
        at += fields[index].bytes;
    }
    if (last && !failed) {
        Py_INCREF(last);
        failed = PyTuple_SetItem(arguments, (Py_ssize_t)count, last) < 0;
    }
    PyObject *value = failed ? NULL : PyObject_CallObject(type, arguments);
    Py_DECREF(arguments);
    if (!value)
        clear_wrong_value();
    return value;
}

static PyObject *read_datetime(reader *from) {
    enum { SIZE = 12, FOLD_AT = 11 };
    static const unsigned char zero[8];
    const unsigned char *at = from->at;
    if (from->end - at <= SIZE)
        return NULL;
    int is_none = at[SIZE] == 'n';
    int is_utc = at[SIZE] == 'o' && from->end - at >= SIZE + 9 && !memcmp(at + SIZE + 1, zero, 8);
    if (at[FOLD_AT] || (!is_none && !is_utc))
        return read_by_python(from, 'w');
    from->at += SIZE + (is_none ? 1 : 9);
    return read_fields(from, DATETIME, at, datetime_fields, sizeof datetime_fields / sizeof *datetime_fields - 1,
                       is_none ? Py_None : from->of->utc);
}

static PyObject *read_timedelta(reader *from) {
    const unsigned char *at = from->at;
    if (from->end - at < 12 || read_little(at + 4, 4) >= 86400 || read_little(at + 8, 4) >= 1000000)
        return NULL;
    from->at += 12;
    return read_fields(from, TIMEDELTA, at, FIELDS(timedelta_fields), NULL);
}

static int read_size(reader *from, size_t *size);

static PyObject *read_decimal(reader *from) {
    size_t size;
    if (!read_size(from, &size) || size > (size_t)(from->end - from->at))
        return NULL;
    PyObject *type = type_of(from->of, DECIMAL, 1);
    PyObject *text = type ? PyUnicode_DecodeUTF8((const char *)from->at, (Py_ssize_t)size, NULL) : NULL;
    PyObject *number = text ? PyObject_CallFunctionObjArgs(type, text, NULL) : NULL;
    PyObject *again = number ? decimal_text(number) : NULL;
    from->at += size;
    if (!again) {
        clear_wrong_value();
        Py_CLEAR(number);
    } else if (PyUnicode_Compare(again, text))
        Py_CLEAR(number); /* another spelling */
    Py_XDECREF(again);
    Py_XDECREF(text);
    return number;
}

static PyObject *read_uuid(reader *from) {
    if (from->end - from->at < 16)
        return NULL;
    PyObject *type = type_of(from->of, UUID, 1);
    PyObject *bytes = type ? PyBytes_FromStringAndSize((const char *)from->at, 16) : NULL;
    PyObject *value = bytes ? PyObject_CallFunctionObjArgs(type, Py_None, bytes, NULL) : NULL;
    Py_XDECREF(bytes);
    from->at += 16;
    return value;
}

static PyObject *read_of_type(reader *from, char letter) {
    const unsigned char *at = from->at;
    switch (letter) {
    case 'D':
        if (from->end - at < 4)
            return NULL;
        from->at += 4;
        return read_fields(from, DATE, at, FIELDS(date_fields), NULL);
    case 'w': return read_datetime(from);
    case 'v': return read_timedelta(from);
    case 'm': return read_decimal(from);
    case 'u': return read_uuid(from);
    default: return read_by_python(from, letter);
    }
}

static PyObject *read_packed_other(reader *from, char letter) {
    known *last = &from->last[strchr(OTHERS, letter) - OTHERS];
    const unsigned char *at = from->at;
    PyObject *value = last->size <= (size_t)(from->end - at) ? known_at(last, at, last->size) : NULL;
    if (value) {
        from->at += last->size;
        return value;
    }
    value = read_of_type(from, letter);
    if (value)
        learn(last, at, (size_t)(from->at - at), value);
    return value;
}

/* One by one: a wrong count takes no more memory than there are bytes. */
static PyObject *read_packed_many(reader *from, size_t count, int is_tuple, int depth) {
    PyObject *list = PyList_New(0);
    for (size_t index = 0; list && index < count; index++) {
        PyObject *item = read_packed(from, depth + 1);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    if (!list || !is_tuple)
        return list;
    PyObject *tuple = PyList_AsTuple(list);
    Py_DECREF(list);
    return tuple;
}

static PyObject *read_packed_items(reader *from, size_t count, int is_tuple, int depth) {
    if (count > MOST_BELIEVED)
        return read_packed_many(from, count, is_tuple, depth);
    PyObject *items = is_tuple ? PyTuple_New((Py_ssize_t)count) : PyList_New((Py_ssize_t)count);
    for (size_t index = 0; items && index < count; index++) {
        PyObject *item = read_packed(from, depth + 1);
        /* (They take the reference, also if they fail.) */
        if (!item || (is_tuple ? PyTuple_SetItem(items, (Py_ssize_t)index, item)
                               : PyList_SetItem(items, (Py_ssize_t)index, item)) < 0)
            Py_CLEAR(items);
    }
    return items;
}

/* Clears the exception for a value that is not hashable. */
static void clear_not_hashable(void) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Clear();
}

static PyObject *read_packed_key(reader *from, int depth) {
    const unsigned char *start = from->at;
    size_t size;
    if (start == from->end || *start != 's')
        return read_packed(from, depth);
    from->at++;
    if (!read_size(from, &size) || size > (size_t)(from->end - from->at))
        return NULL;
    const unsigned char *at = from->at;
    known *place = place_of(from, at, size);
    PyObject *text = known_at(place, at, size);
    from->at += size;
    if (text)
        return text;
    text = read_text(at, size, "surrogatepass");
    if (text && place)
        learn(place, at, size, text);
    return text;
}

static PyObject *read_packed_dict(reader *from, size_t count, int is_ordered, int depth) {
    PyObject *type = is_ordered ? type_of(from->of, ORDERED, 1) : NULL;
    PyObject *dict = !is_ordered ? PyDict_New() : type ? PyObject_CallObject(type, NULL) : NULL;
    for (size_t index = 0; dict && index < count; index++) {
        PyObject *key = read_packed_key(from, depth + 1);
        PyObject *value = key ? read_packed(from, depth + 1) : NULL;
        int failed = !value;
        if (value && (is_ordered ? PyObject_SetItem(dict, key, value) : PyDict_SetItem(dict, key, value)) < 0) {
            failed = 1;
            clear_not_hashable();
        }
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (failed)
            Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *read_packed_set(reader *from, size_t count, int is_frozen, int depth) {
    PyObject *set = is_frozen ? PyFrozenSet_New(NULL) : PySet_New(NULL);
    for (size_t index = 0; set && index < count; index++) {
        PyObject *item = read_packed(from, depth + 1);
        int failed = !item;
        if (item && PySet_Add(set, item) < 0) {
            failed = 1;
            clear_not_hashable();
        }
        Py_XDECREF(item);
        if (failed)
            Py_CLEAR(set);
    }
    return set;
}

static PyObject *read_packed(reader *from, int depth) {
    if (from->at == from->end)
        return NULL;
    char letter = (char)*from->at++;
    PyObject *single = letter == 'N' ? Py_None : letter == 'T' ? Py_True : letter == 'F' ? Py_False : NULL;
    if (single) {
        Py_INCREF(single);
        return single;
    }
    if (letter == 'f') {
        if (from->end - from->at < 8)
            return NULL;
        uint64_t bits = 0;
        for (int byte = 0; byte < 8; byte++)
            bits |= (uint64_t)*from->at++ << (8 * byte);
        double number;
        memcpy(&number, &bits, sizeof number);
        return PyFloat_FromDouble(number);
    }
    if (!strchr("isbBltdOSZ", letter) || !letter)
        return letter && strchr(OTHERS, letter) ? read_packed_other(from, letter) : NULL;
    size_t size;
    if (!read_size(from, &size) || size > (size_t)(from->end - from->at))
        return NULL;
    const unsigned char *payload = from->at;
    switch (letter) {
    case 'i':
        from->at += size;
        if (size == 0 || size > 8)
            return PyObject_CallFunction(from->of->int_of_bytes, "y#", (const char *)payload, (Py_ssize_t)size);
        uint64_t bits = payload[size - 1] & 0x80 ? ~(uint64_t)0 : 0;
        for (size_t byte = size; byte--;)
            bits = bits << 8 | payload[byte];
        return PyLong_FromLongLong((long long)bits);
    case 's': from->at += size; return read_text(payload, size, "surrogatepass");
    case 'b': from->at += size; return PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)size);
    case 'B': from->at += size; return PyByteArray_FromStringAndSize((const char *)payload, (Py_ssize_t)size);
    }
    if (depth == MAX_DEPTH)
        return NULL;
    if (letter == 'd' || letter == 'O')
        return read_packed_dict(from, size, letter == 'O', depth);
    if (letter == 'S' || letter == 'Z')
        return read_packed_set(from, size, letter == 'Z', depth);
    return read_packed_items(from, size, letter == 't', depth);
}

/* The value, if it has no bytes after it. NULL without an exception is ELSE. */
static PyObject *read_whole(state *of, const char *data, size_t size, PyObject *(*read)(reader *, int)) {
    const unsigned char *start = (const unsigned char *)data;
    reader from = {.of = of, .at = start, .end = start + size, .start = start};
    known keys[KEYS];
    if (size >= LARGE) {
        memset(keys, 0, sizeof keys);
        from.keys = keys;
    }
    PyObject *value = read(&from, 0);
    if (value && from.at != from.end)
        Py_CLEAR(value);
    for (int key = 0; key < KEYS && from.keys; key++)
        Py_XDECREF(keys[key].value);
    for (size_t other = 0; other < sizeof from.last / sizeof *from.last; other++)
        Py_XDECREF(from.last[other].value);
    Py_XDECREF(from.whole);
    return value;
}

/* Values, as in values.py */

/* A value's letter and its bytes. */
static outcome write_container(writer *to, PyObject *value, char *letter) {
    *letter = 'j';
    outcome done = ELSE;
    if (PyList_CheckExact(value) || PyDict_CheckExact(value)) {
        done = write_json(to, value, 0);
        if (done == DONE && !has_no_long_number(to))
            done = ELSE;
        if (done != ELSE)
            return done;
    }
    *letter = 'x';
    to->size = 0;
    return write_packed(to, value, 0);
}

static PyObject *speed_form(PyObject *module, PyObject *value) {
    writer to;
    writer_begin(&to, PyModule_GetState(module));
    char letter;
    PyObject *result = NULL;
    outcome done = write_container(&to, value, &letter);
    if (done == DONE) {
        char meta[] = MARKER "?";
        meta[MARKER_SIZE] = letter;
        result = Py_BuildValue("y#y#", meta, (Py_ssize_t)META_SIZE, to.data, (Py_ssize_t)to.size);
    } else if (done == ELSE) {
        Py_INCREF(Py_None);
        result = Py_None;
    }
    writer_end(&to);
    return result;
}

static PyObject *speed_read(state *of, PyObject *data, PyObject *(*read)(reader *, int), PyObject *slowly) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0)
        return NULL;
    PyObject *value = read_whole(of, bytes, (size_t)size, read);
    return value || PyErr_Occurred() ? value : PyObject_CallFunctionObjArgs(slowly, data, NULL);
}

static PyObject *speed_unpack(PyObject *module, PyObject *data) {
    state *of = PyModule_GetState(module);
    return speed_read(of, data, read_packed, of->unpack_slowly);
}

static PyObject *speed_loads(PyObject *module, PyObject *data) {
    state *of = PyModule_GetState(module);
    return speed_read(of, data, read_json, of->loads_slowly);
}

/* Calls of one open cache */

typedef struct {
    PyObject_HEAD state *of; /* the module, which the type references */
    shale_cache *cache;
    PyObject *handle; /* NULL: closed */
    PyObject *encode, *decode;
    PyObject *ask; /* the clock, before each call; or NULL */
    Py_ssize_t active;
    char plain; /* without serialize_all */
    int idle_count;
    shale_value idle[MOST_IDLE];
    shale_value *batch;
#ifdef Py_GIL_DISABLED
    PyMutex mutex; /* of `handle`, `active`, `idle` and `batch`; runs no Python code */
#endif
} calls;

static void lock(calls *self) {
#ifdef Py_GIL_DISABLED
    PyMutex_Lock(&self->mutex);
#else
    (void)self;
#endif
}

static void unlock(calls *self) {
#ifdef Py_GIL_DISABLED
    PyMutex_Unlock(&self->mutex);
#else
    (void)self;
#endif
}

static void leave(calls *self, PyObject *handle) {
    lock(self);
    if (self->active)
        self->active--;
    unlock(self);
    /* This may be the last reference, and closing the handle may run code, which must not see the exception. */
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    Py_DECREF(handle);
    PyErr_Restore(kind, value, trace);
}

/* SHALE_OK: the cache is closed. */
static PyObject *raise_failure(calls *self, shale_status status) {
    PyObject *error = PyObject_CallFunction(self->of->failure, "i", (int)status);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

/* The handle, which the call references until `leave`; NULL and an exception if it is closed. */
static PyObject *enter(calls *self) {
    lock(self);
    PyObject *handle = self->handle;
    if (handle) {
        Py_INCREF(handle);
        self->active++;
    }
    unlock(self);
    if (!handle)
        return raise_failure(self, SHALE_OK);
    if (self->ask) {
        PyObject *answer = PyObject_CallFunctionObjArgs(self->ask, NULL);
        if (!answer) {
            leave(self, handle);
            return NULL;
        }
        Py_DECREF(answer);
    }
    return handle;
}

static void take_value(calls *self, shale_value *value) {
    *value = (shale_value)SHALE_VALUE_INIT;
    lock(self);
    if (self->idle_count)
        *value = self->idle[--self->idle_count];
    unlock(self);
}

static void give_value(calls *self, shale_value *value) {
    lock(self);
    int kept = value->capacity <= LARGEST_KEPT && self->idle_count < MOST_IDLE;
    if (kept)
        self->idle[self->idle_count++] = *value;
    unlock(self);
    if (!kept)
        self->of->library_value_free(value);
}

/* A value with one of the fixed metas. NULL without an exception: the codec reads it. */
static PyObject *decode_fixed(state *of, char letter, const char *data, size_t size) {
    PyObject *value = NULL;
    switch (letter) {
    case 's':
        value = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "surrogatepass");
        if (!value && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            PyErr_Clear();
        return value;
    case 'i': {
        uint64_t bits = 0;
        for (int byte = 8; byte-- && size == 8;)
            bits = bits << 8 | (unsigned char)data[byte];
        return size == 8 ? PyLong_FromLongLong((long long)bits) : NULL;
    }
    case 'f': {
        uint64_t bits = 0;
        double number;
        for (int byte = 8; byte-- && size == 8;)
            bits = bits << 8 | (unsigned char)data[byte];
        memcpy(&number, &bits, sizeof number);
        return size == 8 ? PyFloat_FromDouble(number) : NULL;
    }
    case 'N': value = Py_None; break;
    case 'T': value = Py_True; break;
    case 'F': value = Py_False; break;
    case 'j': return read_whole(of, data, size, read_json);
    case 'x': return read_whole(of, data, size, read_packed);
    }
    if (size)
        value = NULL;
    Py_XINCREF(value);
    return value;
}

/* NULL without an exception: this cache cannot read it. */
static PyObject *decode(calls *self, const shale_value *value, int by_codec) {
    const char *meta = value->meta, *data = value->data;
    if (self->plain) {
        if (value->meta_size < MARKER_SIZE || memcmp(meta, MARKER, MARKER_SIZE))
            return PyBytes_FromStringAndSize(data, (Py_ssize_t)value->size);
        if (value->meta_size == META_SIZE) {
            PyObject *found = decode_fixed(self->of, meta[MARKER_SIZE], data, value->size);
            if (found || PyErr_Occurred())
                return found;
        }
    }
    if (!by_codec)
        return NULL;
    PyObject *found = PyObject_CallFunction(self->decode, "y#y#", meta ? meta : "", (Py_ssize_t)value->meta_size,
                                            data ? data : "", (Py_ssize_t)value->size);
    if (!found && PyErr_ExceptionMatches(self->of->unreadable))
        PyErr_Clear();
    return found;
}

/* only_fresh: return `otherwise` for a stale value, for one that the codec in Python would read, and for one that
 * expires before `least_expiry_ms`. */
static PyObject *get_value(calls *self, PyObject *key, uint32_t flags, PyObject *otherwise, int only_fresh,
                           double least_expiry_ms) {
    writer stored;
    writer_begin(&stored, self->of);
    PyObject *result = NULL;
    PyObject *handle = write_key(&stored, key) == DONE ? enter(self) : NULL;
    if (handle) {
        shale_value value;
        take_value(self, &value);
        PyThreadState *held = PyEval_SaveThread();
        shale_status status = self->of->library_get(self->cache, stored.data, stored.size, flags, &value);
        PyEval_RestoreThread(held);
        if (status < 0)
            raise_failure(self, status);
        else {
            int late = value.expires_ms == SHALE_NEVER || (double)value.expires_ms >= least_expiry_ms;
            if (only_fresh ? status == SHALE_OK && late : status != SHALE_MISS)
                result = decode(self, &value, !only_fresh);
            if (!result && !PyErr_Occurred()) {
                Py_INCREF(otherwise);
                result = otherwise;
            }
        }
        give_value(self, &value);
        leave(self, handle);
    }
    writer_end(&stored);
    return result;
}

/* The meta and the bytes of a value. `*owner` contains the bytes, if the writer does not. */
static outcome encode(calls *self, PyObject *value, writer *to, char *meta, size_t *meta_size, const char **data,
                      size_t *size, PyObject **owner) {
    outcome done = ELSE;
    char letter = 0;
    *owner = NULL;
    if (self->plain) {
        if (PyBytes_CheckExact(value)) {
            *owner = value;
            Py_INCREF(value);
            *data = PyBytes_AsString(value);
            *size = (size_t)PyBytes_Size(value);
            *meta_size = 0;
            return DONE;
        }
        if (PyUnicode_CheckExact(value)) {
            Py_ssize_t length;
            letter = 's';
            done = text_of(value, data, &length, owner);
            if (done == DONE && !*owner) {
                *owner = value;
                Py_INCREF(value);
            }
            *size = (size_t)length;
        } else if (PyLong_CheckExact(value) || PyFloat_CheckExact(value)) {
            letter = PyLong_CheckExact(value) ? 'i' : 'f';
            long long number = 0;
            done = DONE;
            if (letter == 'i')
                done = number_of(value, &number);
            else {
                double real = PyFloat_AsDouble(value);
                memcpy(&number, &real, sizeof number);
            }
            for (int byte = 0; byte < 8; byte++)
                to->data[byte] = (char)((unsigned long long)number >> (8 * byte));
            *data = to->data;
            *size = 8;
        } else if (value == Py_None || value == Py_True || value == Py_False) {
            letter = value == Py_None ? 'N' : value == Py_True ? 'T' : 'F';
            *data = to->data;
            *size = 0;
            done = DONE;
        } else {
            done = write_container(to, value, &letter);
            *data = to->data;
            *size = to->size;
        }
        if (done != ELSE) {
            memcpy(meta, MARKER, MARKER_SIZE);
            meta[MARKER_SIZE] = letter;
            *meta_size = META_SIZE;
            return done;
        }
    }
    PyObject *pair = PyObject_CallFunctionObjArgs(self->encode, value, NULL);
    if (!pair)
        return FAILED;
    PyObject *encoded_meta = PyTuple_GetItem(pair, 0);
    *owner = pair;
    *meta_size = (size_t)PyBytes_Size(encoded_meta);
    if (*meta_size > 255) {
        PyErr_SetString(PyExc_ValueError, "a serializer's name is too long");
        return FAILED;
    }
    memcpy(meta, PyBytes_AsString(encoded_meta), *meta_size);
    *data = PyBytes_AsString(PyTuple_GetItem(pair, 1));
    *size = (size_t)PyBytes_Size(PyTuple_GetItem(pair, 1));
    return DONE;
}

/* 0, or -1 and an exception. */
static int set_value(calls *self, PyObject *key, PyObject *value) {
    writer stored, form;
    writer_begin(&stored, self->of);
    writer_begin(&form, self->of);
    char meta[256];
    size_t meta_size, size;
    const char *data;
    PyObject *owner = NULL, *handle = NULL;
    int result = -1;
    if (write_key(&stored, key) == DONE && encode(self, value, &form, meta, &meta_size, &data, &size, &owner) == DONE &&
        (handle = enter(self))) {
        shale_set_options options = {.struct_size = sizeof options, .meta = meta, .meta_size = meta_size};
        PyThreadState *held = PyEval_SaveThread();
        shale_status status = self->of->library_set(self->cache, stored.data, stored.size, data, size,
                                                    meta_size ? &options : NULL);
        PyEval_RestoreThread(held);
        if (status < 0)
            raise_failure(self, status);
        else
            result = 0;
        leave(self, handle);
    }
    Py_XDECREF(owner);
    writer_end(&form);
    writer_end(&stored);
    return result;
}

/* Reads up to BATCH keys from `start` into `found`. 0, or -1 and an exception. */
static int get_batch(calls *self, PyObject *keys, Py_ssize_t start, Py_ssize_t count, uint32_t flags, PyObject *found,
                     shale_value *values) {
    writer stored;
    writer_begin(&stored, self->of);
    size_t ends[BATCH];
    shale_bytes arguments[BATCH];
    shale_status statuses[BATCH];
    int result = -1;
    Py_ssize_t index;
    for (index = 0; index < count; index++) {
        if (write_key(&stored, PyList_GetItem(keys, start + index)) != DONE)
            goto end;
        ends[index] = stored.size;
    }
    for (index = 0; index < count; index++) {
        size_t begin = index ? ends[index - 1] : 0;
        arguments[index] = (shale_bytes){stored.data + begin, ends[index] - begin};
    }
    PyThreadState *held = PyEval_SaveThread();
    shale_status status = self->of->library_get_many(self->cache, (size_t)count, arguments, flags, values, statuses);
    PyEval_RestoreThread(held);
    if (status < 0) {
        raise_failure(self, status);
        goto end;
    }
    for (index = 0; index < count; index++) {
        if (statuses[index] != SHALE_OK && statuses[index] != SHALE_STALE)
            continue;
        PyObject *value = decode(self, &values[index], 1);
        if (!value && PyErr_Occurred())
            goto end;
        int failed = value && PyDict_SetItem(found, PyList_GetItem(keys, start + index), value) < 0;
        Py_XDECREF(value);
        if (failed)
            goto end;
        if (values[index].capacity > LARGEST_KEPT_OF_BATCH)
            self->of->library_value_free(&values[index]);
    }
    result = 0;
end:
    writer_end(&stored);
    return result;
}

static void free_batch(calls *self, shale_value *values) {
    for (int index = 0; values && index < BATCH; index++)
        self->of->library_value_free(&values[index]);
    free(values);
}

static PyObject *get_values(calls *self, PyObject *keys, uint32_t flags) {
    PyObject *handle = enter(self);
    if (!handle)
        return NULL;
    lock(self);
    shale_value *values = self->batch;
    self->batch = NULL;
    unlock(self);
    if (!values && (values = malloc(BATCH * sizeof *values)))
        for (int index = 0; index < BATCH; index++)
            values[index] = (shale_value)SHALE_VALUE_INIT;
    PyObject *found = values ? PyDict_New() : PyErr_NoMemory();
    Py_ssize_t count = PyList_Size(keys);
    for (Py_ssize_t start = 0; found && start < count; start += BATCH) {
        Py_ssize_t some = count - start < BATCH ? count - start : BATCH;
        if (get_batch(self, keys, start, some, flags, found, values) < 0)
            Py_CLEAR(found);
    }
    lock(self);
    shale_value *extra = self->batch ? values : NULL;
    if (!extra)
        self->batch = values;
    unlock(self);
    free_batch(self, extra);
    leave(self, handle);
    return found;
}

static PyObject *calls_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"address", "handle", "encode", "decode", "ask", "plain", NULL};
    unsigned long long address;
    PyObject *handle, *encode, *decode, *ask;
    int plain;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "KOOOOp", names, &address, &handle, &encode, &decode, &ask,
                                     &plain))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    calls *self = (calls *)allocate(type, 0);
    if (!self)
        return NULL;
    self->of = PyType_GetModuleState(type);
    self->cache = (shale_cache *)(uintptr_t)address;
    self->plain = (char)plain;
    Py_INCREF(handle);
    Py_INCREF(encode);
    Py_INCREF(decode);
    self->handle = handle;
    self->encode = encode;
    self->decode = decode;
    if (ask != Py_None) {
        Py_INCREF(ask);
        self->ask = ask;
    }
    return (PyObject *)self;
}

static int calls_traverse(PyObject *object, visitproc visit, void *arg) {
    calls *self = (calls *)object;
    Py_VISIT(self->handle);
    Py_VISIT(self->encode);
    Py_VISIT(self->decode);
    Py_VISIT(self->ask);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void calls_dealloc(PyObject *object) {
    calls *self = (calls *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    while (self->idle_count)
        self->of->library_value_free(&self->idle[--self->idle_count]);
    free_batch(self, self->batch);
    Py_CLEAR(self->encode);
    Py_CLEAR(self->decode);
    Py_CLEAR(self->ask);
    Py_CLEAR(self->handle);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *calls_close(PyObject *object, PyObject *nothing) {
    (void)nothing;
    calls *self = (calls *)object;
    lock(self);
    PyObject *handle = self->handle;
    self->handle = NULL;
    unlock(self);
    Py_XDECREF(handle);
    Py_RETURN_NONE;
}

/* For a child of fork, which has none of the threads that ran calls. */
static PyObject *calls_after_fork(PyObject *object, PyObject *nothing) {
    (void)nothing;
    calls *self = (calls *)object;
#ifdef Py_GIL_DISABLED
    self->mutex = (PyMutex){0}; /* one of those threads may have locked it */
#endif
    self->active = 0;
    Py_RETURN_NONE;
}

static PyMethodDef calls_methods[] = {
    {"close", calls_close, METH_NOARGS, "Later calls raise. Running calls keep the handle."},
    {"after_fork_in_child", calls_after_fork, METH_NOARGS, NULL},
    {0},
};
static PyMemberDef calls_members[] = {
    {"active", T_PYSSIZET, offsetof(calls, active), READONLY, "The number of running calls."},
    {0},
};
static PyType_Slot calls_slots[] = {
    {Py_tp_new, calls_new},         {Py_tp_traverse, calls_traverse}, {Py_tp_dealloc, calls_dealloc},
    {Py_tp_methods, calls_methods}, {Py_tp_members, calls_members},   {0},
};
static PyType_Spec calls_spec = {
    "shale._native.speed.Calls", sizeof(calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, calls_slots,
};

/* The base class of a cache */

typedef struct {
    PyObject_HEAD PyObject *calls; /* NULL: Python makes all calls */
    char sets;                     /* whether a set without options needs only shale_set */
} fast;

/* The name is interned: CPython's cache of the attributes of types is by the address of a name, and each further str
 * would replace an entry of it. */
static PyObject *slowly(PyObject *self, const char *name, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *names) {
    PyObject *attribute = PyUnicode_InternFromString(name);
    PyObject *method = attribute ? PyObject_GetAttr(self, attribute) : NULL;
    Py_XDECREF(attribute);
    PyObject *positional = method ? PyTuple_New(count) : NULL;
    PyObject *named = positional && names ? PyDict_New() : NULL;
    PyObject *result = NULL;
    if (positional && (named || !names)) {
        for (Py_ssize_t index = 0; index < count; index++) {
            Py_INCREF(arguments[index]);
            PyTuple_SetItem(positional, index, arguments[index]);
        }
        Py_ssize_t more = names ? PyTuple_Size(names) : 0;
        int failed = 0;
        for (Py_ssize_t index = 0; index < more && !failed; index++)
            failed = PyDict_SetItem(named, PyTuple_GetItem(names, index), arguments[count + index]) < 0;
        if (!failed)
            result = PyObject_Call(method, positional, named);
    }
    Py_XDECREF(named);
    Py_XDECREF(positional);
    Py_XDECREF(method);
    return result;
}

/* The calls, which the caller releases, or NULL. A cache gets its calls when it is opened, and keeps them: no lock is
 * needed, which a child of fork could find locked for ever. */
static calls *calls_in(PyObject *self) {
    PyObject *of = __atomic_load_n(&((fast *)self)->calls, __ATOMIC_ACQUIRE);
    Py_XINCREF(of);
    return (calls *)of;
}

static PyObject *fast_get(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    calls *of = names || count < 1 || count > 2 ? NULL : calls_in(self);
    if (!of)
        return slowly(self, "_get_slowly", arguments, count, names);
    PyObject *value = get_value(of, arguments[0], 0, count == 2 ? arguments[1] : Py_None, 0, 0);
    Py_DECREF((PyObject *)of);
    return value;
}

static PyObject *fast_set(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    calls *of = !((fast *)self)->sets || names || count != 2 ? NULL : calls_in(self);
    if (!of)
        return slowly(self, "_set_slowly", arguments, count, names);
    int failed = set_value(of, arguments[0], arguments[1]);
    Py_DECREF((PyObject *)of);
    if (failed)
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *fast_put(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    calls *of = !((fast *)self)->sets || count != 2 ? NULL : calls_in(self);
    if (!of)
        return slowly(self, "_store", arguments, count, NULL);
    int failed = set_value(of, arguments[0], arguments[1]);
    Py_DECREF((PyObject *)of);
    if (failed)
        return NULL;
    Py_RETURN_TRUE;
}

/* key, flags, otherwise, least_expiry_ms */
static PyObject *fast_get_fresh(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    unsigned long flags = count == 4 ? PyLong_AsUnsignedLong(arguments[1]) : 0;
    double least_expiry_ms = count == 4 && !PyErr_Occurred() ? PyFloat_AsDouble(arguments[3]) : 0;
    if (PyErr_Occurred())
        return NULL;
    calls *of = count == 4 ? calls_in(self) : NULL;
    if (!of) {
        PyErr_SetString(PyExc_TypeError, "needs a key, flags, a default and a time, and a cache with calls");
        return NULL;
    }
    PyObject *value = get_value(of, arguments[0], (uint32_t)flags, arguments[2], 1, least_expiry_ms);
    Py_DECREF((PyObject *)of);
    return value;
}

static PyObject *fast_get_many(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    unsigned long flags = count == 2 ? PyLong_AsUnsignedLong(arguments[1]) : 0;
    if (PyErr_Occurred())
        return NULL;
    calls *of = count == 2 && PyList_Check(arguments[0]) ? calls_in(self) : NULL;
    if (!of) {
        PyErr_SetString(PyExc_TypeError, "a list of keys and flags, of a cache that has calls");
        return NULL;
    }
    PyObject *found = get_values(of, arguments[0], (uint32_t)flags);
    Py_DECREF((PyObject *)of);
    return found;
}

static PyObject *fast_calls(PyObject *self, void *nothing) {
    (void)nothing;
    PyObject *of = (PyObject *)calls_in(self);
    if (of)
        return of;
    Py_RETURN_NONE;
}

static int set_fast_calls(PyObject *self, PyObject *value, void *nothing) {
    (void)nothing;
    if (value == Py_None)
        value = NULL;
    /* `Calls` of this interpreter: no subclass of it exists. */
    if (value && PyType_GetSlot(Py_TYPE(value), Py_tp_new) != (void *)calls_new) {
        PyErr_SetString(PyExc_TypeError, "Calls, or None");
        return -1;
    }
    Py_XINCREF(value);
    PyObject *before = __atomic_exchange_n(&((fast *)self)->calls, value, __ATOMIC_ACQ_REL);
#ifdef Py_GIL_DISABLED
    (void)before; /* (Only tests replace them: another thread may be about to reference them, so they live on.) */
#else
    Py_XDECREF(before);
#endif
    return 0;
}

static int fast_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((fast *)self)->calls);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int fast_clear(PyObject *self) {
    Py_CLEAR(((fast *)self)->calls);
    return 0;
}

static void fast_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(((fast *)self)->calls);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef fast_methods[] = {
    {"get", (PyCFunction)(void (*)(void))fast_get, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"set", (PyCFunction)(void (*)(void))fast_set, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_put", (PyCFunction)(void (*)(void))fast_put, METH_FASTCALL, NULL},
    {"_get_fresh", (PyCFunction)(void (*)(void))fast_get_fresh, METH_FASTCALL, NULL},
    {"_get_many", (PyCFunction)(void (*)(void))fast_get_many, METH_FASTCALL, NULL},
    {0},
};
static PyGetSetDef fast_properties[] = {{"_calls", fast_calls, set_fast_calls, NULL, NULL}, {0}};
static PyMemberDef fast_members[] = {{"_sets_plainly", T_BOOL, offsetof(fast, sets), 0, NULL}, {0}};
static PyType_Slot fast_slots[] = {
    {Py_tp_dealloc, fast_dealloc},
    {Py_tp_traverse, fast_traverse},
    {Py_tp_clear, fast_clear},
    {Py_tp_methods, fast_methods},
    {Py_tp_getset, fast_properties},
    {Py_tp_members, fast_members},
    {0},
};
static PyType_Spec fast_spec = {
    "shale._native.speed.Fast",
    sizeof(fast),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    fast_slots,
};

/* The module */

static PyObject *speed_setup(PyObject *module, PyObject *arguments) {
    state *of = PyModule_GetState(module);
    unsigned long long addresses[4];
    if (!PyArg_ParseTuple(arguments, "KKKKOOOOOOOO", &addresses[0], &addresses[1], &addresses[2], &addresses[3],
                          &of->failure, &of->unreadable, &of->encode_key, &of->pack_other, &of->unpack_other,
                          &of->int_of_bytes, &of->unpack_slowly, &of->loads_slowly))
        return NULL;
    of->library_get = (void *)(uintptr_t)addresses[0];
    of->library_set = (void *)(uintptr_t)addresses[1];
    of->library_get_many = (void *)(uintptr_t)addresses[2];
    of->library_value_free = (void *)(uintptr_t)addresses[3];
    PyObject *before = of->given;
    Py_INCREF(arguments);
    of->given = arguments;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* The signature and the docstring of a method, from those of the Python method. Never freed: the first interpreter of
 * the process sets them for all. */
static PyObject *speed_document(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *name, *text;
    if (!PyArg_ParseTuple(arguments, "ss", &name, &text))
        return NULL;
    for (PyMethodDef *method = fast_methods; method->ml_name; method++) {
        if (strcmp(method->ml_name, name) || __atomic_load_n(&method->ml_doc, __ATOMIC_ACQUIRE))
            continue;
        const char *copy = strdup(text);
        if (!copy)
            return PyErr_NoMemory();
        __atomic_store_n(&method->ml_doc, copy, __ATOMIC_RELEASE);
    }
    Py_RETURN_NONE;
}

static PyMethodDef speed_methods[] = {
    {"document", speed_document, METH_VARARGS, NULL},
    {"setup", speed_setup, METH_VARARGS, "Sets the functions to call: addresses of the library's, and Python's."},
    {"form", speed_form, METH_O, "(meta, bytes) of a value that has no letter of its own; None: for the codec."},
    {"unpack", speed_unpack, METH_O, "As packed.unpack."},
    {"loads", speed_loads, METH_O, "The value of JSON in bytes."},
    {0},
};

static int speed_exec(PyObject *module) {
    state *of = PyModule_GetState(module);
    for (int name = 0; name < NAMES; name++)
        if (!(of->names[name] = PyUnicode_InternFromString(attribute_names[name])))
            return -1;
    PyObject *datetime = PyImport_ImportModule("datetime");
    PyObject *timezone = datetime ? PyObject_GetAttrString(datetime, "timezone") : NULL;
    of->utc = timezone ? PyObject_GetAttrString(timezone, "utc") : NULL;
    Py_XDECREF(timezone);
    Py_XDECREF(datetime);
    if (!of->utc)
        return -1;
    struct {
        const char *name;
        PyType_Spec *spec;
    } types[] = {{"Fast", &fast_spec}, {"Calls", &calls_spec}};
    for (size_t index = 0; index < sizeof types / sizeof *types; index++) {
        PyObject *type = PyType_FromModuleAndSpec(module, types[index].spec, NULL);
        int failed = !type || PyModule_AddObjectRef(module, types[index].name, type) < 0;
        Py_XDECREF(type);
        if (failed)
            return -1;
    }
    return 0;
}

static int speed_traverse(PyObject *module, visitproc visit, void *arg) {
    state *of = PyModule_GetState(module);
    Py_VISIT(of->given);
    for (int type = 0; type < TYPES; type++)
        Py_VISIT(of->types[type]);
    return 0;
}

/* (The module is referenced by its types, and so by each cache.) */
static void speed_free(void *module) {
    state *of = PyModule_GetState((PyObject *)module);
    Py_CLEAR(of->given);
    Py_CLEAR(of->utc);
    for (int type = 0; type < TYPES; type++)
        Py_CLEAR(of->types[type]);
    for (int name = 0; name < NAMES; name++)
        Py_CLEAR(of->names[name]);
}

static PyModuleDef_Slot speed_slots[] = {
    {Py_mod_exec, speed_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};
static struct PyModuleDef speed_module = {PyModuleDef_HEAD_INIT, "speed",        NULL, sizeof(state), speed_methods,
                                          speed_slots,           speed_traverse, NULL, speed_free};

PyMODINIT_FUNC PyInit_speed(void) {
    return PyModuleDef_Init(&speed_module);
}
