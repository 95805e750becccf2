"""The forms in `packed` of types from other modules of the standard library.

======  ==============  ======================================================================
letter  value           then
======  ==============  ======================================================================
``D``   ``date``        year (2 bytes), month, day
``w``   ``datetime``    these, hour, minute, second, microsecond (4 bytes), ``fold``, and its
                        zone: ``n`` for none, ``o`` and the microseconds from UTC (8 bytes,
                        signed), or ``z`` and a size and a key of ``zoneinfo`` in UTF-8
``c``   ``time``        hour, minute, second, microsecond (4 bytes), ``fold``, and its zone
``v``   ``timedelta``   days (4 bytes, signed), seconds (4), microseconds (4)
``m``   ``Decimal``     a size, then the text that ``str`` gives, with ``E`` for exponents
``u``   ``UUID``        16 bytes
======  ==============  ======================================================================

Types are exact, and so are zones: a ``timezone`` with a name of its own has no form, nor has any
other ``tzinfo``. `decimal`, `uuid` and `zoneinfo` are imported only for such a value.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any, Final

from .varint import read_size, size_bytes

LETTERS: Final = (b"D", b"w", b"c", b"v", b"m", b"u")

_DATE: Final = struct.Struct("<HBB")
_DATETIME: Final = struct.Struct("<HBBBBBIB")
_TIME: Final = struct.Struct("<BBBIB")
_TIMEDELTA: Final = struct.Struct("<iII")
_OFFSET: Final = struct.Struct("<q")
_MICROSECOND: Final = timedelta(microseconds=1)


def pack(value: Any) -> bytes | None:
    """The value's form, or None if it has none."""
    kind = type(value)
    if kind is datetime:
        zone = _pack_zone(value.tzinfo)
        if zone is None:
            return None
        return b"w" + _DATETIME.pack(
            value.year, value.month, value.day, value.hour, value.minute, value.second,
            value.microsecond, value.fold,
        ) + zone  # fmt: skip
    if kind is date:
        return b"D" + _DATE.pack(value.year, value.month, value.day)
    if kind is time:
        zone = _pack_zone(value.tzinfo)
        if zone is None:
            return None
        fields = (value.hour, value.minute, value.second, value.microsecond, value.fold)
        return b"c" + _TIME.pack(*fields) + zone
    if kind is timedelta:
        return b"v" + _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)
    if kind.__module__ == "decimal":
        from decimal import Decimal

        return b"m" + _text(_decimal_text(value)) if kind is Decimal else None
    if kind.__module__ == "uuid":
        from uuid import UUID

        return b"u" + value.bytes if kind is UUID else None
    return None


def unpack(letter: bytes, data: bytes, at: int) -> tuple[Any, int]:
    """The value at ``at``, and the position after it. ValueError for wrong bytes."""
    try:
        return _unpack(letter, data, at)
    except (ArithmeticError, struct.error) as error:
        raise ValueError("not a value of its type") from error


def _unpack(letter: bytes, data: bytes, at: int) -> tuple[Any, int]:
    if letter == b"D":
        return date(*_DATE.unpack_from(data, at)), at + _DATE.size
    if letter == b"w":
        year, month, day, hour, minute, second, microsecond, fold = _DATETIME.unpack_from(data, at)
        zone, end = _unpack_zone(data, at + _DATETIME.size)
        moment = datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)
        return moment, end
    if letter == b"c":
        hour, minute, second, microsecond, fold = _TIME.unpack_from(data, at)
        zone, end = _unpack_zone(data, at + _TIME.size)
        return time(hour, minute, second, microsecond, zone, fold=fold), end
    if letter == b"v":
        days, seconds, microseconds = _TIMEDELTA.unpack_from(data, at)
        if seconds >= 86_400 or microseconds >= 1_000_000:
            raise ValueError("another spelling of a timedelta")
        return timedelta(days, seconds, microseconds), at + _TIMEDELTA.size
    if letter == b"m":
        from decimal import Decimal

        text, end = _read_text(data, at)
        number = Decimal(text)
        if _decimal_text(number) != text:
            raise ValueError("another spelling of a Decimal")
        return number, end
    from uuid import UUID

    if len(data) - at < 16:
        raise ValueError("a UUID is cut off")
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
    key, at = _read_text(data, at)
    return _zone_of(key), at


def _zone_of(key: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError as error:
        raise ValueError("no such zone") from error
    except OSError as error:
        # The key of a folder, or a name that is too long. The exception of a signal handler, such
        # as TimeoutError, has no file name.
        if error.filename is None:
            raise
        raise ValueError("no such zone") from error


def _decimal_text(number: Any) -> str:
    # The context of the thread may choose a small letter.
    return str(number).replace("e", "E")


def _text(text: str) -> bytes:
    payload = text.encode()
    return size_bytes(len(payload)) + payload


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_size(data, at)
    if size > len(data) - at:
        raise ValueError("a text is cut off")
    return data[at : at + size].decode(), at + size
