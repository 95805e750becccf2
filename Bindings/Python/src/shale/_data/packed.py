"""The form of values that JSON cannot represent: tuples, sets, nested bytes, keys of any type.

`speed` has the same in C.

A value is one letter, then its data. Sizes and counts are seven bits a byte, the lowest first;
numbers are little-endian.

======  ================  ====================================================
letter  value             then
======  ================  ====================================================
``N``   ``None``
``T``   ``True``
``F``   ``False``
``i``   ``int``           a size, then two's complement in that many bytes
``f``   ``float``         8 bytes, IEEE 754
``s``   ``str``           a size, then UTF-8
``b``   ``bytes``         a size, then the bytes
``B``   ``bytearray``     a size, then the bytes
``l``   ``list``          a count, then the items
``t``   ``tuple``         a count, then the items
``d``   ``dict``          a count, then each key and its value, in the dict's order
``O``   ``OrderedDict``   a count, then each key and its value, in its order
``S``   ``set``           a count, then the items, by the order of their forms
``Z``   ``frozenset``     a count, then the items, likewise
======  ================  ====================================================

`packed_types` has further letters. A value has exactly one form: sizes are as short as possible.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import Any, Callable, Final

from .._native.errors import InvalidError
from . import packed_types
from .varint import read_size, size_bytes

MAX_DEPTH: Final = 200

_FLOAT: Final = struct.Struct("<d")
_WITH_BYTES: Final = (b"i", b"s", b"b", b"B")
_DICTS: Final[dict[bytes, Callable[[], dict[Any, Any]]]] = {b"d": dict, b"O": OrderedDict}
_COLLECTIONS: Final[dict[bytes, Callable[[list[Any]], Any]]] = {
    b"l": list,
    b"t": tuple,
    b"S": set,
    b"Z": frozenset,
}
_SIZED: Final = (*_WITH_BYTES, *_DICTS, *_COLLECTIONS)


def int_bytes(number: int) -> bytes:
    """Two's complement, little-endian, in as few bytes as it needs."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "little", signed=True)


def pack(value: object) -> bytes:
    """TypeError for a value without a form, InvalidError for one that is nested too deeply."""
    parts: list[bytes] = []
    _pack(value, parts, 0)
    return b"".join(parts)


def unpack(data: bytes) -> Any:
    """The value of these bytes. ValueError if ``pack`` does not write them."""
    value, end = _unpack(data, 0, 0)
    if end != len(data):
        raise ValueError("there are more bytes after the value")
    return value


def too_deep() -> InvalidError:
    return InvalidError(f"a value is nested deeper than {MAX_DEPTH} levels, or contains itself")


def _pack(value: object, parts: list[bytes], depth: int) -> None:
    kind = type(value)
    if kind is str:
        payload = value.encode("utf-8", "surrogatepass")  # type: ignore[attr-defined]
        parts += (b"s", size_bytes(len(payload)), payload)
    elif kind is bytes or kind is bytearray:
        payload = bytes(value)  # type: ignore[call-overload]
        parts += (b"b" if kind is bytes else b"B", size_bytes(len(payload)), payload)
    elif kind is int:
        payload = int_bytes(value)  # type: ignore[arg-type]
        parts += (b"i", size_bytes(len(payload)), payload)
    elif kind is float:
        parts += (b"f", _FLOAT.pack(value))
    elif value is None:
        parts.append(b"N")
    elif value is True:
        parts.append(b"T")
    elif value is False:
        parts.append(b"F")
    elif depth == MAX_DEPTH:
        raise too_deep()
    elif kind is list or kind is tuple:
        # A copy: another thread may change it between the count and the items.
        items: tuple[Any, ...] = tuple(value)  # type: ignore[arg-type]
        parts += (b"l" if kind is list else b"t", size_bytes(len(items)))
        for item in items:
            _pack(item, parts, depth + 1)
    elif kind is dict or kind is OrderedDict:
        pairs: list[tuple[Any, Any]] = list(value.items())  # type: ignore[attr-defined]
        parts += (b"d" if kind is dict else b"O", size_bytes(len(pairs)))
        for key, item in pairs:
            _pack(key, parts, depth + 1)
            _pack(item, parts, depth + 1)
    elif kind is set or kind is frozenset:
        forms: list[bytes] = []
        for item in tuple(value):  # type: ignore[arg-type]
            form: list[bytes] = []
            _pack(item, form, depth + 1)
            forms.append(b"".join(form))
        parts += (b"S" if kind is set else b"Z", size_bytes(len(forms)), *sorted(forms))
    else:
        other = packed_types.pack(value)
        if other is None:
            raise TypeError(f"no form for {kind.__name__}")
        parts.append(other)


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    letter = data[at : at + 1]
    at += 1
    if letter == b"N":
        return None, at
    if letter == b"T":
        return True, at
    if letter == b"F":
        return False, at
    if letter == b"f":
        if len(data) - at < 8:
            raise ValueError("a float is cut off")
        return _FLOAT.unpack_from(data, at)[0], at + 8
    if letter in packed_types.LETTERS:
        return packed_types.unpack(letter, data, at)
    if letter not in _SIZED:
        raise ValueError("no such letter")
    size, at = read_size(data, at)
    # An item takes at least a byte, so no count exceeds the bytes that are left.
    if size > len(data) - at:
        raise ValueError("a value is cut off")
    if letter in _WITH_BYTES:
        payload = data[at : at + size]
        at += size
        if letter == b"i":
            return int.from_bytes(payload, "little", signed=True), at
        if letter == b"s":
            return payload.decode("utf-8", "surrogatepass"), at
        return payload if letter == b"b" else bytearray(payload), at
    if depth == MAX_DEPTH:
        raise ValueError("nested too deeply")
    if letter in _DICTS:
        table = _DICTS[letter]()
        for _ in range(size):
            key, at = _unpack(data, at, depth + 1)
            item, at = _unpack(data, at, depth + 1)
            try:
                table[key] = item
            except TypeError as error:
                raise ValueError("a dict's key is not hashable") from error
        return table, at
    items = []
    for _ in range(size):
        item, at = _unpack(data, at, depth + 1)
        items.append(item)
    try:
        return _COLLECTIONS[letter](items), at
    except TypeError as error:
        raise ValueError("a set's item is not hashable") from error
