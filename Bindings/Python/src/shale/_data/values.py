r"""Converts Python values to the bytes and the meta that the cache stores, and back.

The meta of an entry is the type of its bytes. No meta is plain bytes: a C program reads the bytes
that ``cache[key] = b"..."`` stores, and the reverse. All other types have the meta ``FF 'P' '1'``
and a letter; ``1`` is the version of the letters below, and a letter never changes its meaning.

=======  ===================  ===============================================
letter   type                 the entry's bytes
=======  ===================  ===============================================
(none)   ``bytes``            themselves
``s``    ``str``              UTF-8
``i``    ``int``, 64 bits     8 bytes, little-endian, as for ``shale_increment``
``I``    ``int``, larger      two's complement, little-endian
``f``    ``float``            8 bytes, little-endian, IEEE 754
``N``    ``None``             none
``T``    ``True``             none
``F``    ``False``            none
``j``    ``list``, ``dict``   JSON, if JSON preserves every type
``x``    ``list``, ``tuple``, the form of ``packed``: tuples, sets, nested bytes, keys
         ``dict``, ``set``,   other than str, NaN, very long ints
         ``frozenset``
``x``    ``OrderedDict``,     the form of ``packed``
         ``bytearray``,
         ``datetime``,
         ``date``, ``time``,
         ``timedelta``,
         ``Decimal``,
         ``UUID``
``z``    anything             the serializer's name follows the letter
``m``    any of these         with a caller's own bytes (an ETag): after the letter the
                              size of the value's meta (seven bits a byte, lowest first),
                              that meta, and the caller's
``-``    no value             none: a loader found that there is no value
``!``    no value             a failed load (``_loading/failures.py``)
=======  ===================  ===============================================

Types are exact. The serializer, if the cache has one, gets all other objects, and values that are
nested too deeply or contain themselves. Without a serializer a named tuple is stored as a tuple,
and an instance of a subclass of str, bytes, int or float (an ``IntEnum``, numpy's ``float64``) as
one of that class, to which it is equal. All other objects raise TypeError: a ``defaultdict`` or a
``pandas.Timestamp`` would lose more than its type. With ``serialize_all`` it writes all values,
with the meta ``z``, and only those are read.

Reading never runs stored code, and never fails:

* A meta of another form belongs to another program (an ETag, a content type). Its value is bytes.
* A meta with an unknown letter (of a newer release), of another serializer, or with bytes that do
  not fit it cannot be read: that is a miss. An entry that a loader found to be missing is a miss to
  all calls that do not load.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections import OrderedDict
from typing import Any, Callable, Final

from .._native import abi, log
from .._native.errors import InvalidError
from .._native.extension import speed
from . import packed, packed_types
from .serializers import Serializer
from .varint import read_size, size_bytes

MARKER: Final = b"\xffP1"
BYTES: Final = b""
STR: Final = MARKER + b"s"
INT: Final = MARKER + b"i"
BIG_INT: Final = MARKER + b"I"
FLOAT: Final = MARKER + b"f"
NONE: Final = MARKER + b"N"
TRUE: Final = MARKER + b"T"
FALSE: Final = MARKER + b"F"
JSON: Final = MARKER + b"j"
PACKED: Final = MARKER + b"x"
SERIALIZED: Final = MARKER + b"z"
WITH_META: Final = MARKER + b"m"
MISSING: Final = MARKER + b"-"
FAILED: Final = MARKER + b"!"
HIDDEN: Final = frozenset((MISSING, FAILED))
"""Entries with these metas are no entries to calls that do not load."""

FIXED_METAS: Final = (STR, INT, BIG_INT, FLOAT, NONE, TRUE, FALSE, JSON, PACKED)

_INT64: Final = struct.Struct("<q")
_FLOAT64: Final = struct.Struct("<d")

# Python always reads ints of 640 digits (see sys.set_int_max_str_digits). Longer ones are not
# stored as JSON.
_LONG_NUMBER: Final = b"0" * 640
_DIGITS_AS_ZEROS: Final = bytes(
    ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256)
)

_JSON_LEAVES: Final = frozenset((str, int, float, bool, type(None)))
_COLLECTIONS: Final = frozenset((list, tuple, set, frozenset))

# A RecursionError: JSON of another program that is nested too deeply.
_OWN_ERRORS: Final = (ValueError, RecursionError)
LOADS_ERRORS: Final = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, ImportError, EOFError,
    RecursionError, AssertionError, struct.error, pickle.PickleError,
)  # fmt: skip
"""What a serializer's ``loads`` raises for bytes that it cannot read. All other exceptions are the
caller's: a signal handler that sets a time limit raises its own from any line."""

_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode
_from_json = json.JSONDecoder().decode


class Unreadable(Exception):
    """The bytes do not fit the meta, or this cache does not know the meta."""


class Codec:
    """Converts values to meta and bytes, and back, for one cache."""

    __slots__ = ("_serialized", "_serializer", "serializes_all", "undecodable")

    def __init__(self, serializer: Serializer | None, serialize_all: bool = False) -> None:
        if serialize_all and serializer is None:
            raise InvalidError("serialize_all needs a serializer")
        self._serializer = serializer
        self.serializes_all = serialize_all
        """The serializer writes and reads every value."""
        self.undecodable = 0
        """The number of values that this codec could not read."""
        self._serialized = SERIALIZED
        if serializer is not None:
            self._serialized += serializer.name.encode()

    @property
    def serializer(self) -> Serializer | None:
        return self._serializer

    @property
    def serialized_meta(self) -> bytes:
        """The meta of the serializer's values."""
        return self._serialized

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        """(meta, bytes). TypeError for a value that needs a serializer."""
        if self.serializes_all:
            return self._serialize(value)
        kind = type(value)
        if kind is bytes:
            return BYTES, value
        if kind is str:
            try:
                return STR, value.encode()
            except UnicodeEncodeError:
                return STR, value.encode("utf-8", "surrogatepass")
        if kind is int:
            if abi.INT64_MIN <= value <= abi.INT64_MAX:
                return INT, _INT64.pack(value)
            return BIG_INT, packed.int_bytes(value)
        if kind is dict or kind is list or kind is tuple:
            return self._encode_other(value)
        if kind is float:
            return FLOAT, _FLOAT64.pack(value)
        if value is None:
            return NONE, b""
        if kind is bool:
            return (TRUE if value else FALSE), b""
        return self._encode_other(value)

    def decode(self, meta: bytes, data: bytes) -> Any:
        """The value. Raises Unreadable if this cache cannot read it."""
        plain = not self.serializes_all
        if not meta and plain:
            return data
        decoder = DECODERS.get(meta)
        if decoder is not None and plain:
            return self._read(decoder, meta, data, _OWN_ERRORS)
        if not meta.startswith(MARKER) and plain:
            return data
        if meta == self._serialized and self._serializer is not None:
            return self._read(self._serializer.loads, meta, data, LOADS_ERRORS)
        if meta.startswith(WITH_META):
            return self.decode(split_meta(meta)[0], data)
        if meta not in HIDDEN:
            self._count_unreadable(meta)
        raise Unreadable

    def _read(
        self,
        read: Callable[[bytes], Any],
        meta: bytes,
        data: bytes,
        errors: tuple[type[Exception], ...],
    ) -> Any:
        try:
            return read(data)
        except errors as error:
            self._count_unreadable(meta, error)
            raise Unreadable from error

    def _count_unreadable(self, meta: bytes, error: Exception | None = None) -> None:
        self.undecodable += 1
        if self.undecodable == 1:
            why = "wrong bytes" if error else "is of another serializer or a newer release"
            log.warn(
                "a value cannot be read, and is a miss: it has the meta %r and %s (further ones "
                "are only counted, in stats().own.undecodable)",
                meta,
                why,
                error=error,
            )

    def knows(self, meta: bytes) -> bool:
        """Whether this cache can read values with this meta."""
        if meta.startswith(WITH_META):
            meta = split_meta(meta)[0]
        if meta == self._serialized and self._serializer is not None:
            return True
        plain = meta in DECODERS or not meta.startswith(MARKER)
        return plain and not self.serializes_all

    def holds_bytes(self, meta: bytes) -> bool:
        """Whether the value is bytes, and so equal to the entry's bytes."""
        if meta.startswith(WITH_META):
            meta = split_meta(meta)[0]
        return not meta.startswith(MARKER) and not self.serializes_all

    def _encode_other(self, value: Any) -> tuple[bytes, bytes]:
        if speed is not None:
            form: tuple[bytes, bytes] | None = speed.form(value)
            if form is not None:
                return form
        try:
            if _fits_json(value, 0):
                data = _json(value)
                if data is not None:
                    return JSON, data
            return PACKED, packed.pack(value)
        except TypeError:
            return self._serialize(value)
        except InvalidError:
            if self._serializer is None:
                raise
            return self._serialize(value)

    def _serialize(self, value: Any) -> tuple[bytes, bytes]:
        serializer = self._serializer
        if serializer is None:
            try:
                return self.encode(_exact(value))
            except TypeError as error:
                found = str(error)
            raise TypeError(
                f"a value is bytes, bytearray, str, int, float, bool, None, datetime, date, time, "
                f"timedelta, Decimal, UUID, or lists, tuples, sets and dicts of these; found "
                f"{found}. Convert it, or open the cache with "
                f"serializer=shale.PickleSerializer() if all who can write to the cache's "
                f"directory may run code here"
            ) from None
        data: object = serializer.dumps(value)
        if type(data) is bytes:
            return self._serialized, data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return self._serialized, bytes(data)
        raise TypeError(
            f"a serializer's dumps returns bytes, not {type(data).__name__}"
            + (" (use .encode() on it, and .decode() in loads)" if isinstance(data, str) else "")
        )


def join_meta(meta: bytes, own: bytes) -> bytes:
    """The meta of a value with a caller's own bytes. For a value of bytes it is as C stores it."""
    if not isinstance(own, bytes):
        raise TypeError(f"meta is bytes, not {type(own).__name__}")
    if not own:
        return meta
    if not meta and not own.startswith(MARKER):
        return own
    return WITH_META + size_bytes(len(meta)) + meta + own


def split_meta(meta: bytes) -> tuple[bytes, bytes]:
    """The meta with the type of the bytes, and the meta for the caller."""
    if not meta.startswith(WITH_META):
        return meta, meta
    try:
        size, at = read_size(meta, len(WITH_META))
    except ValueError:
        return MARKER, meta
    value_meta = meta[at : at + size]
    # A meta that is cut off, nested, or of no value is never stored. The bare marker makes it
    # unreadable.
    if len(value_meta) < size or value_meta == MISSING or value_meta.startswith(WITH_META):
        value_meta = MARKER
    return value_meta, meta[at + size :]


def _fits_json(value: Any, depth: int) -> bool:
    """Whether JSON preserves every type in this list or dict."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return False
    if depth == packed.MAX_DEPTH:
        raise packed.too_deep()
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        value = value.values()
    # One pass in C over the types; Python looks only at what nests.
    if _JSON_LEAVES.issuperset(map(type, value)):
        return True
    for item in value:
        if type(item) not in _JSON_LEAVES and not _fits_json(item, depth + 1):
            return False
    return True


def _json(value: Any) -> bytes | None:
    """Compact JSON, or None if JSON cannot represent it (NaN, lone surrogates, huge ints)."""
    try:
        data: bytes = _to_json(value).encode()
    except ValueError:
        return None
    if len(data) >= len(_LONG_NUMBER) and _LONG_NUMBER in data.translate(_DIGITS_AS_ZEROS):
        return None
    return data


def _exactly(size: int, data: bytes) -> bytes:
    if len(data) != size:
        raise ValueError(f"expected {size} bytes")
    return data


def _decode_str(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _decode_int(data: bytes) -> int:
    number: int = _INT64.unpack(_exactly(8, data))[0]
    return number


def decode_big_int(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _decode_float(data: bytes) -> float:
    number: float = _FLOAT64.unpack(_exactly(8, data))[0]
    return number


def _decode_none(data: bytes) -> None:
    _exactly(0, data)


def _decode_true(data: bytes) -> bool:
    return not _exactly(0, data)


def _decode_false(data: bytes) -> bool:
    return bool(_exactly(0, data))


def decode_json(data: bytes) -> Any:
    return _from_json(data.decode())


DECODERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    STR: _decode_str,
    INT: _decode_int,
    BIG_INT: decode_big_int,
    FLOAT: _decode_float,
    NONE: _decode_none,
    TRUE: _decode_true,
    FALSE: _decode_false,
    JSON: decode_json if speed is None else speed.loads,
    PACKED: packed.unpack if speed is None else speed.unpack,
}


def _exact(value: Any, depth: int = 0) -> Any:
    """The value with a base class in place of each subclass. TypeError, with the name of the type,
    for a value that has no form."""
    kind = type(value)
    if kind in _JSON_LEAVES or kind is bytes or kind is bytearray:
        return value
    if depth == packed.MAX_DEPTH:
        raise packed.too_deep()
    if kind in _COLLECTIONS or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        base = kind if kind in _COLLECTIONS else tuple
        return base([_exact(item, depth + 1) for item in tuple.__iter__(tuple(value))])
    if kind is dict or kind is OrderedDict:
        pairs = [
            (_exact(key, depth + 1), _exact(item, depth + 1)) for key, item in list(value.items())
        ]
        table = kind(pairs)
        if len(table) == len(pairs):
            return table
    elif isinstance(value, str):
        return str.__str__(value)
    elif isinstance(value, int):
        return int.__int__(value)
    elif isinstance(value, float):
        return float.__float__(value)
    elif isinstance(value, bytes):
        return memoryview(value).tobytes()
    elif packed_types.pack(value) is not None:
        return value
    raise TypeError(f"{kind.__module__}.{kind.__qualname__}")
