"""The forms in `_packed` of single values from other modules of the standard library.

======  ==============  ======================================================================
letter  value           then
======  ==============  ======================================================================
``D``   ``date``        year (2 bytes), month, day
``w``   ``datetime``    these, hour, minute, second, microsecond (4 bytes), ``fold``, and its
                        zone: ``n`` for none, ``o`` and the microseconds from UTC (8 bytes,
                        signed), or ``z`` and a size and a key of ``zoneinfo`` in UTF-8
``v``   ``timedelta``   days (4 bytes, signed), seconds (4), microseconds (4)
``m``   ``Decimal``     a size, then the text that ``str`` gives
``u``   ``UUID``        16 bytes
======  ==============  ======================================================================

Types are exact, and so are zones: a ``timezone`` with a name of its own has no form, nor has any
other ``tzinfo``. `decimal`, `uuid` and `zoneinfo` are imported by who has such a value.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from ._varint import read_size, size_bytes

LETTERS: Final = (b"D", b"w", b"v", b"m", b"u")

_DATE: Final = struct.Struct("<HBB")
_DATETIME: Final = struct.Struct("<HBBBBBIB")
_TIMEDELTA: Final = struct.Struct("<iII")
_OFFSET: Final = struct.Struct("<q")
_MICROSECOND: Final = timedelta(microseconds=1)


def pack(value: Any) -> bytes | None:
    """The value's form, or None: it has none here."""
    kind = type(value)
    if kind is datetime:
        zone = _pack_zone(value.tzinfo)
        if zone is None:
            return None
        fields = (
            value.year, value.month, value.day, value.hour, value.minute, value.second,
            value.microsecond, value.fold,
        )  # fmt: skip
        return b"w" + _DATETIME.pack(*fields) + zone
    if kind is date:
        return b"D" + _DATE.pack(value.year, value.month, value.day)
    if kind is timedelta:
        return b"v" + _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)
    if kind.__module__ == "decimal":
        from decimal import Decimal

        return b"m" + _text(str(value)) if kind is Decimal else None
    if kind.__module__ == "uuid":
        from uuid import UUID

        return b"u" + value.bytes if kind is UUID else None
    return None


def unpack(letter: bytes, data: bytes, at: int) -> tuple[Any, int]:
    """The value at ``at``, and the position after it. ValueError if it is none."""
    try:
        return _unpack(letter, data, at)
    except (ArithmeticError, LookupError, OSError, struct.error) as error:
        raise ValueError("not a value of its type") from error


def _unpack(letter: bytes, data: bytes, at: int) -> tuple[Any, int]:
    if letter == b"D":
        return date(*_DATE.unpack_from(data, at)), at + _DATE.size
    if letter == b"w":
        year, month, day, hour, minute, second, microsecond, fold = _DATETIME.unpack_from(data, at)
        zone, end = _unpack_zone(data, at + _DATETIME.size)
        moment = datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)
        return moment, end
    if letter == b"v":
        days, seconds, microseconds = _TIMEDELTA.unpack_from(data, at)
        if seconds >= 86_400 or microseconds >= 1_000_000:
            raise ValueError("another spelling of a timedelta")
        return timedelta(days, seconds, microseconds), at + _TIMEDELTA.size
    if letter == b"m":
        from decimal import Decimal

        text, end = _read_text(data, at)
        number = Decimal(text)
        if str(number) != text:
            raise ValueError("another spelling of a Decimal")
        return number, end
    from uuid import UUID

    return UUID(bytes=data[at : at + 16]), at + 16


def _pack_zone(zone: tzinfo | None) -> bytes | None:
    if zone is None:
        return b"n"
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        if zone.tzname(None) != timezone(offset).tzname(None):
            return None
        return b"o" + _OFFSET.pack(offset // _MICROSECOND)
    if type(zone).__module__ == "zoneinfo":
        from zoneinfo import ZoneInfo

        if type(zone) is ZoneInfo and zone.key is not None:
            return b"z" + _text(zone.key)
    return None


def _unpack_zone(data: bytes, at: int) -> tuple[tzinfo | None, int]:
    letter = data[at : at + 1]
    at += 1
    if letter == b"n":
        return None, at
    if letter == b"o":
        (offset,) = _OFFSET.unpack_from(data, at)
        return timezone(offset * _MICROSECOND), at + _OFFSET.size
    if letter != b"z":
        raise ValueError("no such zone")
    from zoneinfo import ZoneInfo

    key, at = _read_text(data, at)
    return ZoneInfo(key), at


def _text(text: str) -> bytes:
    payload = text.encode()
    return size_bytes(len(payload)) + payload


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_size(data, at)
    if size > len(data) - at:
        raise ValueError("a text is cut off")
    return data[at : at + size].decode(), at + size
