/* _speed: the calls and the encodings that programs make most often, in C.
 *
 * It adds nothing to what the modules in Python say, and decides nothing: for what it does not do itself, it calls
 * them. Where it is not there (another Python, no compiler), they do all of it. It is compiled against the stable
 * ABI, and finds libshale by the addresses that ctypes has loaded: there is one library, wherever it comes from.
 *
 * The interpreter is let go of for each call of the library, which may wait for a lock or a rebuild. The values that a
 * call works on are held by its caller, or are this call's alone.
 *
 * A call that is under way holds the handle, as a loan does in _handle.py; `Calls.active` says how many there are. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shale.h"

enum {
    MAX_DEPTH = 200,     /* as in _packed.py */
    MAX_KEY_DEPTH = 32,  /* as in _keys.py */
    LONG_NUMBER = 640,   /* as in _values.py */
    BATCH = 128,
    LARGEST_KEPT = 1 << 20,
    LARGEST_KEPT_OF_BATCH = 1 << 14,
    MOST_IDLE = 16,
    MOST_BELIEVED = 4096,
    SHORT_TEXT = 1024, /* a longer one's UTF-8 would be kept by the str */
};

#define MARKER "\xffP1"
enum { MARKER_SIZE = 3, META_SIZE = 4 };

/* What _speed.setup was given. */
static shale_status (*library_get)(shale_cache *, const void *, size_t, uint32_t, shale_value *);
static shale_status (*library_set)(shale_cache *, const void *, size_t, const void *, size_t,
                                   const shale_set_options *);
static shale_status (*library_get_many)(shale_cache *, size_t, const shale_bytes *, uint32_t, shale_value *,
                                        shale_status *);
static void (*library_value_free)(shale_value *);
static PyObject *failure, *unreadable, *encode_key, *pack_other, *unpack_other, *int_of_bytes, *unpack_slowly,
    *loads_slowly;

/* What a step has come to. ELSE: it is for the modules in Python, and no exception is set. */
typedef enum { FAILED = -1, ELSE = 0, DONE = 1 } outcome;

/* Bytes that are being written. */

typedef struct {
    char *data;
    size_t size, capacity;
    char first[512];
} writer;

static void writer_begin(writer *to) {
    to->data = to->first;
    to->size = 0;
    to->capacity = sizeof to->first;
}

static void writer_end(writer *to) {
    if (to->data != to->first)
        free(to->data);
}

/* Room for `size` bytes more, or NULL and MemoryError. */
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

/* A letter, and a size as in _varint.py. */
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

/* The UTF-8 of a str. ELSE for one with lone surrogates. `*owner` is to be released, if it is not NULL. */
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

/* ELSE for an int of more than 64 bits. */
static outcome number_of(PyObject *object, long long *number) {
    int overflow = 0;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow)
        return ELSE;
    return *number == -1 && PyErr_Occurred() ? FAILED : DONE;
}

/* Two's complement in as few bytes as it needs: how many. */
static int number_size(long long number) {
    unsigned long long bits = (unsigned long long)(number >= 0 ? number : ~number);
    int size = 1;
    while (bits >= 0x80) {
        bits >>= 8;
        size++;
    }
    return size;
}

/* Keys, as in _keys.py */

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
    /* The payload goes behind the longest head, and is moved to where it belongs. */
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
    PyObject *stored = PyObject_CallFunctionObjArgs(encode_key, key, NULL);
    if (!stored)
        return FAILED;
    done = write_bytes(to, PyBytes_AsString(stored), (size_t)PyBytes_Size(stored));
    Py_DECREF(stored);
    return done;
}

/* A list's or dict's JSON, as Codec writes it */

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
        outcome done = write_json(to, PyList_GetItem(list, index), depth + 1);
        if (done != DONE)
            return done;
    }
    return count ? write_bytes(to, "]", 1) : write_bytes(to, "[]", 2);
}

static outcome write_json_dict(writer *to, PyObject *dict, int depth) {
    PyObject *key, *value;
    Py_ssize_t at = 0, count = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key))
            return ELSE;
        if (write_bytes(to, count++ ? "," : "{", 1) != DONE)
            return FAILED;
        outcome done = write_json_text(to, key);
        if (done == DONE)
            done = write_bytes(to, ":", 1);
        if (done == DONE)
            done = write_json(to, value, depth + 1);
        if (done != DONE)
            return done;
    }
    return count ? write_bytes(to, "}", 1) : write_bytes(to, "{}", 2);
}

/* No code of Python's runs in it, so nothing that is written changes meanwhile. */
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

/* Whether no reader could take a part of it for a number that is too long. */
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

/* The form of _packed.py */

static outcome write_packed(writer *to, PyObject *value, int depth);

static outcome write_packed_list(writer *to, PyObject *list, int depth) {
    Py_ssize_t count = PyList_Size(list);
    if (write_head(to, 'l', (size_t)count) != DONE)
        return FAILED;
    for (Py_ssize_t index = 0; index < count; index++) {
        /* What packs a date may let another thread change the list. */
        if (PyList_Size(list) != count)
            return ELSE;
        PyObject *item = PyList_GetItem(list, index);
        Py_INCREF(item);
        outcome done = write_packed(to, item, depth + 1);
        Py_DECREF(item);
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
    Py_ssize_t count = PyDict_Size(dict), at = 0, written = 0;
    PyObject *key, *value;
    outcome done = write_head(to, 'd', (size_t)count);
    while (done == DONE && PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        done = write_packed(to, key, depth + 1);
        if (done == DONE)
            done = write_packed(to, value, depth + 1);
        Py_DECREF(key);
        Py_DECREF(value);
        written++;
        if (PyDict_Size(dict) != count)
            return done == FAILED ? FAILED : ELSE;
    }
    return done == DONE && written != count ? ELSE : done;
}

static outcome write_packed(writer *to, PyObject *value, int depth) {
    if (PyUnicode_CheckExact(value)) {
        const char *data;
        Py_ssize_t size;
        PyObject *owner;
        outcome done = text_of(value, &data, &size, &owner);
        if (done == DONE)
            done = write_head(to, 's', (size_t)size);
        if (done == DONE)
            done = write_bytes(to, data, (size_t)size);
        Py_XDECREF(owner);
        return done;
    }
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
    if (depth == MAX_DEPTH)
        return ELSE;
    if (PyList_CheckExact(value))
        return write_packed_list(to, value, depth);
    if (PyTuple_CheckExact(value))
        return write_packed_tuple(to, value, depth);
    if (PyDict_CheckExact(value))
        return write_packed_dict(to, value, depth);
    if (PyAnySet_Check(value))
        return ELSE;
    PyObject *form = PyObject_CallFunctionObjArgs(pack_other, value, NULL);
    if (!form)
        return FAILED;
    outcome done = form == Py_None ? ELSE : write_bytes(to, PyBytes_AsString(form), (size_t)PyBytes_Size(form));
    Py_DECREF(form);
    return done;
}

/* Bytes that are being read. A NULL without an exception is ELSE. */

typedef struct {
    const unsigned char *at, *end, *start;
    PyObject *whole; /* the same as a bytes object, where one was needed */
} reader;

static PyObject *read_json(reader *from, int depth);

static PyObject *read_json_text(reader *from) {
    const unsigned char *start = ++from->at; /* after the quote */
    const unsigned char *end = memchr(start, '"', (size_t)(from->end - start));
    if (!end)
        return NULL;
    for (const unsigned char *at = start; at < end; at++)
        if (*at < 0x20 || *at == '\\')
            return NULL;
    from->at = end + 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)start, end - start, NULL);
    if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
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
    /* Another program may have spelled it in a way that JSON forbids. */
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
        PyObject *key = from->at < from->end && *from->at == '"' ? read_json_text(from) : NULL;
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
    case '"': return read_json_text(from);
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

static PyObject *read_packed_other(reader *from, char letter) {
    if (!from->whole)
        from->whole = PyBytes_FromStringAndSize((const char *)from->start, from->end - from->start);
    if (!from->whole)
        return NULL;
    PyObject *found = PyObject_CallFunction(unpack_other, "y#On", &letter, (Py_ssize_t)1, from->whole,
                                            (Py_ssize_t)(from->at - from->start));
    if (!found) {
        if (PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError))
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

/* One by one: a count that is not true takes no more memory than there are bytes. */
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
        /* (They take the item, also where they fail.) */
        if (!item || (is_tuple ? PyTuple_SetItem(items, (Py_ssize_t)index, item)
                               : PyList_SetItem(items, (Py_ssize_t)index, item)) < 0)
            Py_CLEAR(items);
    }
    return items;
}

static PyObject *read_packed_dict(reader *from, size_t count, int depth) {
    PyObject *dict = PyDict_New();
    for (size_t index = 0; dict && index < count; index++) {
        PyObject *key = read_packed(from, depth + 1);
        PyObject *value = key ? read_packed(from, depth + 1) : NULL;
        int failed = !value || PyDict_SetItem(dict, key, value) < 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(dict);
            if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError))
                PyErr_Clear(); /* no key of a dict */
            return NULL;
        }
    }
    return dict;
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
    if (!strchr("isbltd", letter) || !letter)
        return strchr("Dwvmu", letter) && letter ? read_packed_other(from, letter) : NULL;
    size_t size;
    if (!read_size(from, &size) || size > (size_t)(from->end - from->at))
        return NULL;
    const unsigned char *payload = from->at;
    switch (letter) {
    case 'i':
        from->at += size;
        if (size == 0 || size > 8)
            return PyObject_CallFunction(int_of_bytes, "y#", (const char *)payload, (Py_ssize_t)size);
        uint64_t bits = payload[size - 1] & 0x80 ? ~(uint64_t)0 : 0;
        for (size_t byte = size; byte--;)
            bits = bits << 8 | payload[byte];
        return PyLong_FromLongLong((long long)bits);
    case 's': {
        from->at += size;
        PyObject *text = PyUnicode_DecodeUTF8((const char *)payload, (Py_ssize_t)size, "surrogatepass");
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            PyErr_Clear();
        return text;
    }
    case 'b': from->at += size; return PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)size);
    }
    if (depth == MAX_DEPTH)
        return NULL;
    return letter == 'd' ? read_packed_dict(from, size, depth) : read_packed_items(from, size, letter == 't', depth);
}

/* The value, if it is the whole. A NULL without an exception is ELSE. */
static PyObject *read_whole(const char *data, size_t size, PyObject *(*read)(reader *, int)) {
    reader from = {(const unsigned char *)data, (const unsigned char *)data + size, (const unsigned char *)data, NULL};
    PyObject *value = read(&from, 0);
    if (value && from.at != from.end) {
        Py_DECREF(value);
        value = NULL;
    }
    Py_XDECREF(from.whole);
    return value;
}

/* Values, as in _values.py */

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
    } else if (!PyTuple_CheckExact(value))
        return ELSE;
    *letter = 'x';
    to->size = 0;
    return write_packed(to, value, 0);
}

static PyObject *speed_form(PyObject *module, PyObject *value) {
    (void)module;
    writer to;
    writer_begin(&to);
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

static PyObject *speed_read(PyObject *data, PyObject *(*read)(reader *, int), PyObject *slowly) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0)
        return NULL;
    PyObject *value = read_whole(bytes, (size_t)size, read);
    return value || PyErr_Occurred() ? value : PyObject_CallFunctionObjArgs(slowly, data, NULL);
}

static PyObject *speed_unpack(PyObject *module, PyObject *data) {
    (void)module;
    return speed_read(data, read_packed, unpack_slowly);
}

static PyObject *speed_loads(PyObject *module, PyObject *data) {
    (void)module;
    return speed_read(data, read_json, loads_slowly);
}

/* Calls of one open cache */

typedef struct {
    PyObject_HEAD shale_cache *cache;
    PyObject *handle; /* NULL: closed */
    PyObject *encode, *decode;
    PyObject *ask; /* the clock, before each call; or NULL */
    Py_ssize_t active;
    char plain; /* not all values are the serializer's */
    int idle_count;
    shale_value idle[MOST_IDLE];
    shale_value *batch;
} calls;

static PyTypeObject *calls_type;

static void leave(calls *self, PyObject *handle) {
    if (self->active)
        self->active--;
    /* It may be the last to hold it, and what closes it may run code; the exception is not its matter. */
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    Py_DECREF(handle);
    PyErr_Restore(kind, value, trace);
}

/* The handle, which the call holds until `leave`; NULL where it is closed, and an exception. */
static PyObject *enter(calls *self) {
    PyObject *handle = self->handle;
    if (!handle) {
        PyObject *error = PyObject_CallFunction(failure, "i", 0);
        if (error) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
        return NULL;
    }
    Py_INCREF(handle);
    self->active++;
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
    if (self->idle_count)
        *value = self->idle[--self->idle_count];
    else
        *value = (shale_value)SHALE_VALUE_INIT;
}

static void give_value(calls *self, shale_value *value) {
    if (value->capacity <= LARGEST_KEPT && self->idle_count < MOST_IDLE)
        self->idle[self->idle_count++] = *value;
    else
        library_value_free(value);
}

static PyObject *raise_failure(shale_status status) {
    PyObject *error = PyObject_CallFunction(failure, "i", (int)status);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

/* A value with one of the fixed metas. NULL without an exception: for the codec. */
static PyObject *decode_fixed(char letter, const char *data, size_t size) {
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
    case 'j': return read_whole(data, size, read_json);
    case 'x': return read_whole(data, size, read_packed);
    }
    if (size)
        value = NULL;
    Py_XINCREF(value);
    return value;
}

/* NULL without an exception: it cannot be read. */
static PyObject *decode(calls *self, const shale_value *value, int by_codec) {
    const char *meta = value->meta, *data = value->data;
    if (self->plain) {
        if (value->meta_size < MARKER_SIZE || memcmp(meta, MARKER, MARKER_SIZE))
            return PyBytes_FromStringAndSize(data, (Py_ssize_t)value->size);
        if (value->meta_size == META_SIZE) {
            PyObject *found = decode_fixed(meta[MARKER_SIZE], data, value->size);
            if (found || PyErr_Occurred())
                return found;
        }
    }
    if (!by_codec)
        return NULL;
    PyObject *found = PyObject_CallFunction(self->decode, "y#y#", meta ? meta : "", (Py_ssize_t)value->meta_size,
                                            data ? data : "", (Py_ssize_t)value->size);
    if (!found && PyErr_ExceptionMatches(unreadable))
        PyErr_Clear();
    return found;
}

/* only_fresh: `otherwise` for what is stale, and for what the codec in Python would have to read. */
static PyObject *get_value(calls *self, PyObject *key, uint32_t flags, PyObject *otherwise, int only_fresh) {
    writer stored;
    writer_begin(&stored);
    PyObject *result = NULL;
    PyObject *handle = write_key(&stored, key) == DONE ? enter(self) : NULL;
    if (handle) {
        shale_value value;
        take_value(self, &value);
        PyThreadState *held = PyEval_SaveThread();
        shale_status status = library_get(self->cache, stored.data, stored.size, flags, &value);
        PyEval_RestoreThread(held);
        if (status < 0)
            raise_failure(status);
        else {
            if (only_fresh ? status == SHALE_OK : status != SHALE_MISS)
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

/* A value's meta and bytes. `*owner` is what the bytes are in, if they are not in the writer. */
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
    writer_begin(&stored);
    writer_begin(&form);
    char meta[256];
    size_t meta_size, size;
    const char *data;
    PyObject *owner = NULL, *handle = NULL;
    int result = -1;
    if (write_key(&stored, key) == DONE && encode(self, value, &form, meta, &meta_size, &data, &size, &owner) == DONE &&
        (handle = enter(self))) {
        shale_set_options options = {.struct_size = sizeof options, .meta = meta, .meta_size = meta_size};
        PyThreadState *held = PyEval_SaveThread();
        shale_status status = library_set(self->cache, stored.data, stored.size, data, size,
                                          meta_size ? &options : NULL);
        PyEval_RestoreThread(held);
        if (status < 0)
            raise_failure(status);
        else
            result = 0;
        leave(self, handle);
    }
    Py_XDECREF(owner);
    writer_end(&form);
    writer_end(&stored);
    return result;
}

/* Up to BATCH keys from `start` on into `found`. 0, or -1 and an exception. */
static int get_batch(calls *self, PyObject *keys, Py_ssize_t start, Py_ssize_t count, uint32_t flags, PyObject *found,
                     shale_value *values) {
    writer stored;
    writer_begin(&stored);
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
    shale_status status = library_get_many(self->cache, (size_t)count, arguments, flags, values, statuses);
    PyEval_RestoreThread(held);
    if (status < 0) {
        raise_failure(status);
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
            library_value_free(&values[index]);
    }
    result = 0;
end:
    writer_end(&stored);
    return result;
}

static void free_batch(shale_value *values) {
    for (int index = 0; values && index < BATCH; index++)
        library_value_free(&values[index]);
    free(values);
}

static PyObject *get_values(calls *self, PyObject *keys, uint32_t flags) {
    PyObject *handle = enter(self);
    if (!handle)
        return NULL;
    shale_value *values = self->batch;
    self->batch = NULL;
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
    if (self->batch)
        free_batch(values);
    else
        self->batch = values;
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
        library_value_free(&self->idle[--self->idle_count]);
    free_batch(self->batch);
    Py_CLEAR(self->encode);
    Py_CLEAR(self->decode);
    Py_CLEAR(self->ask);
    Py_CLEAR(self->handle);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *calls_close(PyObject *object, PyObject *nothing) {
    (void)nothing;
    Py_CLEAR(((calls *)object)->handle);
    Py_RETURN_NONE;
}

/* In a child of fork, in which the threads that were in the middle of a call are gone. */
static PyObject *calls_after_fork(PyObject *object, PyObject *nothing) {
    (void)nothing;
    ((calls *)object)->active = 0;
    Py_RETURN_NONE;
}

static PyMethodDef calls_methods[] = {
    {"close", calls_close, METH_NOARGS, "Later calls raise. Those under way hold the handle."},
    {"after_fork_in_child", calls_after_fork, METH_NOARGS, NULL},
    {0},
};
static PyMemberDef calls_members[] = {
    {"active", T_PYSSIZET, offsetof(calls, active), READONLY, "How many calls are under way."},
    {0},
};
static PyType_Slot calls_slots[] = {
    {Py_tp_new, calls_new},         {Py_tp_traverse, calls_traverse}, {Py_tp_dealloc, calls_dealloc},
    {Py_tp_methods, calls_methods}, {Py_tp_members, calls_members},   {0},
};
static PyType_Spec calls_spec = {
    "shale._speed.Calls", sizeof(calls), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, calls_slots,
};

/* What a cache inherits */

typedef struct {
    PyObject_HEAD PyObject *calls; /* NULL: everything goes the way of Python */
    char sets;                     /* whether a set without options is nothing but that */
} fast;

static PyObject *slowly(PyObject *self, const char *name, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *names) {
    PyObject *method = PyObject_GetAttrString(self, name);
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

static PyObject *fast_get(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    calls *of = (calls *)((fast *)self)->calls;
    if (!of || names || count < 1 || count > 2)
        return slowly(self, "_get_slowly", arguments, count, names);
    /* Who closes the cache meanwhile may be the last to hold it. */
    Py_INCREF((PyObject *)of);
    PyObject *value = get_value(of, arguments[0], 0, count == 2 ? arguments[1] : Py_None, 0);
    Py_DECREF((PyObject *)of);
    return value;
}

static PyObject *fast_set(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    calls *of = (calls *)((fast *)self)->calls;
    if (!of || !((fast *)self)->sets || names || count != 2)
        return slowly(self, "_set_slowly", arguments, count, names);
    Py_INCREF((PyObject *)of);
    int failed = set_value(of, arguments[0], arguments[1]);
    Py_DECREF((PyObject *)of);
    if (failed)
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *fast_put(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    calls *of = (calls *)((fast *)self)->calls;
    if (!of || !((fast *)self)->sets || count != 2)
        return slowly(self, "_store", arguments, count, NULL);
    return fast_set(self, arguments, count, NULL);
}

/* key, flags, otherwise */
static PyObject *fast_get_fresh(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    calls *of = (calls *)((fast *)self)->calls;
    unsigned long flags = count == 3 ? PyLong_AsUnsignedLong(arguments[1]) : 0;
    if (PyErr_Occurred())
        return NULL;
    if (!of || count != 3) {
        PyErr_SetString(PyExc_TypeError, "a key, flags and what is given instead, of a cache that has calls");
        return NULL;
    }
    Py_INCREF((PyObject *)of);
    PyObject *value = get_value(of, arguments[0], (uint32_t)flags, arguments[2], 1);
    Py_DECREF((PyObject *)of);
    return value;
}

static PyObject *fast_get_many(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    calls *of = (calls *)((fast *)self)->calls;
    if (!of || count != 2 || !PyList_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "a list of keys and flags, of a cache that has calls");
        return NULL;
    }
    unsigned long flags = PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred())
        return NULL;
    Py_INCREF((PyObject *)of);
    PyObject *found = get_values(of, arguments[0], (uint32_t)flags);
    Py_DECREF((PyObject *)of);
    return found;
}

static PyObject *fast_calls(PyObject *self, void *nothing) {
    (void)nothing;
    PyObject *of = ((fast *)self)->calls;
    of = of ? of : Py_None;
    Py_INCREF((PyObject *)of);
    return of;
}

static int set_fast_calls(PyObject *self, PyObject *value, void *nothing) {
    (void)nothing;
    if (value == Py_None)
        value = NULL;
    if (value && !PyObject_TypeCheck(value, calls_type)) {
        PyErr_SetString(PyExc_TypeError, "Calls, or None");
        return -1;
    }
    PyObject *before = ((fast *)self)->calls;
    Py_XINCREF(value);
    ((fast *)self)->calls = value;
    Py_XDECREF(before);
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
    "shale._speed.Fast", sizeof(fast), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, fast_slots,
};

/* The module */

static PyObject *speed_setup(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long addresses[4];
    if (!PyArg_ParseTuple(arguments, "KKKKOOOOOOOO", &addresses[0], &addresses[1], &addresses[2], &addresses[3],
                          &failure, &unreadable, &encode_key, &pack_other, &unpack_other, &int_of_bytes, &unpack_slowly,
                          &loads_slowly))
        return NULL;
    library_get = (void *)(uintptr_t)addresses[0];
    library_set = (void *)(uintptr_t)addresses[1];
    library_get_many = (void *)(uintptr_t)addresses[2];
    library_value_free = (void *)(uintptr_t)addresses[3];
    /* For as long as the process lives. */
    Py_INCREF(arguments);
    Py_RETURN_NONE;
}

/* The signature and the text of a method, from those of Python. It stays for as long as the process lives. */
static PyObject *speed_document(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *name;
    PyObject *text;
    if (!PyArg_ParseTuple(arguments, "sU", &name, &text))
        return NULL;
    for (PyMethodDef *method = fast_methods; method->ml_name; method++)
        if (!strcmp(method->ml_name, name)) {
            method->ml_doc = PyUnicode_AsUTF8AndSize(text, NULL);
            Py_INCREF(text);
        }
    Py_RETURN_NONE;
}

static PyMethodDef speed_methods[] = {
    {"document", speed_document, METH_VARARGS, NULL},
    {"setup", speed_setup, METH_VARARGS, "What it calls: addresses of the library's functions, and Python's."},
    {"form", speed_form, METH_O, "(meta, bytes) of a list, tuple or dict; None: for the codec."},
    {"unpack", speed_unpack, METH_O, "As _packed.unpack."},
    {"loads", speed_loads, METH_O, "The value of JSON in bytes."},
    {0},
};
static struct PyModuleDef speed_module = {
    PyModuleDef_HEAD_INIT, "_speed", NULL, -1, speed_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__speed(void) {
    PyObject *module = PyModule_Create(&speed_module);
    PyObject *type = module ? PyType_FromSpec(&fast_spec) : NULL;
    calls_type = type ? (PyTypeObject *)PyType_FromSpec(&calls_spec) : NULL;
    if (!calls_type || PyModule_AddObject(module, "Fast", type) < 0 ||
        PyModule_AddObject(module, "Calls", (PyObject *)calls_type) < 0)
        return NULL;
    Py_INCREF((PyObject *)calls_type);
    return module;
}
