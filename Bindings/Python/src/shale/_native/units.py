"""Converts ages in seconds and capacities as text to the library's numbers."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final, Union

from . import abi
from .errors import InvalidError

NEVER: Final = math.inf
"""An age without a limit."""

Seconds = Union[float, timedelta]
"""A duration: seconds, ``int`` or ``float``, or a ``timedelta``."""

LEASE: Final = 30.0
"""The default time of a lease, seconds."""

_LONGEST_LEASE_MS: Final = 60 * 60 * 1000

_LONGEST_SECONDS: Final = abi.NEVER_MS // 1000
_LARGEST: Final = 2**64 - 1

_CAPACITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(i?)B\s*", re.IGNORECASE)
_PREFIXES: Final = "KMGTP"


def age_ms(seconds: Seconds | None) -> int:
    """Seconds to milliseconds. None is the default, 0 no age at all, NEVER no limit.

    An age above zero is at least a millisecond.
    """
    if seconds is None:
        return 0
    number = _number(seconds, "an age is a number of seconds, a timedelta, shale.NEVER or None")
    if number == 0:
        return abi.NONE_MS
    if not number > 0:
        raise InvalidError(f"an age is not negative: {number!r}")
    return _milliseconds(number)


def duration_ms(name: str, seconds: Seconds) -> int:
    """Seconds to milliseconds. 0 is 0, NEVER no limit; above zero at least a millisecond."""
    number = _number(seconds, f"{name} is a number of seconds or a timedelta")
    if not number >= 0:
        raise InvalidError(f"{name} is not negative: {number!r}")
    return 0 if number == 0 else _milliseconds(number)


def lease_ms(lease: Seconds) -> int:
    """Seconds to milliseconds, in the range of a lease."""
    milliseconds = duration_ms("lease", lease)
    if not 0 < milliseconds <= _LONGEST_LEASE_MS:
        raise InvalidError(f"lease is above 0 seconds and at most an hour, not {lease!r}")
    return milliseconds


def _number(seconds: Seconds, expected: str) -> float:
    if isinstance(seconds, timedelta):
        return seconds.total_seconds()
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise TypeError(f"{expected}, not {type(seconds).__name__}")
    return seconds


def _milliseconds(seconds: float) -> int:
    return abi.NEVER_MS if seconds >= _LONGEST_SECONDS else max(1, round(seconds * 1000))


def seconds(milliseconds: int) -> float:
    """Milliseconds to seconds; the library's "never" to NEVER."""
    return NEVER if milliseconds == abi.NEVER_MS else milliseconds / 1000


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
            raise InvalidError(
                f"{capacity!r} has no unit of capacity; use one such as '1GiB' or '64MB'"
            )
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
    """The number, if it has at most this many bits: ctypes would truncate a larger one."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is an int, not {type(number).__name__}")
    if not least <= number < 1 << bits:
        raise InvalidError(f"{name} is out of range: {number}")
    return number


def int64(name: str, number: int) -> int:
    """The number, if it fits in a signed 64-bit integer."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is an int, not {type(number).__name__}")
    if not abi.INT64_MIN <= number <= abi.INT64_MAX:
        raise InvalidError(f"{name} does not fit in 64 bits: {number}")
    return number
