r"""How Python keys become the bytes that the cache stores, and back.

This never changes: equal keys are equal in every process and in every release,
whatever ``PYTHONHASHSEED`` is. The mapping is one to one in both directions.
Two different keys never meet in one entry (``"1"``, ``b"1"``, ``1`` and
``("1",)`` are four keys), and every key that another program stored is the key
of exactly one Python object.

===================  =========================================================
key                  bytes
===================  =========================================================
``bytes``            the bytes themselves: the key that a C program passes
``str``              ``FF 'P' '1' 's'``, then UTF-8
``int``              ``FF 'P' '1' 'i'``, then two's complement, big-endian, in
                     as few bytes as it needs
``tuple``            ``FF 'P' '1' 't'``, then for each item its letter, the
                     size of its payload (seven bits a byte, lowest first) and
                     the payload; for ``bytes`` the letter is ``b``
===================  =========================================================

A program in another language that stores text under the key ``user:1`` and a
Python program that reads ``b"user:1"`` mean the same entry. UTF-8 never
contains the byte ``FF``, so text can't be taken for one of the other forms.

The one exception to "the bytes themselves": ``b""`` (the library has no empty
key) and bytes that happen to be one of the forms above (4 bytes have to
coincide) are stored as ``FF 'P' '1' 'b'`` and then the bytes.

Text is taken as it is, without Unicode normalisation. Lone surrogates (file
names from ``os.fsdecode``) are stored in three bytes each, as the codec error
handler ``surrogatepass`` does. ``bool`` and ``float`` are refused, because
``True == 1 == 1.0`` would make them the same key as the int in some places and
not in others. Tuples nest up to 32 deep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar, Union, cast

from ._errors import InvalidError
from ._varint import read_size, size_bytes

Key = Union[str, bytes, int, tuple[Any, ...]]
"""What a key can be: str, bytes, int, or a tuple of these."""

# Not bound to Key: a list of mixed keys is a list of objects to a type checker.
K = TypeVar("K")

MARKER: Final = b"\xffP1"
MAX_DEPTH: Final = 32

LOCK: Final = MARKER + b"L"
"""And then a stored key: what its lock is taken on. Nothing is stored there."""

_STR: Final = MARKER + b"s"
_INT: Final = MARKER + b"i"
_TUPLE: Final = MARKER + b"t"
_ESCAPED: Final = MARKER + b"b"


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
    """The keys. TypeError for a single one, which could be iterated over as well."""
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"keys are a list of keys, not {type(keys).__name__}; for one give [key]")
    return keys


def encode_keys(keys: Iterable[K]) -> dict[bytes, K]:
    """The keys by their stored form, each once. TypeError for a single key."""
    # Not by the keys' own equality, to which 1 and True are one key.
    return {
        key if type(key) is bytes and key < MARKER and key else encode_key(key): key
        for key in several(cast("Iterable[Any]", keys))
    }


def decode_key(stored: bytes) -> Key:
    """The key whose stored form this is. Never fails: what is none of ours is bytes."""
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

    Every layer of escaping counts as a form of its own, so what matters is what
    lies below the layers: a form, nothing, or bytes that needed no escape.
    """
    at = 0
    while key.startswith(_ESCAPED, at):
        at += len(_ESCAPED)
    innermost = key[at:] if at else key
    return _ESCAPED + key if not innermost or _is_form(innermost) else key


def _is_form(stored: bytes) -> bool:
    if not stored.startswith(MARKER):
        return False
    try:
        _decode_form(stored)
    except ValueError:
        return False
    return True


def _decode_form(stored: bytes) -> Key:
    """Reads a str, int or tuple; ValueError unless these are exactly the bytes it encodes to."""
    head = len(MARKER)
    letter = stored[head : head + 1]
    if letter == b"b":
        raise ValueError("not a form")
    key = _read(letter, stored[head + 1 :], 0)
    if MARKER + b"".join(_payload(key, 0)) != stored:
        raise ValueError("another spelling of a key")
    return key


def _payload(key: object, depth: int) -> tuple[bytes, bytes]:
    """The letter and the payload of a key or of a tuple's item."""
    if isinstance(key, str):
        return b"s", str.encode(key, "utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b", bytes(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return b"i", int(key).to_bytes(_int_size(key), "big", signed=True)
    if isinstance(key, tuple):
        if depth == MAX_DEPTH:
            raise InvalidError(f"a key is nested deeper than {MAX_DEPTH} tuples")
        parts: list[bytes] = []
        for item in key:
            letter, payload = _payload(item, depth + 1)
            parts += (letter, size_bytes(len(payload)), payload)
        return b"t", b"".join(parts)
    raise TypeError(_refusal(key))


def _int_size(number: int) -> int:
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _read(letter: bytes, payload: bytes, depth: int) -> Key:
    if letter == b"s":
        return payload.decode("utf-8", "surrogatepass")
    if letter == b"b":
        return payload
    if letter == b"i":
        return int.from_bytes(payload, "big", signed=True)
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
    text = f"a key is str, bytes, int or a tuple of these, not {type(key).__name__}"
    if isinstance(key, bool):
        return text + " (True == 1, so they would be one key; use a str, or int(key))"
    if isinstance(key, float):
        return text + " (use repr(key))"
    if isinstance(key, (bytearray, memoryview)):
        return text + " (use bytes(key))"
    if isinstance(key, list):
        return text + " (use tuple(key))"
    return text
