r"""Converts Python keys to the bytes that the cache stores, and back.

The mapping never changes: equal keys are equal in every process and release, for any
``PYTHONHASHSEED``. It is one to one in both directions: different keys are different entries
(``"1"``, ``b"1"``, ``1`` and ``("1",)`` are four keys), and each key that another program stores is
the key of exactly one Python object, but for those that begin with ``FF 'P' '1'`` and ``L`` or
``F``: they belong to locks and failed loads.

===================  =========================================================
key                  bytes
===================  =========================================================
``bytes``            the bytes themselves: the key that a C program passes
``str``              ``FF 'P' '1' 's'``, then UTF-8
``int``              ``FF 'P' '1' 'i'``, then two's complement, big-endian, in
                     as few bytes as it needs
``date``             ``FF 'P' '1' 'd'``, then the year in two bytes, big-endian,
                     the month and the day
``UUID``             ``FF 'P' '1' 'u'``, then its 16 bytes
``tuple``            ``FF 'P' '1' 't'``, then for each item its letter, the
                     size of its payload (seven bits a byte, lowest first) and
                     the payload; for ``bytes`` the letter is ``b``
===================  =========================================================

The key ``user:1`` of a program in another language is ``b"user:1"`` in Python. UTF-8 never contains
the byte ``FF``, so text is never mistaken for one of the other forms.

The one exception to "the bytes themselves": ``b""`` (the library has no empty key), bytes that have
one of the forms above (which begins with 4 fixed bytes), or that begin as those of locks and failed
loads do, are stored as ``FF 'P' '1' 'b'`` and then the bytes.

Text is not normalised. A lone surrogate (in file names from ``os.fsdecode``) is stored in three
bytes, as by the codec error handler ``surrogatepass``. Types whose equal values differ raise
TypeError: ``True == 1 == 1.0 == Decimal("1.00")``, and 12:00 in London is 13:00 in Berlin. So does
a member of an enum that is no str or int, which cannot be made from bytes. Tuples nest up to 32
deep.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Final, TypeVar, cast

from .._native.errors import InvalidError
from .._typing import Key
from .varint import read_size, size_bytes

# Not bound to Key: a list of mixed keys is a list of objects to a type checker.
K = TypeVar("K")

MARKER: Final = b"\xffP1"
MAX_DEPTH: Final = 32

LOCK: Final = MARKER + b"L"
"""The prefix of a stored key under which the lock of that key is held. Nothing is stored there."""
FAILURE: Final = MARKER + b"F"
"""The prefix of a stored key under which the last failure to load that key is stored."""

_STR: Final = MARKER + b"s"
_INT: Final = MARKER + b"i"
_TUPLE: Final = MARKER + b"t"
_ESCAPED: Final = MARKER + b"b"
_DATE: Final = struct.Struct(">HBB")


def encode_key(key: Key) -> bytes:
    """The stored form. TypeError for a type that can't be a key."""
    kind = type(key)
    if kind is str:
        try:
            return _STR + key.encode()  # type: ignore[union-attr]
        except UnicodeEncodeError:
            return _STR + key.encode("utf-8", "surrogatepass")  # type: ignore[union-attr]
    if kind is bytes:
        if key and not key.startswith(MARKER):  # type: ignore[arg-type, union-attr]
            return key  # type: ignore[return-value]
        return _escape(key)  # type: ignore[arg-type]
    letter, payload = _payload(key, 0)
    if letter == b"b":
        return encode_key(payload)
    return MARKER + letter + payload


def several(keys: Iterable[K]) -> Iterable[K]:
    """The keys. TypeError for a single str or bytes, which could be iterated over too."""
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"keys are a list of keys, not {type(keys).__name__}; for one give [key]")
    return keys


def encode_keys(keys: Iterable[K]) -> dict[bytes, K]:
    """The keys by their stored form, each once. TypeError for a single key."""
    # Not by Python's equality, by which 1 and True are one key.
    return {
        key if type(key) is bytes and key < MARKER and key else encode_key(key): key
        for key in several(cast("Iterable[Any]", keys))
    }


def decode_key(stored: bytes) -> Key:
    """The key with this stored form. Never fails: a form of another program is bytes."""
    if not stored.startswith(MARKER):
        return stored
    if stored.startswith(_ESCAPED):
        key = stored[len(_ESCAPED) :]
        return key if _escape(key) == stored else stored
    try:
        return _decode_form(stored)
    except ValueError:
        return stored


def _escape(key: bytes) -> bytes:
    """Escapes bytes that would otherwise be read back as another key.

    Escaped bytes are a form too, so the innermost bytes decide: they are escaped if they are a
    form or empty.
    """
    at = 0
    while key.startswith(_ESCAPED, at):
        at += len(_ESCAPED)
    innermost = key[at:] if at else key
    return _ESCAPED + key if not innermost or _is_form(innermost) else key


def _is_form(stored: bytes) -> bool:
    if not stored.startswith(MARKER):
        return False
    if stored.startswith((LOCK, FAILURE)):
        return True
    try:
        _decode_form(stored)
    except ValueError:
        return False
    return True


def _decode_form(stored: bytes) -> Key:
    """Reads a str, int or tuple; ValueError unless it encodes to exactly these bytes."""
    head = len(MARKER)
    letter = stored[head : head + 1]
    if letter == b"b":
        raise ValueError("not a form")
    key = _read(letter, stored[head + 1 :], 0)
    if MARKER + b"".join(_payload(key, 0)) != stored:
        raise ValueError("another spelling of a key")
    return key


def _payload(key: object, depth: int) -> tuple[bytes, bytes]:
    """The letter and the payload of a key, or of an item of a tuple."""
    if isinstance(key, str):
        return b"s", str.encode(key, "utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b", bytes(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return b"i", int(key).to_bytes(_int_size(key), "big", signed=True)
    if isinstance(key, date) and not isinstance(key, datetime):
        return b"d", _DATE.pack(key.year, key.month, key.day)
    if _is_uuid(key):
        return b"u", key.bytes  # type: ignore[attr-defined]
    if isinstance(key, tuple):
        if depth == MAX_DEPTH:
            raise InvalidError(f"a key is nested deeper than {MAX_DEPTH} tuples")
        parts: list[bytes] = []
        for item in key:
            letter, payload = _payload(item, depth + 1)
            parts += (letter, size_bytes(len(payload)), payload)
        return b"t", b"".join(parts)
    raise TypeError(_refusal(key))


def _is_uuid(key: object) -> bool:
    kind = type(key)
    # (A program that has one has imported the module.)
    return kind.__module__ == "uuid" and kind.__qualname__ == "UUID"


def _int_size(number: int) -> int:
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _read(letter: bytes, payload: bytes, depth: int) -> Key:
    if letter == b"s":
        return payload.decode("utf-8", "surrogatepass")
    if letter == b"b":
        return payload
    if letter == b"i":
        return int.from_bytes(payload, "big", signed=True)
    if letter == b"d" and len(payload) == _DATE.size:
        return date(*_DATE.unpack(payload))
    if letter == b"u":
        from uuid import UUID

        return UUID(bytes=payload)
    if letter != b"t" or depth == MAX_DEPTH:
        raise ValueError("no such form")
    items = []
    at = 0
    while at < len(payload):
        item = payload[at : at + 1]
        size, at = read_size(payload, at + 1)
        if size > len(payload) - at:
            raise ValueError("an item is cut off")
        items.append(_read(item, payload[at : at + size], depth + 1))
        at += size
    return tuple(items)


def _refusal(key: object) -> str:
    kind = type(key).__name__
    text = f"a key is str, bytes, int, date, UUID or a tuple of these, not {kind}"
    if isinstance(key, bool):
        return text + " (True == 1, so they would be one key; use a str, or int(key))"
    if isinstance(key, float):
        return text + " (use repr(key))"
    if isinstance(key, (bytearray, memoryview)):
        return text + " (use bytes(key))"
    if isinstance(key, list):
        return text + " (use tuple(key))"
    if isinstance(key, (set, frozenset)):
        return text + " (use tuple(sorted(key)))"
    if isinstance(key, (datetime, time)):
        return text + " (use key.isoformat(): equal times may be in different zones)"
    if isinstance(key, Enum):
        return text + " (use key.name)"
    if kind == "Decimal":
        return text + " (Decimal(1) == 1, so they would be one key; use str(key))"
    return text
