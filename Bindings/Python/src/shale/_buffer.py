"""Memory that the library fills: one ``shale_value``, reused from call to call.

The library grows the buffer as getline(3) does. Python copies out of it by
slicing a ``char *`` that lies over the struct's own pointer, so that it follows
the buffer wherever it moves: one step from C memory to ``bytes``, a quarter of
the cost of ``ctypes.string_at``. Such a pointer knows no end. All that is ever
read through it is ``data[:size]`` and ``meta[:meta_size]``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from struct import Struct
from typing import Any, Callable, Final

from . import _abi, _library

# A buffer that has grown beyond this many bytes is given back after use.
LARGEST_KEPT: Final = 1 << 20

_Pointer: Final = ctypes.POINTER(ctypes.c_char)
# A field of the class is a descriptor, whatever it is of an instance.
_fields: Any = _abi.Value
_DATA: Final[int] = _fields.data.offset
_META: Final[int] = _fields.meta.offset

# size and meta_size, out of a whole ``shale_value``.
_SIZES: Final = Struct(
    f"@{_fields.size.offset}x N {_fields.meta_size.offset - _META}x N"
    f" {_abi.VALUE_SIZE - _fields.capacity.offset}x"
)


class Buffer:
    """A ``shale_value``, and pointers that follow its ``data`` and ``meta``."""

    __slots__ = ("_largest_kept", "data", "meta", "reference", "struct")

    def __init__(self, struct: _abi.Value | None = None, largest_kept: int = LARGEST_KEPT) -> None:
        if struct is None:
            struct = _abi.Value()
        self._largest_kept = largest_kept
        struct.struct_size = _abi.VALUE_SIZE
        self.struct = struct
        self.reference: Any = ctypes.byref(struct)
        self.data: Any = _Pointer.from_buffer(struct, _DATA)
        self.meta: Any = _Pointer.from_buffer(struct, _META)

    def __del__(self, free: Callable[..., Any] = _library.value_free) -> None:
        # A signal may have ended __init__ early.
        if hasattr(self, "reference"):
            free(self.reference)

    def take(self) -> tuple[bytes, bytes]:
        """(data, meta), copied out."""
        struct = self.struct
        size = struct.size
        result = self.data[:size], self.meta[: struct.meta_size]
        if size > self._largest_kept:
            _library.value_free(self.reference)
        return result

    def trim(self) -> None:
        """Gives back what is too large to be kept."""
        if self.struct.size > self._largest_kept:
            _library.value_free(self.reference)

    def take_meta(self) -> bytes:
        """The meta alone, copied out."""
        meta: bytes = self.meta[: self.struct.meta_size]
        return meta


class BufferArray:
    """Buffers on one array of ``shale_value``."""

    __slots__ = ("_memory", "address", "buffers", "largest_kept")

    def __init__(self, count: int, largest_kept: int) -> None:
        array = (_abi.Value * count)()
        self._memory = memoryview(array).cast("B")
        self.address = ctypes.addressof(array)
        self.buffers = [Buffer(array[index], largest_kept) for index in range(count)]
        self.largest_kept = largest_kept

    def sizes(self) -> Iterator[tuple[Any, ...]]:
        """(size, meta_size) of each value."""
        return _SIZES.iter_unpack(self._memory)
