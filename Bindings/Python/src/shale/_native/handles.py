"""The handle of an open cache, and the contexts of its calls.

C does not detect that a handle is closed while calls use it; Python has to. A call takes a
`CallContext` for as long as it runs. Idle contexts are in a list, whose ``pop`` and ``append`` are
atomic: a call costs two list operations and no lock. Each running call has a context of its own,
with a buffer of its own: threads, signal handlers, finalisers and a Python clock that use the cache
during another call never share one. A call returns its context to the list that it took it from.

Invariants

* A context references the handle. The handle closes when nothing references it, or earlier, when
  all contexts that were made are idle.
* `Pool.close` leaves no context to take: the pool gets a new list, which stays empty. Running calls
  finish; the last of them frees the old list, its context and the handle.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Final, TypeVar

from . import abi, library
from .buffers import Buffer, BufferArray
from .errors import InvalidError, check, failure

if TYPE_CHECKING:
    from typing import SupportsIndex

    from .clock import Clock

T = TypeVar("T")

BATCH: Final = 128
"""Keys in one call of the library."""

# Of each of the BATCH buffers, bytes.
_LARGEST_KEPT: Final = 1 << 14


class Handle:
    """A ``shale_cache *``. ``pointer`` is NULL once it is closed."""

    __slots__ = ("clock", "pointer")

    def __init__(self, directory: bytes | None, options: abi.Options, clock: Clock | None) -> None:
        self.pointer = ctypes.c_void_p()
        # C calls it, so it has to live as long as the handle.
        self.clock = clock
        if clock is not None:
            options.now_ms = clock.function
            # For a thread that has not asked yet. (ctypes turns 0 into None.)
            options.now_context = clock.ask() or 1
        status = library.open_cache(directory, ctypes.byref(options), ctypes.byref(self.pointer))
        if status < 0:
            raise failure(status, None if directory is None else os.fsdecode(directory))

    def close(self, close_cache: Callable[..., int] = library.close_cache) -> int:
        """The library's status; OK if the handle is closed already."""
        pointer = self.pointer.value
        if pointer is None:
            return abi.OK
        self.pointer.value = None
        return close_cache(pointer)

    def __del__(self) -> None:
        # A signal handler may have raised in __init__.
        if hasattr(self, "pointer"):
            self.close()


class CallContext:
    """What one call uses: the handle, and memory for its result."""

    __slots__ = ("_batch", "_second", "buffer", "handle", "pointer")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        # Constant while the handle is referenced.
        self.pointer = library.pointer_argument(handle.pointer.value)
        self.buffer = Buffer()
        self._second: Buffer | None = None
        self._batch: BufferArray | None = None

    def get(self, key: bytes, flags: int) -> int:
        """The status of ``shale_get`` into `buffer`."""
        return library.fast_get(
            self.pointer, key, library.SIZES[len(key)], flags, self.buffer.reference
        )

    def set(self, key: bytes, data: bytes, options: Any) -> int:
        """The status of ``shale_set``. options: a pointer, or None."""
        sizes = library.SIZES
        return library.fast_set(self.pointer, key, sizes[len(key)], data, sizes[len(data)], options)

    def now_ms(self) -> int:
        """The time at which this call evaluates entries."""
        clock = self.handle.clock
        return time.time_ns() // 1_000_000 if clock is None else clock.answer

    @property
    def key_buffer(self) -> Buffer:
        """A second buffer, for a cursor's keys."""
        if self._second is None:
            self._second = Buffer()
        return self._second

    @property
    def batch(self) -> BufferArray:
        """Buffers for BATCH values."""
        if self._batch is None:
            self._batch = BufferArray(BATCH, _LARGEST_KEPT)
        return self._batch


class _ClockedContexts(list[CallContext]):
    """Idle contexts of a cache with a clock: taking one asks the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def pop(self, _index: SupportsIndex = -1) -> CallContext:
        context = super().pop()
        try:
            self._clock.ask()
        except BaseException:
            self.append(context)
            raise
        return context


class Pool:
    """The call contexts of one open cache."""

    def __init__(self, handle: Handle) -> None:
        self._handle: Handle | None = handle
        self.clock = handle.clock
        self.idle = self._no_contexts(handle)
        self._made = 0
        # Makes calls in C, and counts them.
        self._calls: Any = None
        # Reentrant: a signal handler may use the cache in the middle of `make`.
        self._lock = threading.RLock()
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        _open_pools.add(self)

    @staticmethod
    def _no_contexts(handle: Handle) -> list[CallContext]:
        return [] if handle.clock is None else _ClockedContexts(handle.clock)

    @property
    def closed(self) -> bool:
        return self._handle is None

    def calls_for(self, kind: Callable[..., Any], encode: Any, decode: Any, plain: bool) -> Any:
        """A new object that makes this cache's calls in C."""
        handle = self._handle
        assert handle is not None
        ask = None if handle.clock is None else handle.clock.ask
        self._calls = kind(handle.pointer.value, handle, encode, decode, ask, plain)
        return self._calls

    def make(self) -> CallContext:
        """A new context, for a call that found `idle` empty (IndexError)."""
        handle = self._handle
        if handle is not None and handle.clock is not None:
            handle.clock.ask()
        with self._lock:
            if self._handle is None:
                raise InvalidError("the cache is closed") from None
            context = CallContext(self._handle)
            self._made += 1
            return context

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """``work(context, *arguments)``."""
        idle = self.idle
        try:
            context = idle.pop()
        except IndexError:
            context = self.make()
        try:
            return work(context, *arguments)
        finally:
            idle.append(context)

    def cursor(self) -> Cursor:
        """A new cursor. The pool closes it before the cache, if it is still open then."""
        with self._lock:
            if self._handle is None:
                raise InvalidError("the cache is closed")
            cursor = Cursor(self._handle)
            self._cursors.add(cursor)
            return cursor

    def close(self) -> int:
        """The status of closing; OK if the last running call will close the handle."""
        with self._lock:
            handle = self._handle
            if handle is None:
                return abi.OK
            self._handle = None
            idle, self.idle = self.idle, []
            under_way = 0
            if self._calls is not None:
                self._calls.close()
                under_way = self._calls.active
            back = 0
            while True:
                try:
                    # Does not ask the clock.
                    list.pop(idle)
                except IndexError:
                    break
                back += 1
            cursors_closed = [cursor.close() for cursor in list(self._cursors)]
            if back == self._made and all(cursors_closed) and not under_way:
                return handle.close()
            return abi.OK

    def after_fork_in_child(self) -> None:
        """The child has none of the threads that used the other contexts and cursors."""
        self._lock = threading.RLock()
        # Without the GIL one of those threads may have the lock of the list.
        if self._handle is not None:
            self.idle = self._no_contexts(self._handle)
        self._made = 0
        if self._calls is not None:
            self._calls.after_fork_in_child()
        for cursor in list(self._cursors):
            cursor.after_fork_in_child()


class Cursor:
    """A ``shale_cursor *``, which one thread at a time may advance."""

    __slots__ = ("__weakref__", "_closing", "_handle", "_lock", "_pointer")

    def __init__(self, handle: Handle) -> None:
        self._handle: Handle | None = handle
        self._lock = threading.Lock()
        self._closing = False
        self._pointer = ctypes.c_void_p()
        check(library.cursor_open(handle.pointer, ctypes.byref(self._pointer)))

    def advance(self, flags: int, key: Buffer | None, value: Buffer) -> int:
        """The status. InvalidError once the cursor is closed."""
        with self._lock:
            if self._pointer.value is None:
                raise InvalidError("the cache was closed during the iteration")
            status: int = library.cursor_next(
                self._pointer, flags, None if key is None else key.reference, value.reference
            )
        if self._closing:
            self.close()
        return check(status)

    def close(self) -> bool:
        """Closes now; False if the thread that is advancing the cursor will close it."""
        self._closing = True
        if not self._lock.acquire(blocking=False):
            return False
        try:
            pointer = self._pointer.value
            self._pointer.value = None
            self._handle = None
            if pointer is not None:
                library.cursor_close(pointer)
        finally:
            self._lock.release()
        return True

    def __del__(self, close_cursor: Callable[..., Any] = library.cursor_close) -> None:
        # A signal handler may have raised in __init__.
        if hasattr(self, "_pointer") and self._pointer.value is not None:
            close_cursor(self._pointer.value)

    def after_fork_in_child(self) -> None:
        if self._lock.locked():
            # Its step never ends in the child, so it can be neither used nor freed.
            self._lock = threading.Lock()
            self._pointer.value = None


_open_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_open_pools):
        pool.after_fork_in_child()


def _at_exit() -> None:
    for pool in list(_open_pools):
        pool.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
