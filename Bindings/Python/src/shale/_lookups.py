"""Single reads that want more than a value: `in`, `entry` and `pop`."""

from __future__ import annotations

from typing import Any

from . import _abi, _library
from ._errors import check
from ._handle import Loan
from ._records import Entry, details_of, entry_of
from ._values import MISSING, Codec, Unreadable


def contains(loan: Loan, key: bytes, flags: int, codec: Codec) -> bool:
    """Whether a get with these flags would find it, as far as its meta tells."""
    if check(loan.get(key, flags | _abi.GET_PEEK | _abi.GET_INFO)) == _abi.MISS:
        return False
    return codec.knows(loan.buffer.take_meta())


def entry(loan: Loan, key: bytes, flags: int, codec: Codec) -> Entry[Any] | None:
    """The value and what is known of it, or None."""
    if check(loan.get(key, flags)) == _abi.MISS:
        return None
    details = details_of(loan)
    data, meta = loan.buffer.take()
    try:
        return entry_of(codec.decode(meta, data), meta, details)
    except Unreadable:
        return None


def version(loan: Loan, key: bytes) -> int | None:
    """That of what is fresh, or None: there is nothing, or what is known to be missing."""
    if check(loan.get(key, _abi.GET_PEEK | _abi.GET_INFO)) == _abi.MISS:
        return None
    number = loan.buffer.struct.version
    return None if loan.buffer.take_meta() == MISSING else number


def current(loan: Loan, key: bytes, default: Any, codec: Codec) -> tuple[Any, int]:
    """(value, version) of what is fresh. `default` for what can't be read; 0 of what is not
    there."""
    if check(loan.get(key, _abi.GET_PEEK)) == _abi.MISS:
        return default, 0
    number = loan.buffer.struct.version
    data, meta = loan.buffer.take()
    try:
        return codec.decode(meta, data), number
    except Unreadable:
        return default, number


def forget_missing(loan: Loan, key: bytes) -> bool:
    """Removes what is only known to be missing. Whether it was that."""
    if check(loan.get(key, _abi.GET_PEEK | _abi.GET_INFO)) == _abi.MISS:
        return False
    version = loan.buffer.struct.version
    if loan.buffer.take_meta() != MISSING:
        return False
    check(_library.remove(loan.pointer, key, len(key), version))
    return True


def pop(loan: Loan, key: bytes, default: Any, codec: Codec) -> Any:
    """Removes the version that was read, and reads again where it is another by then."""
    while True:
        if check(loan.get(key, 0)) == _abi.MISS:
            return default
        version = loan.buffer.struct.version
        data, meta = loan.buffer.take()
        try:
            value = codec.decode(meta, data)
        except Unreadable:
            return default
        if check(_library.remove(loan.pointer, key, len(key), version)) == _abi.OK:
            return value


def renew(loan: Loan, key: bytes, token: int, max_age_ms: int) -> int:
    """Gives the entry a new age, if nothing has happened to it since the token was drawn."""
    return check(_library.touch_untouched(loan.pointer, key, len(key), max_age_ms, token))


def end_age(loan: Loan, key: bytes, version: int) -> None:
    """Makes the entry stale, if it has this version. One that replaces it between these two calls
    becomes stale in its place."""
    status = check(loan.get(key, _abi.GET_STALE | _abi.GET_PEEK | _abi.GET_INFO))
    if status != _abi.MISS and loan.buffer.struct.version == version:
        check(_library.touch(loan.pointer, key, len(key), _abi.NONE_MS))
