"""Iteration over keys and over items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from . import _abi
from ._handle import Cursor, Loan, Pool
from ._keys import Key, decode_key
from ._records import Details, details_of
from ._values import MISSING, Codec, Unreadable, split_meta

# Entries that are counted with one loan.
_STEPS: Final = 256


def keys(pool: Pool, flags: int) -> Iterator[Key]:
    """The keys of a cache."""
    for stored, _, meta in _walk(pool, flags | _abi.GET_INFO):
        if meta != MISSING:
            yield decode_key(stored)


def infos(pool: Pool, flags: int) -> Iterator[tuple[Key, bytes, Details]]:
    """(key, the caller's own meta, details) of each entry, without its value."""
    cursor = pool.cursor()
    try:
        while True:
            info = pool.lend(_info, cursor, flags | _abi.GET_INFO)
            if info is None:
                return
            yield info
    finally:
        cursor.close()


def count(pool: Pool, flags: int) -> int:
    """How many keys there are."""
    cursor = pool.cursor()
    try:
        total = 0
        while True:
            found, ended = pool.lend(_count, cursor, flags)
            total += found
            if ended:
                return total
    finally:
        cursor.close()


def items(pool: Pool, flags: int, codec: Codec) -> Iterator[tuple[Key, Any]]:
    """(key, value) of what can be read."""
    for stored, data, meta in _walk(pool, flags):
        try:
            value = codec.decode(meta, data)
        except Unreadable:
            continue
        yield decode_key(stored), value


def _walk(pool: Pool, flags: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(key, data, meta) of each entry. A loan is held for each step alone."""
    cursor = pool.cursor()
    try:
        while True:
            entry = pool.lend(_step, cursor, flags)
            if entry is None:
                return
            yield entry
    finally:
        cursor.close()


def _step(loan: Loan, cursor: Cursor, flags: int) -> tuple[bytes, bytes, bytes] | None:
    if cursor.advance(flags, loan.key_buffer, loan.buffer) == _abi.END:
        return None
    stored = loan.key_buffer.take()[0]
    if flags & _abi.GET_INFO:
        return stored, b"", loan.buffer.take_meta()
    data, meta = loan.buffer.take()
    return stored, data, meta


def _info(loan: Loan, cursor: Cursor, flags: int) -> tuple[Key, bytes, Details] | None:
    if cursor.advance(flags, loan.key_buffer, loan.buffer) == _abi.END:
        return None
    stored = loan.key_buffer.take()[0]
    details = details_of(loan)
    return decode_key(stored), split_meta(loan.buffer.take_meta())[1], details


def _count(loan: Loan, cursor: Cursor, flags: int) -> tuple[int, bool]:
    """Of the next entries, those that are keys; and whether these were the last."""
    found = 0
    for _ in range(_STEPS):
        if cursor.advance(flags | _abi.GET_INFO, None, loan.buffer) == _abi.END:
            return found, True
        found += loan.buffer.take_meta() != MISSING
    return found, False
