"""Ages in seconds and capacities in words, as the library's numbers."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final, Union

from . import _abi
from ._errors import InvalidError

NEVER: Final = math.inf
"""An age without end."""

Seconds = Union[float, timedelta]
"""A duration: seconds, ``int`` or ``float``, or a ``timedelta``."""

LEASE: Final = 30.0
"""Seconds that a lease lasts, if nothing else is said."""

_LONGEST_LEASE_MS: Final = 60 * 60 * 1000

_LONGEST_SECONDS: Final = _abi.NEVER_MS // 1000
_LARGEST: Final = 2**64 - 1

_CAPACITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(i?)B\s*", re.IGNORECASE)
_PREFIXES: Final = "KMGTP"


def age_ms(seconds: Seconds | None) -> int:
    """Seconds to milliseconds. None is the default, 0 no age at all, NEVER without end.

    An age above zero is at least a millisecond.
    """
    if seconds is None:
        return 0
    number = _number(seconds, "an age is a number of seconds, a timedelta, shale.NEVER or None")
    if number == 0:
        return _abi.NONE_MS
    if not number > 0:
        raise InvalidError(f"an age is not negative: {number!r}")
    return _milliseconds(number)


def duration_ms(name: str, seconds: Seconds) -> int:
    """Seconds to milliseconds. 0 is 0, NEVER without end; above zero at least a millisecond."""
    number = _number(seconds, f"{name} is a number of seconds or a timedelta")
    if not number >= 0:
        raise InvalidError(f"{name} is not negative: {number!r}")
    return 0 if number == 0 else _milliseconds(number)


def lease_ms(lease: Seconds) -> int:
    """Seconds to milliseconds; what the library takes as a lease's time."""
    milliseconds = duration_ms("lease", lease)
    if not 0 < milliseconds <= _LONGEST_LEASE_MS:
        raise InvalidError(f"a lease lasts above 0 seconds and up to an hour, not {lease!r}")
    return milliseconds


def _number(seconds: Seconds, expected: str) -> float:
    if isinstance(seconds, timedelta):
        return seconds.total_seconds()
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(f"{expected}, not {type(seconds).__name__}")
    return seconds


def _milliseconds(seconds: float) -> int:
    return _abi.NEVER_MS if seconds >= _LONGEST_SECONDS else max(1, round(seconds * 1000))


def seconds(milliseconds: int) -> float:
    """Milliseconds to seconds; the library's "never" to NEVER."""
    return NEVER if milliseconds == _abi.NEVER_MS else milliseconds / 1000


def capacity_bytes(capacity: Union[int, str, None]) -> int:
    """Bytes from 1073741824, "1GiB" (powers of 1024) or "64MB" (powers of 1000); None is 0."""
    if capacity is None:
        return 0
    if isinstance(capacity, str):
        match = _CAPACITY.fullmatch(capacity)
        if match is None:
            raise InvalidError(
                f"a capacity is bytes, or a string such as '1GiB' or '64MB', not {capacity!r}"
            )
        number, prefix, binary = match.groups()
        if binary and not prefix:
            raise InvalidError(f"a capacity has no unit such as in {capacity!r}")
        base = 1024 if binary else 1000
        unit = base ** (_PREFIXES.index(prefix.upper()) + 1) if prefix else 1
        whole, _, fraction = number.partition(".")
        size = int(whole) * unit
        if fraction:
            size += int(fraction) * unit // 10 ** len(fraction)
    else:
        size = capacity
    return unsigned("capacity", size, 64, least=1)


def unsigned(name: str, number: int, bits: int, *, least: int = 0) -> int:
    """The number, if it is one that ctypes would not cut off silently."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is an int, not {type(number).__name__}")
    if not least <= number < 1 << bits:
        raise InvalidError(f"{name} is out of range: {number}")
    return number


def int64(name: str, number: int) -> int:
    """The number, if it fits in a signed 64-bit integer."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is an int, not {type(number).__name__}")
    if not _abi.INT64_MIN <= number <= _abi.INT64_MAX:
        raise InvalidError(f"{name} does not fit in 64 bits: {number}")
    return number
