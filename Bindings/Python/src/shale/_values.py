r"""How Python values become the bytes and the meta that the cache stores, and back.

The meta of an entry says what its bytes are. No meta at all is plain bytes:
what ``cache[key] = b"..."`` stores is what a C program reads, and the reverse.
Everything else has the meta ``FF 'P' '1'`` and a letter; ``1`` is the version
of the letters below, and a letter never changes its meaning.

=======  ===================  ===============================================
letter   type                 the entry's bytes
=======  ===================  ===============================================
(none)   ``bytes``            themselves
``s``    ``str``              UTF-8
``i``    ``int``, 64 bits     8 bytes, little-endian: what ``shale_increment`` counts
``I``    ``int``, larger      two's complement, little-endian
``f``    ``float``            8 bytes, little-endian, IEEE 754
``N``    ``None``             none
``T``    ``True``             none
``F``    ``False``            none
``j``    ``list``, ``dict``   JSON, where JSON brings back what was stored
``x``    ``list``, ``tuple``, the form of ``_packed``: tuples, sets, nested bytes, keys
         ``dict``, ``set``,   other than str, NaN, very long ints
         ``frozenset``
``x``    ``datetime``,        the form of ``_packed``
         ``date``,
         ``timedelta``,
         ``Decimal``,
         ``UUID``
``z``    anything             the serializer's name follows the letter
``m``    any of these         with a caller's own bytes (an ETag): after the letter the
                              size of the value's meta (seven bits a byte, lowest first),
                              that meta, and the caller's
``-``    no value             none: a loader found that there is no such thing
=======  ===================  ===============================================

Types are exact. A subclass (a named tuple, an ``IntEnum``, an ``OrderedDict``,
numpy's ``float64``) would come back as something else, so it is refused like
any other object unless the cache has a serializer. What has a form, but is nested too
deeply for it or contains itself, is the serializer's too. One that is given everything
(``serialize_all``) writes all that there is, with the meta ``z``, and then nothing else is read.

Reading never runs stored code, and never fails:

* A meta that is not one of ours belongs to another program (an ETag, a content
  type). Its value is bytes.
* A meta of ours with an unknown letter (a newer release), of another
  serializer, or with bytes that don't fit it, can't be read: that is a miss. So
  is what a loader found to be missing, to all but those who load.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Final

from . import _abi, _log, _packed, _packed_types
from ._errors import InvalidError
from ._extension import speed
from ._serializers import Serializer
from ._varint import read_size, size_bytes

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

FIXED_METAS: Final = (STR, INT, BIG_INT, FLOAT, NONE, TRUE, FALSE, JSON, PACKED)

_INT64: Final = struct.Struct("<q")
_FLOAT64: Final = struct.Struct("<d")

# Python reads ints of 640 digits whatever its limit is set to (see
# sys.set_int_max_str_digits); longer ones don't go into JSON.
_LONG_NUMBER: Final = b"0" * 640
_DIGITS_AS_ZEROS: Final = bytes(
    ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256)
)

_JSON_LEAVES: Final = frozenset((str, int, float, bool, type(None)))
_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode
_from_json = json.JSONDecoder().decode


class Unreadable(Exception):
    """The bytes are not what the meta says, or the meta is unknown here."""


class Codec:
    """Values to meta and bytes, and back, for one cache."""

    __slots__ = ("_serialized", "_serializer", "serializes_all", "undecodable")

    def __init__(self, serializer: Serializer | None, serialize_all: bool = False) -> None:
        if serialize_all and serializer is None:
            raise InvalidError("serialize_all needs a serializer")
        self._serializer = serializer
        self.serializes_all = serialize_all
        """Whether the serializer writes and reads every value."""
        self.undecodable = 0
        """How often a value was found that this codec could not read."""
        self._serialized = SERIALIZED
        if serializer is not None:
            self._serialized += serializer.name.encode()

    @property
    def serialized_meta(self) -> bytes:
        """The meta of what the serializer writes."""
        return self._serialized

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        """(meta, bytes). TypeError for what can't be stored without a serializer."""
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
            if _abi.INT64_MIN <= value <= _abi.INT64_MAX:
                return INT, _INT64.pack(value)
            return BIG_INT, _packed.int_bytes(value)
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
        """The value. Unreadable if this cache can't tell what the bytes mean."""
        plain = not self.serializes_all
        if not meta and plain:
            return data
        decoder = _DECODERS.get(meta)
        try:
            if decoder is not None and plain:
                return decoder(data)
            if not meta.startswith(MARKER) and plain:
                return data
            if meta == self._serialized and self._serializer is not None:
                return self._serializer.loads(data)
            if meta.startswith(WITH_META):
                return self.decode(split_meta(meta)[0], data)
        except (MemoryError, Unreadable):
            raise
        except Exception as error:
            self._count_unreadable(meta, error)
            raise Unreadable from error
        if meta != MISSING:
            self._count_unreadable(meta)
        raise Unreadable

    def _count_unreadable(self, meta: bytes, error: Exception | None = None) -> None:
        self.undecodable += 1
        if self.undecodable == 1:
            why = "its bytes are wrong" if error else "another serializer's, or a newer release's"
            _log.warn(
                "a value cannot be read, and is a miss: it has the meta %r, and %s (further ones "
                "are only counted, in stats().own.undecodable)",
                meta,
                why,
                error=error,
            )

    def knows(self, meta: bytes) -> bool:
        """Whether values with this meta can be read at all."""
        if meta.startswith(WITH_META):
            meta = split_meta(meta)[0]
        if meta == self._serialized and self._serializer is not None:
            return True
        plain = meta in _DECODERS or not meta.startswith(MARKER)
        return plain and not self.serializes_all

    def holds_bytes(self, meta: bytes) -> bool:
        """Whether the entry's bytes are the value, one of bytes."""
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
            return PACKED, _packed.pack(value)
        except TypeError:
            return self._serialize(value)
        except InvalidError:
            if self._serializer is None:
                raise
            return self._serialize(value)

    def _serialize(self, value: Any) -> tuple[bytes, bytes]:
        serializer = self._serializer
        if serializer is None:
            raise TypeError(
                f"a value is bytes, str, int, float, bool, None, datetime, date, timedelta, "
                f"Decimal, UUID, or lists, tuples, sets and dicts of these; found "
                f"{_culprit(value)}. Convert it, or open the cache with "
                f"serializer=shale.PickleSerializer() if everybody who can write to the cache's "
                f"directory may run code here"
            ) from None
        data: object = serializer.dumps(value)
        if type(data) is bytes:
            return self._serialized, data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return self._serialized, bytes(data)
        raise TypeError(
            f"a serializer's dumps gives bytes, not {type(data).__name__}"
            + (" (use .encode() on it, and .decode() in loads)" if isinstance(data, str) else "")
        )


def join_meta(meta: bytes, own: bytes) -> bytes:
    """The meta of a value, with a caller's own bytes. Those of bytes are as C would store them."""
    if not isinstance(own, bytes):
        raise TypeError(f"meta is bytes, not {type(own).__name__}")
    if not own:
        return meta
    if not meta and not own.startswith(MARKER):
        return own
    return WITH_META + size_bytes(len(meta)) + meta + own


def split_meta(meta: bytes) -> tuple[bytes, bytes]:
    """The meta that says what the bytes are, and the one that a caller is shown."""
    if not meta.startswith(WITH_META):
        return meta, meta
    try:
        size, at = read_size(meta, len(WITH_META))
    except ValueError:
        return MARKER, meta
    value_meta = meta[at : at + size]
    # What nobody stores: one that is cut off, one within another, and one of no value. The bare
    # marker says that it can't be read.
    if len(value_meta) < size or value_meta == MISSING or value_meta.startswith(WITH_META):
        value_meta = MARKER
    return value_meta, meta[at + size :]


def _fits_json(value: Any, depth: int) -> bool:
    """Whether JSON would bring back this list or dict with every type as it was."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return False
    if depth == _packed.MAX_DEPTH:
        raise _packed.too_deep()
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
    """Compact JSON, or None where JSON can't carry it (NaN, lone surrogates, huge ints)."""
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
    number: int = _INT64.unpack(data)[0]
    return number


def decode_big_int(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _decode_float(data: bytes) -> float:
    number: float = _FLOAT64.unpack(data)[0]
    return number


def _decode_none(data: bytes) -> None:
    _exactly(0, data)


def _decode_true(data: bytes) -> bool:
    return not _exactly(0, data)


def _decode_false(data: bytes) -> bool:
    return bool(_exactly(0, data))


def decode_json(data: bytes) -> Any:
    return _from_json(data.decode())


_DECODERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    STR: _decode_str,
    INT: _decode_int,
    BIG_INT: decode_big_int,
    FLOAT: _decode_float,
    NONE: _decode_none,
    TRUE: _decode_true,
    FALSE: _decode_false,
    JSON: decode_json if speed is None else speed.loads,
    PACKED: _packed.unpack if speed is None else speed.unpack,
}


def _culprit(value: Any) -> str:
    """The name of the first type inside `value` that has no form."""
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is list or kind is tuple:
            stack.extend(reversed(item))
        elif kind is set or kind is frozenset:
            stack.extend(item)
        elif kind is dict:
            for key, nested in reversed(list(item.items())):
                stack += (nested, key)
        elif kind is not bytes and kind not in _JSON_LEAVES and _packed_types.pack(item) is None:
            return f"{kind.__module__}.{kind.__qualname__}"
    return type(value).__name__
