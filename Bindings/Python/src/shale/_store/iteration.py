"""Iteration over keys and over items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .._data.keys import decode_key
from .._data.records import Details, details_of
from .._data.values import HIDDEN, Codec, Unreadable, split_meta
from .._native import abi
from .._native.handles import CallContext, Cursor, Pool
from .._typing import Key

# Entries counted in one call context.
_STEPS: Final = 256


def keys(pool: Pool, flags: int) -> Iterator[Key]:
    """The keys of a cache."""
    for stored, _, meta in _walk(pool, flags | abi.GET_INFO):
        if meta not in HIDDEN:
            yield decode_key(stored)


def infos(pool: Pool, flags: int) -> Iterator[tuple[Key, bytes, Details]]:
    """(key, the caller's own meta, details) of each entry, without its value."""
    cursor = pool.cursor()
    try:
        while True:
            info = pool.run(_info, cursor, flags | abi.GET_INFO)
            if info is None:
                return
            stored, meta, details = info
            if meta not in HIDDEN:
                yield decode_key(stored), split_meta(meta)[1], details
    finally:
        cursor.close()


def count(pool: Pool, flags: int) -> int:
    """The number of keys."""
    cursor = pool.cursor()
    try:
        total = 0
        while True:
            found, ended = pool.run(_count, cursor, flags)
            total += found
            if ended:
                return total
    finally:
        cursor.close()


def items(pool: Pool, flags: int, codec: Codec) -> Iterator[tuple[Key, Any]]:
    """(key, value) of each entry that this cache can read."""
    for stored, data, meta in _walk(pool, flags):
        if meta in HIDDEN:
            continue
        try:
            value = codec.decode(meta, data)
        except Unreadable:
            continue
        yield decode_key(stored), value


def _walk(pool: Pool, flags: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(key, data, meta) of each entry. A call context is used only during a step."""
    cursor = pool.cursor()
    try:
        while True:
            entry = pool.run(_step, cursor, flags)
            if entry is None:
                return
            yield entry
    finally:
        cursor.close()


def _step(context: CallContext, cursor: Cursor, flags: int) -> tuple[bytes, bytes, bytes] | None:
    if cursor.advance(flags, context.key_buffer, context.buffer) == abi.END:
        return None
    stored = context.key_buffer.take()[0]
    if flags & abi.GET_INFO:
        return stored, b"", context.buffer.take_meta()
    data, meta = context.buffer.take()
    return stored, data, meta


def _info(context: CallContext, cursor: Cursor, flags: int) -> tuple[bytes, bytes, Details] | None:
    if cursor.advance(flags, context.key_buffer, context.buffer) == abi.END:
        return None
    stored = context.key_buffer.take()[0]
    details = details_of(context)
    return stored, context.buffer.take_meta(), details


def _count(context: CallContext, cursor: Cursor, flags: int) -> tuple[int, bool]:
    """The number of keys among the next entries, and whether these were the last."""
    found = 0
    for _ in range(_STEPS):
        if cursor.advance(flags | abi.GET_INFO, None, context.buffer) == abi.END:
            return found, True
        found += context.buffer.take_meta() not in HIDDEN
    return found, False
