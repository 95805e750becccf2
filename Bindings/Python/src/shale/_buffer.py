"""Memory that the library fills: one ``shale_value``, reused from call to call.

The library grows the buffer as getline(3) does. Python copies out of it through
a memoryview, made anew only when the buffer has moved: a slice costs a quarter
of what ``ctypes.string_at`` does. The view is a window of fixed size that begins
where the buffer does and may end beyond it; all that is ever read through it is
``data[:size]`` and ``meta[:meta_size]``.
"""

from __future__ import annotations

import ctypes
from ctypes import string_at
from typing import Any, Callable, Final

from . import _abi, _library

# A buffer that has grown beyond this many bytes is given back after use.
LARGEST_KEPT: Final = 1 << 20

# As much as a buffer that is kept holds, and its meta.
_SPAN: Final = LARGEST_KEPT + (1 << 17)
_Window: Final = ctypes.c_char * _SPAN

_read_head = _abi.VALUE_HEAD.unpack_from


class Buffer:
    """A ``shale_value`` and a window on its memory."""

    __slots__ = ("_base", "_largest_kept", "_window", "reference", "struct")

    def __init__(self, struct: _abi.Value | None = None, largest_kept: int = LARGEST_KEPT) -> None:
        if struct is None:
            struct = _abi.Value()
        self._largest_kept = largest_kept
        struct.struct_size = _abi.VALUE_SIZE
        self.struct = struct
        self.reference: Any = ctypes.byref(struct)
        self._base = 0
        self._window = memoryview(b"")

    def __del__(self, free: Callable[..., Any] = _library.value_free) -> None:
        free(self.reference)

    def take(self) -> tuple[bytes, bytes]:
        """(data, meta), copied out."""
        _, _, data, size, meta, meta_size = _read_head(self.struct)
        if size > self._largest_kept:
            result = string_at(data, size), string_at(meta, meta_size)
            _library.value_free(self.reference)
            self._base = 0
            self._window = memoryview(b"")
            return result
        if data != self._base:
            self._base = data
            # Where there is no data there is no buffer to look at, only nothing.
            self._window = (
                memoryview(_Window.from_address(data)).cast("B") if data else memoryview(b"")
            )
        window = self._window
        if not meta_size:
            return window[:size].tobytes(), b""
        start = meta - data
        end = start + meta_size
        if data and start >= 0 and end <= _SPAN:
            return window[:size].tobytes(), window[start:end].tobytes()
        return window[:size].tobytes(), string_at(meta, meta_size)

    def take_meta(self) -> bytes:
        """The meta alone, copied out."""
        _, _, _, _, meta, size = _read_head(self.struct)
        return string_at(meta, size) if size else b""
