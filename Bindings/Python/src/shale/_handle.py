"""The open cache as C sees it, and what a call needs while it runs.

C does not detect a handle that is closed while calls on it are under way;
Python must. A call borrows a `Loan` for as long as it runs. Loans wait in a
list, whose ``pop`` and ``append`` are atomic, so this costs a call two list
operations and no lock, and it gives each running call a buffer of its own:
threads, signal handlers, finalisers and a Python clock that use the cache in
the middle of another call never share one. A call gives its loan back to the
list that it was taken from.

Invariants

* A loan holds the handle; the handle closes when nobody holds it any longer,
  or earlier, when all loans that were made are back.
* `Pool.close` leaves nothing to borrow: the pool has a new list then, which
  stays empty. Calls under way finish; the last of them takes the old list, the
  loan in it and the handle with it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Final, TypeVar

from . import _abi, _library
from ._buffer import Buffer, BufferArray
from ._errors import InvalidError, check

if TYPE_CHECKING:
    from typing import SupportsIndex

    from ._clock import Clock

T = TypeVar("T")

BATCH: Final = 128
"""Keys in one call of the library."""

# Of each of the BATCH buffers, bytes.
_LARGEST_KEPT: Final = 1 << 14


class Handle:
    """A ``shale_cache *``. ``pointer`` is NULL once it is closed."""

    __slots__ = ("clock", "pointer")

    def __init__(self, directory: bytes | None, options: _abi.Options, clock: Clock | None) -> None:
        self.pointer = ctypes.c_void_p()
        # C keeps calling it: it has to live as long as the handle.
        self.clock = clock
        if clock is not None:
            options.now_ms = clock.function
            # For a thread that has never asked. (ctypes would make None of 0.)
            options.now_context = clock.ask() or 1
        check(_library.open_cache(directory, ctypes.byref(options), ctypes.byref(self.pointer)))

    def close(self, close_cache: Callable[..., int] = _library.close_cache) -> int:
        """The library's status; OK if it was closed before."""
        pointer = self.pointer.value
        if pointer is None:
            return _abi.OK
        self.pointer.value = None
        return close_cache(pointer)

    def __del__(self) -> None:
        # A signal may have ended __init__ early.
        if hasattr(self, "pointer"):
            self.close()


class Loan:
    """What one call needs: the cache, and memory for an answer."""

    __slots__ = ("_batch", "_second", "buffer", "handle", "pointer")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        # The same address as long as anybody holds the handle.
        self.pointer = _library.pointer_argument(handle.pointer.value)
        self.buffer = Buffer()
        self._second: Buffer | None = None
        self._batch: BufferArray | None = None

    def get(self, key: bytes, flags: int) -> int:
        """The status of ``shale_get`` into `buffer`."""
        return _library.fast_get(
            self.pointer, key, _library.SIZES[len(key)], flags, self.buffer.reference
        )

    def set(self, key: bytes, data: bytes, options: Any) -> int:
        """The status of ``shale_set``. options: a pointer, or None."""
        sizes = _library.SIZES
        return _library.fast_set(
            self.pointer, key, sizes[len(key)], data, sizes[len(data)], options
        )

    def now_ms(self) -> int:
        """The time by which this call is judged."""
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


class _ClockedLoans(list[Loan]):
    """Idle loans, with each of which goes the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def pop(self, _index: SupportsIndex = -1) -> Loan:
        loan = super().pop()
        try:
            self._clock.ask()
        except BaseException:
            self.append(loan)
            raise
        return loan


class Pool:
    """The loans of one open cache."""

    def __init__(self, handle: Handle) -> None:
        self._handle: Handle | None = handle
        self.idle: list[Loan] = [] if handle.clock is None else _ClockedLoans(handle.clock)
        self._made = 0
        # Calls in C, which count themselves.
        self._calls: Any = None
        # Reentrant: a signal handler may use the cache in the middle of `make`.
        self._lock = threading.RLock()
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        _open_pools.add(self)

    @property
    def closed(self) -> bool:
        return self._handle is None

    def calls_for(self, kind: Callable[..., Any], encode: Any, decode: Any, plain: bool) -> Any:
        """The calls in C of this cache, of that type."""
        handle = self._handle
        assert handle is not None
        ask = None if handle.clock is None else handle.clock.ask
        self._calls = kind(handle.pointer.value, handle, encode, decode, ask, plain)
        return self._calls

    def make(self) -> Loan:
        """A loan where `idle` had none (IndexError)."""
        handle = self._handle
        if handle is not None and handle.clock is not None:
            handle.clock.ask()
        with self._lock:
            if self._handle is None:
                raise InvalidError("the cache is closed") from None
            loan = Loan(self._handle)
            self._made += 1
            return loan

    def lend(self, work: Callable[..., T], *arguments: Any) -> T:
        """``work(loan, *arguments)``."""
        idle = self.idle
        try:
            loan = idle.pop()
        except IndexError:
            loan = self.make()
        try:
            return work(loan, *arguments)
        finally:
            idle.append(loan)

    def cursor(self) -> Cursor:
        """A new cursor; the pool closes it, if nobody else has, before the cache."""
        with self._lock:
            if self._handle is None:
                raise InvalidError("the cache is closed")
            cursor = Cursor(self._handle)
            self._cursors.add(cursor)
            return cursor

    def close(self) -> int:
        """The status of closing, or OK where calls under way will close it."""
        with self._lock:
            handle = self._handle
            if handle is None:
                return _abi.OK
            self._handle = None
            idle, self.idle = self.idle, []
            under_way = 0
            if self._calls is not None:
                self._calls.close()
                under_way = self._calls.active
            back = 0
            while True:
                try:
                    # No time is asked for.
                    list.pop(idle)
                except IndexError:
                    break
                back += 1
            cursors_closed = [cursor.close() for cursor in list(self._cursors)]
            if back == self._made and all(cursors_closed) and not under_way:
                return handle.close()
            return _abi.OK

    def after_fork_in_child(self) -> None:
        """Loans and cursors that other threads were using are gone with those threads."""
        self._lock = threading.RLock()
        self._made = len(self.idle)
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
        check(_library.cursor_open(handle.pointer, ctypes.byref(self._pointer)))

    def advance(self, flags: int, key: Buffer | None, value: Buffer) -> int:
        """The status. InvalidError once the cursor is closed."""
        with self._lock:
            if self._pointer.value is None:
                raise InvalidError("the cache was closed during the iteration")
            status: int = _library.cursor_next(
                self._pointer, flags, None if key is None else key.reference, value.reference
            )
        if self._closing:
            self.close()
        return check(status)

    def close(self) -> bool:
        """Closes now, or (False) when the thread that is advancing it has done so."""
        self._closing = True
        if not self._lock.acquire(blocking=False):
            return False
        try:
            pointer = self._pointer.value
            self._pointer.value = None
            self._handle = None
            if pointer is not None:
                _library.cursor_close(pointer)
        finally:
            self._lock.release()
        return True

    def __del__(self, close_cursor: Callable[..., Any] = _library.cursor_close) -> None:
        # A signal may have ended __init__ early.
        if hasattr(self, "_pointer") and self._pointer.value is not None:
            close_cursor(self._pointer.value)

    def after_fork_in_child(self) -> None:
        if self._lock.locked():
            # Stopped in the middle of a step: nobody can use or free it any more.
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
