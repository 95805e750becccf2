"""Iteration over keys and over items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import _abi
from ._handle import Pool
from ._keys import Key, decode_key
from ._values import Codec, Unreadable


def keys(pool: Pool, flags: int) -> Iterator[Key]:
    """The keys of a cache."""
    for stored, _, _ in _walk(pool, flags, with_values=False):
        yield decode_key(stored)


def items(pool: Pool, flags: int, codec: Codec) -> Iterator[tuple[Key, Any]]:
    """(key, value) of what can be read."""
    for stored, data, meta in _walk(pool, flags, with_values=True):
        try:
            value = codec.decode(meta, data)
        except Unreadable:
            continue
        yield decode_key(stored), value


def _walk(pool: Pool, flags: int, *, with_values: bool) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(key, data, meta) of each entry. A lease is held for each step alone."""
    cursor = pool.cursor()
    data = meta = b""
    try:
        while True:
            try:
                lease = pool.acquire()
            except IndexError:
                lease = pool.make()
            try:
                value = lease.buffer if with_values else None
                if cursor.advance(flags, lease.key_buffer, value) == _abi.END:
                    return
                stored = lease.key_buffer.take()[0]
                if value is not None:
                    data, meta = value.take()
            finally:
                pool.release(lease)
            yield stored, data, meta
    finally:
        cursor.close()
