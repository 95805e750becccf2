"""``incr``: an atomic counter on top of ``shale_increment``.

The library's counter knows bytes alone: it would start a missing key without a
meta, so that Python would read eight bytes back instead of an int, and it would
count on any eight bytes, a float or a text. So the entry is looked at first. A
missing one is stored by a conditional set, with its meta, age and tags; one
that holds something else is refused.

In between, the entry may go away. The library must not start a new one then, so
it is given an `initial` that overflows with any `delta` of that sign: it changes
nothing and says INVALID, and the loop begins again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

from . import _abi, _library
from ._errors import Error, InvalidError, check, failure
from ._handle import Loan
from ._lookups import forget_missing
from ._options import set_options
from ._units import Seconds, age_ms, int64
from ._values import INT, MISSING

_ATTEMPTS: Final = 16
_SIZE: Final = 8


def increment(
    loan: Loan,
    key: bytes,
    delta: int,
    initial: int,
    create: bool,
    max_age: Seconds | None,
    stale: Seconds | None,
    tags: Iterable[bytes],
) -> int | None:
    """The new number. None where there is no counter, and none is to be created."""
    int64("delta", delta)
    int64("initial", initial)
    first = int64("initial + delta", initial + delta)
    age_ms(max_age), age_ms(stale)  # Wrong ages are errors for an existing counter too.
    overflow = _abi.INT64_MAX if delta > 0 else _abi.INT64_MIN
    result = ctypes.c_int64()
    error: Error = InvalidError("the counter kept changing")
    for _ in range(_ATTEMPTS):
        number = _look(loan, key)
        if number is None:
            if not create:
                return None
            stored = first.to_bytes(_SIZE, "little", signed=True)
            start = set_options(INT, _abi.SET_IF_ABSENT, max_age, stale, tags)
            if check(loan.set(key, stored, ctypes.byref(start))) == _abi.OK:
                return first
            continue
        if delta == 0:
            return number
        status = _library.increment(
            loan.pointer, key, len(key), delta, overflow, ctypes.byref(result)
        )
        if status == _abi.OK:
            return result.value
        error = failure(status)
        if status != _abi.E_INVALID:
            break
    raise error


def _look(loan: Loan, key: bytes) -> int | None:
    """The number that is there, or None; InvalidError for anything else."""
    if check(loan.get(key, _abi.GET_PEEK)) == _abi.MISS:
        return None
    data, meta = loan.buffer.take()
    if meta == MISSING and forget_missing(loan, key):
        return None
    if len(data) != _SIZE or meta not in (b"", INT):
        raise InvalidError(
            "incr counts on an int of 64 bits, or on the 8 bytes of another program's counter; "
            "this entry holds something else"
        )
    return int.from_bytes(data, "little", signed=True)
