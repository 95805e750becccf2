"""``incr``: an atomic counter on top of ``shale_increment``.

The library's counter only knows bytes: it would start a missing key without a meta, so that Python
would read eight bytes instead of an int, and it would count on any eight bytes, such as a float or
a text. So the entry is read first. A missing entry is stored by a conditional set, with its meta,
age and tags; an entry of another type is refused.

The entry may disappear in between. The library must not start a new one then, so it gets an
`initial` that overflows with any `delta` of that sign: it changes nothing and returns INVALID, and
the loop starts over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

from .._data.options import set_options
from .._data.values import INT, MISSING
from .._native import abi, library
from .._native.errors import Error, InvalidError, check, failure
from .._native.handles import CallContext
from .._native.units import Seconds, age_ms, int64
from .lookups import remove_missing

_ATTEMPTS: Final = 16
_SIZE: Final = 8


def increment(
    context: CallContext,
    key: bytes,
    delta: int,
    initial: int,
    create: bool,
    max_age: Seconds | None,
    stale: Seconds | None,
    tags: Iterable[bytes],
) -> int | None:
    """The new number. None if there is no counter, and `create` is false."""
    int64("delta", delta)
    int64("initial", initial)
    first = int64("initial + delta", initial + delta)
    age_ms(max_age), age_ms(stale)  # wrong ages are errors for an existing counter too
    overflow = abi.INT64_MAX if delta > 0 else abi.INT64_MIN
    result = ctypes.c_int64()
    error: Error = InvalidError("the counter kept changing")
    for _ in range(_ATTEMPTS):
        number = _look(context, key)
        if number is None:
            if not create:
                return None
            stored = first.to_bytes(_SIZE, "little", signed=True)
            start = set_options(INT, abi.SET_IF_ABSENT, max_age, stale, tags)
            if check(context.set(key, stored, ctypes.byref(start))) == abi.OK:
                return first
            continue
        if delta == 0:
            return number
        status = library.increment(
            context.pointer, key, len(key), delta, overflow, ctypes.byref(result)
        )
        if status == abi.OK:
            return result.value
        error = failure(status)
        if status != abi.E_INVALID:
            break
    raise error


def _look(context: CallContext, key: bytes) -> int | None:
    """The current number, or None; InvalidError for another type."""
    if check(context.get(key, abi.GET_PEEK)) == abi.MISS:
        return None
    data, meta = context.buffer.take()
    if meta == MISSING and remove_missing(context, key):
        return None
    if len(data) != _SIZE or meta not in (b"", INT):
        raise InvalidError(
            "incr counts on an int of 64 bits, or on the 8 bytes of another program's counter; "
            "this entry has another type"
        )
    return int.from_bytes(data, "little", signed=True)
