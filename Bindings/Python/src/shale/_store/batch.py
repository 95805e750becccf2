"""Many keys in one call.

`struct` packs the arrays of ``shale_bytes`` over one joined block of memory: filling ctypes structs
one by one would cost more than the batch saves. A call has at most BATCH keys and about a megabyte
of values.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final

from .._native import abi, library
from .._native.errors import check
from .._native.handles import BATCH, CallContext

_FOUND: Final = (abi.OK, abi.STALE)
_BATCH_BYTES: Final = 1 << 20

_statuses = ctypes.c_int32 * BATCH


class _Array:
    """An array of ``shale_bytes`` and the memory that it points into."""

    __slots__ = ("_block", "pointer")

    def __init__(self, items: Sequence[bytes]) -> None:
        block = b"".join(items)
        start = ctypes.c_void_p.from_buffer(ctypes.c_char_p(block)).value or 0
        sizes = list(map(len, items))
        fields = chain.from_iterable(zip(accumulate(sizes, initial=start), sizes))
        self._block = block
        self.pointer = struct.pack("@" + "PN" * len(sizes), *fields)


def get_many(
    context: CallContext, keys: Sequence[bytes], flags: int
) -> list[tuple[int, bytes, bytes]]:
    """(position, data, meta) of each existing key."""
    batch = context.batch
    buffers = batch.buffers
    found = []
    for start in range(0, len(keys), BATCH):
        chunk = keys[start : start + BATCH]
        array = _Array(chunk)
        statuses = _statuses()
        check(
            library.get_many(
                context.pointer, len(chunk), array.pointer, flags, batch.address, statuses
            )
        )
        position = start
        for status, buffer, (size, meta_size) in zip(
            statuses[: len(chunk)], buffers, batch.sizes()
        ):
            if status in _FOUND:
                if size <= batch.largest_kept and not meta_size:
                    # Buffer.take, without the cost of its call.
                    found.append((position, buffer.data[:size], b""))
                else:
                    found.append((position, *buffer.take()))
            position += 1
    return found


def set_many(context: CallContext, pairs: Sequence[tuple[bytes, bytes]], options: Any) -> None:
    """Stores pairs of key and data with the same options."""
    for keys, values in _chunks(pairs):
        key_array = _Array(keys)
        value_array = _Array(values)
        check(
            library.set_many(
                context.pointer, len(keys), key_array.pointer, value_array.pointer, options, None
            )
        )


def remove_many(
    context: CallContext, keys: Sequence[bytes], which: list[bytes] | None = None
) -> int:
    """The number of removed keys, which are appended to `which`."""
    removed = 0
    for start in range(0, len(keys), BATCH):
        chunk = keys[start : start + BATCH]
        array = _Array(chunk)
        statuses = _statuses()
        check(library.remove_many(context.pointer, len(chunk), array.pointer, statuses))
        found = [key for key, status in zip(chunk, statuses) if status == abi.OK]
        removed += len(found)
        if which is not None:
            which += found
    return removed


def _chunks(pairs: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in pairs:
        if keys and (len(keys) == BATCH or size + len(value) > _BATCH_BYTES):
            yield keys, values
            keys, values, size = [], [], 0
        keys.append(key)
        values.append(value)
        size += len(value)
    if keys:
        yield keys, values
