"""Memory that the library fills: one ``shale_value``, reused from call to call.

The library grows the buffer as getline(3) does. Python reads it through a
memoryview over that buffer, made anew only when the buffer has moved or grown:
a slice costs a quarter of what ``ctypes.string_at`` does. Nothing outside
``data[:size]`` and ``meta[:meta_size]`` is ever read.
"""

from __future__ import annotations

import ctypes
from ctypes import string_at
from typing import Any, Callable, Final

from . import _abi, _library

# A buffer that has grown beyond this many bytes is given back after use.
LARGEST_KEPT: Final = 1 << 20

_read_head = _abi.VALUE_HEAD.unpack_from


class Buffer:
    """A ``shale_value`` and a view of its memory."""

    __slots__ = ("_base", "_largest_kept", "_span", "_view", "reference", "struct")

    def __init__(self, struct: _abi.Value | None = None, largest_kept: int = LARGEST_KEPT) -> None:
        if struct is None:
            struct = _abi.Value()
        self._largest_kept = largest_kept
        struct.struct_size = _abi.VALUE_SIZE
        self.struct = struct
        self.reference: Any = ctypes.byref(struct)
        self._forget()

    def __del__(self, free: Callable[..., Any] = _library.value_free) -> None:
        free(self.reference)

    def take(self) -> tuple[bytes, bytes]:
        """(data, meta), copied out."""
        _, _, data, size, meta, meta_size = _read_head(self.struct)
        if size > self._largest_kept:
            result = string_at(data, size), string_at(meta, meta_size)
            _library.value_free(self.reference)
            self._forget()
            return result
        if not meta_size:
            if data != self._base or size > self._span:
                self._look(data, size)
            return self._view[:size].tobytes(), b""
        at = meta - data
        if not data or at < 0:
            return string_at(data, size), string_at(meta, meta_size)
        end = at + meta_size
        if data != self._base or size > self._span or end > self._span:
            self._look(data, max(size, end))
        view = self._view
        return view[:size].tobytes(), view[at:end].tobytes()

    def take_meta(self) -> bytes:
        """The meta alone, copied out."""
        _, _, _, _, meta, size = _read_head(self.struct)
        return string_at(meta, size) if size else b""

    def _look(self, data: int, needed: int) -> None:
        span = max(self.struct.capacity, needed)
        self._base = data
        self._span = span
        self._view = (
            memoryview((ctypes.c_char * span).from_address(data)).cast("B")
            if data
            else memoryview(b"")
        )

    def _forget(self) -> None:
        self._base = 0
        self._span = 0
        self._view = memoryview(b"")
