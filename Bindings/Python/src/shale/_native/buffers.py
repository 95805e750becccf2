"""Memory that the library fills: one ``shale_value``, reused from call to call.

The library grows the buffer as getline(3) does. Python copies from it by slicing a ``char *`` that
shares the memory of the struct's pointer, and so follows the buffer when it moves: one step from C
memory to ``bytes``, a quarter of the cost of ``ctypes.string_at``. The pointer has no bounds; only
``data[:size]`` and ``meta[:meta_size]`` may be read through it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from struct import Struct
from typing import Any, Callable, Final

from . import abi, library

# A buffer that has grown beyond this many bytes is freed after use.
LARGEST_KEPT: Final = 1 << 20

_Pointer: Final = ctypes.POINTER(ctypes.c_char)
# A field of the class is a descriptor, with an offset.
_fields: Any = abi.Value
_DATA: Final[int] = _fields.data.offset
_META: Final[int] = _fields.meta.offset

# Reads size and meta_size from a ``shale_value``.
_SIZES: Final = Struct(
    f"@{_fields.size.offset}x N {_fields.meta_size.offset - _META}x N"
    f" {abi.VALUE_SIZE - _fields.capacity.offset}x"
)


class Buffer:
    """A ``shale_value``, and pointers that follow its ``data`` and ``meta``."""

    __slots__ = ("_largest_kept", "data", "meta", "reference", "struct")

    def __init__(self, struct: abi.Value | None = None, largest_kept: int = LARGEST_KEPT) -> None:
        if struct is None:
            struct = abi.Value()
        self._largest_kept = largest_kept
        struct.struct_size = abi.VALUE_SIZE
        self.struct = struct
        self.reference: Any = ctypes.byref(struct)
        self.data: Any = _Pointer.from_buffer(struct, _DATA)
        self.meta: Any = _Pointer.from_buffer(struct, _META)

    def __del__(self, free: Callable[..., Any] = library.value_free) -> None:
        # A signal handler may have raised in __init__.
        if hasattr(self, "reference"):
            free(self.reference)

    def take(self) -> tuple[bytes, bytes]:
        """(data, meta), copied."""
        struct = self.struct
        size = struct.size
        result = self.data[:size], self.meta[: struct.meta_size]
        if size > self._largest_kept:
            library.value_free(self.reference)
        return result

    def trim(self) -> None:
        """Frees the memory if it is too large to be kept."""
        if self.struct.size > self._largest_kept:
            library.value_free(self.reference)

    def take_meta(self) -> bytes:
        """The meta, copied."""
        meta: bytes = self.meta[: self.struct.meta_size]
        return meta


class BufferArray:
    """Buffers on one array of ``shale_value``."""

    __slots__ = ("_memory", "address", "buffers", "largest_kept")

    def __init__(self, count: int, largest_kept: int) -> None:
        array = (abi.Value * count)()
        self._memory = memoryview(array).cast("B")
        self.address = ctypes.addressof(array)
        self.buffers = [Buffer(array[index], largest_kept) for index in range(count)]
        self.largest_kept = largest_kept

    def sizes(self) -> Iterator[tuple[Any, ...]]:
        """(size, meta_size) of each value."""
        return _SIZES.iter_unpack(self._memory)
