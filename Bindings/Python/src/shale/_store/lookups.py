"""Reads of one key that need more than its value: `in`, `entry`, `pop` and so on."""

from __future__ import annotations

from typing import Any, Final

from .._data.records import Entry, details_of, entry_of
from .._data.values import MISSING, Codec, Unreadable
from .._native import abi, library
from .._native.errors import check
from .._native.handles import CallContext

_NO_VERSION: Final = (1 << 64) - 1
"""The removal of this version leaves any entry in place."""
_UNREADABLE: Final = object()


def contains(context: CallContext, key: bytes, flags: int, codec: Codec) -> bool:
    """Whether a get with these flags would return a value, as far as its meta shows."""
    if check(context.get(key, flags | abi.GET_PEEK | abi.GET_INFO)) == abi.MISS:
        return False
    return codec.knows(context.buffer.take_meta())


def entry(context: CallContext, key: bytes, flags: int, codec: Codec) -> Entry[Any] | None:
    """The entry, or None."""
    if check(context.get(key, flags)) == abi.MISS:
        return None
    details = details_of(context)
    data, meta = context.buffer.take()
    try:
        return entry_of(codec.decode(meta, data), meta, details)
    except Unreadable:
        return None


def version(context: CallContext, key: bytes) -> int | None:
    """The version of a fresh entry; None if there is none, or if it is known to be missing."""
    if check(context.get(key, abi.GET_PEEK | abi.GET_INFO)) == abi.MISS:
        return None
    number = context.buffer.struct.version
    return None if context.buffer.take_meta() == MISSING else number


def current(context: CallContext, key: bytes, default: Any, codec: Codec) -> tuple[Any, int]:
    """(value, version) of a fresh entry. `default` if it cannot be read; version 0 if there is no
    entry."""
    if check(context.get(key, abi.GET_PEEK)) == abi.MISS:
        return default, 0
    number = context.buffer.struct.version
    data, meta = context.buffer.take()
    try:
        return codec.decode(meta, data), number
    except Unreadable:
        return default, number


def remove_missing(context: CallContext, key: bytes) -> bool:
    """Removes an entry that only says that the key is missing. Whether there was one."""
    if check(context.get(key, abi.GET_PEEK | abi.GET_INFO)) == abi.MISS:
        return False
    version = context.buffer.struct.version
    if context.buffer.take_meta() != MISSING:
        return False
    check(library.remove(context.pointer, key, len(key), version))
    return True


def remove_unreadable(context: CallContext, key: bytes, codec: Codec) -> bool:
    """Removes a fresh entry that is a miss to reads. Whether there was one."""
    value, version = current(context, key, _UNREADABLE, codec)
    if value is not _UNREADABLE or not version:
        return False
    check(library.remove(context.pointer, key, len(key), version))
    return True


def pop(context: CallContext, key: bytes, default: Any, codec: Codec) -> Any:
    """Removes the version that was read, and reads again if the version has changed."""
    while True:
        if check(context.get(key, 0)) == abi.MISS:
            if remove_missed(context, key) != abi.CONFLICT:
                return default
            continue
        version = context.buffer.struct.version
        data, meta = context.buffer.take()
        try:
            value = codec.decode(meta, data)
        except Unreadable:
            value = default
        if check(library.remove(context.pointer, key, len(key), version)) == abi.OK:
            return value


def remove_missed(context: CallContext, key: bytes) -> int:
    """Removes what a read missed, such as a stale entry. Like any removal, that of an absent key
    keeps a load under way from storing its value.

    OK if there was an entry, MISS if not, CONFLICT if there is a fresh one by now, which stays.
    """
    status = check(context.get(key, abi.GET_STALE | abi.GET_PEEK | abi.GET_INFO))
    version = context.buffer.struct.version if status == abi.STALE else _NO_VERSION
    return check(library.remove(context.pointer, key, len(key), version))


def renew(context: CallContext, key: bytes, token: int, max_age_ms: int) -> int:
    """Gives the entry a new age, if it has not changed since the token was drawn."""
    return check(library.touch_unchanged(context.pointer, key, len(key), max_age_ms, token))


def end_age(context: CallContext, key: bytes, version: int) -> None:
    """Makes the entry stale, if it has this version. An entry that replaces it between the two
    calls becomes stale instead."""
    status = check(context.get(key, abi.GET_STALE | abi.GET_PEEK | abi.GET_INFO))
    if status != abi.MISS and context.buffer.struct.version == version:
        check(library.touch(context.pointer, key, len(key), abi.NONE_MS))
