"""``Cache.reader`` and ``Cache.get_into``: large values without a copy for each step."""

from __future__ import annotations

import ctypes
import io
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .._native import abi, library
from .._native.buffers import Buffer
from .._native.errors import InvalidError, check
from .._native.handles import CallContext

if TYPE_CHECKING:
    from typing_extensions import Buffer as AnyBuffer

    from .store import Store

# Bytes that `peek`, and so readline, looks at.
_AHEAD: Final = 1 << 13


class Reader(io.BufferedIOBase):
    """A value of bytes, as a seekable file to read from, by lines too.

    Its memory is freed when it and all views of it are freed, in any order. One thread at a time
    may use it.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    @property
    def size(self) -> int:
        """The size of the value, bytes."""
        return len(self._open())

    def getbuffer(self) -> memoryview:
        """The whole value, read-only and without a copy. It stays valid after ``close``."""
        return self._open()[:]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        found = self.peek(self._left() if size is None or size < 0 else size)
        self._at += len(found)
        return found

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: AnyBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        size = min(len(target), self._left())
        target[:size] = self._open()[self._at : self._at + size]
        self._at += size
        return size

    def readinto1(self, buffer: AnyBuffer, /) -> int:
        return self.readinto(buffer)

    def peek(self, size: int = _AHEAD, /) -> bytes:
        """Up to ``size`` bytes at the position, which stays."""
        return bytes(self._open()[self._at : self._at + size])

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        size = self.size
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: size}
        if whence not in starts:
            raise InvalidError(f"whence is 0, 1 or 2, not {whence!r}")
        at = starts[whence] + offset
        if at < 0:
            raise InvalidError(f"a position is not negative: {at}")
        self._at = at
        return at

    def tell(self) -> int:
        self._open()
        return self._at

    def close(self) -> None:
        """Frees the memory, unless views use it. May be called again."""
        self._view = memoryview(b"")
        super().close()

    def _open(self) -> memoryview:
        if self.closed:
            raise InvalidError("the reader is closed")
        return self._view

    def _left(self) -> int:
        return max(0, self.size - self._at)


class _Found(NamedTuple):
    status: int
    why: int
    """The flags of a miss, which give its cause."""
    meta: bytes
    size: int


def reader_of(cache: Store[Any, Any], key: Any, flags: int) -> Reader | None:
    buffer = Buffer()
    found = cache._pool.run(_find, cache._encode(key), flags, buffer)
    is_there = _is_there(cache, key, found)
    _emit(cache, key, flags, found)
    return Reader(_view(buffer, found.size).toreadonly()) if is_there else None


def copy_into(cache: Store[Any, Any], key: Any, flags: int, target: AnyBuffer) -> int | None:
    view = memoryview(target)
    if view.readonly:
        raise InvalidError(f"get_into cannot write to {type(target).__name__}")
    found, is_there = cache._pool.run(_copy, cache, key, flags, view.cast("B"))
    _emit(cache, key, flags, found)
    return found.size if is_there else None


def _copy(
    context: CallContext, cache: Store[Any, Any], key: Any, flags: int, target: memoryview
) -> tuple[_Found, bool]:
    buffer = context.buffer
    found = _find(context, cache._encode(key), flags, buffer)
    try:
        is_there = _is_there(cache, key, found)
        if is_there:
            size = found.size
            if size > len(target):
                raise InvalidError(
                    f"the value of {key!r} has {size} bytes, and the buffer only {len(target)}"
                )
            target[:size] = _view(buffer, size)
        return found, is_there
    finally:
        buffer.trim()


def _find(context: CallContext, key: bytes, flags: int, buffer: Buffer) -> _Found:
    status = check(
        library.fast_get(context.pointer, key, library.SIZES[len(key)], flags, buffer.reference)
    )
    struct = buffer.struct
    return _Found(status, struct.flags, buffer.take_meta(), struct.size)


def _is_there(cache: Store[Any, Any], key: Any, found: _Found) -> bool:
    """Whether there is a value of bytes. TypeError for a value of another type."""
    if found.status == abi.MISS:
        return False
    codec = cache._codec
    if not codec.holds_bytes(found.meta):
        if codec.knows(found.meta):
            raise TypeError(f"the value of {key!r} is not bytes; get() reads values of every type")
        return False
    return True


def _emit(cache: Store[Any, Any], key: Any, flags: int, found: _Found) -> None:
    listeners = cache._listeners
    if listeners is not None and not flags & abi.GET_PEEK:
        known = found.status == abi.MISS or cache._codec.holds_bytes(found.meta)
        listeners.emit_lookup(key, found.status, found.why, None if known else found.meta)


def _view(buffer: Buffer, size: int) -> memoryview:
    """The buffer's data. A view keeps the buffer alive."""
    if not size:
        return memoryview(b"")
    memory: Any = (ctypes.c_ubyte * size).from_address(buffer.struct.data)
    memory.owner = buffer
    return memoryview(memory).cast("B")
