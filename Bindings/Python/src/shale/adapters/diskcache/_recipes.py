"""The recipes of diskcache, on ``Cache`` and ``FanoutCache`` of this package.

They store their state under a key of the cache, which should have ``eviction_policy="none"``.
``shale.Cache`` has its own locks, which end with their process.
"""

from __future__ import annotations

import functools
import math
import os
import random
import threading
import time
from collections.abc import Container
from typing import Any, Callable

from ._disk import ENOVAL
from ._memoize import args_to_key, full_name

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_PAUSE = 0.001


class _Recipe:
    def __init__(self, cache: Any, key: Any, expire: float | None = None, tag: Any = None) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def _set(self, value: Any) -> None:
        self._cache.set(self._key, value, expire=self._expire, tag=self._tag, retry=True)


class Averager(_Recipe):
    """The average of the numbers that all threads and processes add."""

    def add(self, value: float) -> None:
        """Adds a number."""
        with self._cache.transact(retry=True):
            total, count = self._cache.get(self._key, default=(0.0, 0))
            self._set((total + value, count + 1))

    def get(self) -> float | None:
        """The average, or None."""
        return _average(*self._cache.get(self._key, default=(0.0, 0), retry=True))

    def pop(self) -> float | None:
        """Returns the average, or None, and removes it."""
        return _average(*self._cache.pop(self._key, default=(0.0, 0), retry=True))


def _average(total: float, count: int) -> float | None:
    return total / count if count else None


class _Lock(_Recipe):
    def acquire(self) -> None:
        """Waits for the lock, without a limit."""
        while not self._try():
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Releases it."""
        raise NotImplementedError

    def _try(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.release()


class Lock(_Lock):
    """A lock of all threads and processes. The lock of a killed process stays held, unless it has
    an ``expire``; that of ``shale.Cache.lock`` does not."""

    def release(self) -> None:
        """Releases it, even if another caller holds it."""
        self._cache.delete(self._key, retry=True)

    def locked(self) -> bool:
        """Whether it is held."""
        return self._key in self._cache

    def _try(self) -> bool:
        return bool(
            self._cache.add(self._key, None, expire=self._expire, tag=self._tag, retry=True)
        )


class RLock(_Lock):
    """A reentrant lock."""

    def release(self) -> None:
        """Releases it once. AssertionError if this thread does not hold it."""
        with self._cache.transact(retry=True):
            owner, count = self._cache.get(self._key, default=(None, 0))
            if owner != _thread() or not count:
                raise AssertionError("cannot release un-acquired lock")
            self._set((owner, count - 1))

    def _try(self) -> bool:
        with self._cache.transact(retry=True):
            owner, count = self._cache.get(self._key, default=(None, 0))
            if count and owner != _thread():
                return False
            self._set((_thread(), count + 1))
            return True


def _thread() -> str:
    return f"{os.getpid()}-{threading.get_ident()}"


class BoundedSemaphore(_Lock):
    """A semaphore that up to ``value`` callers hold at a time."""

    def __init__(
        self, cache: Any, key: Any, value: int = 1, expire: float | None = None, tag: Any = None
    ) -> None:
        super().__init__(cache, key, expire, tag)
        self._value = value

    def release(self) -> None:
        """Releases it. AssertionError if it is not held."""
        with self._cache.transact(retry=True):
            left = self._cache.get(self._key, default=self._value)
            if left >= self._value:
                raise AssertionError("cannot release un-acquired semaphore")
            self._set(left + 1)

    def _try(self) -> bool:
        with self._cache.transact(retry=True):
            left = self._cache.get(self._key, default=self._value)
            if left <= 0:
                return False
            self._set(left - 1)
            return True


def throttle(
    cache: Any,
    count: float,
    seconds: float,
    name: str | None = None,
    expire: float | None = None,
    tag: Any = None,
    time_func: Callable[[], float] = time.time,
    sleep_func: Callable[[float], Any] = time.sleep,
) -> Decorator:
    """A decorator that allows ``count`` calls in ``seconds``, of all processes together; other
    calls wait."""
    rate = count / seconds

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        key = full_name(function) if name is None else name
        cache.set(key, (time_func(), count), expire=expire, tag=tag, retry=True)

        def wait() -> float:
            """The time until a call is allowed; with 0 the call is counted."""
            with cache.transact(retry=True):
                # After an eviction, the time starts over.
                last, left = cache.get(key, default=(time_func(), count))
                now = time_func()
                left = min(left + (now - last) * rate, count)
                if left < 1:
                    return float((1 - left) / rate)
                cache.set(key, (now, left - 1), expire=expire, tag=tag, retry=True)
                return 0.0

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            while pause := wait():
                sleep_func(pause)
            return function(*args, **kwargs)

        return call

    return decorate


def barrier(
    cache: Any,
    lock_factory: Callable[..., Any],
    name: str | None = None,
    expire: float | None = None,
    tag: Any = None,
) -> Decorator:
    """A decorator that allows as many calls at a time as the lock: ``Lock``, ``RLock``,
    ``BoundedSemaphore``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        key = full_name(function) if name is None else name
        lock = lock_factory(cache, key, expire=expire, tag=tag)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return function(*args, **kwargs)

        return call

    return decorate


def memoize_stampede(
    cache: Any,
    expire: float,
    name: str | None = None,
    typed: bool = False,
    tag: Any = None,
    beta: float = 1,
    ignore: Container[Any] = (),
) -> Decorator:
    """A decorator that keeps results for ``expire`` seconds, and calls the function again at a
    random time before that, in a thread: the earlier, the longer it takes and the larger ``beta``
    is. ``shale.Cache.memoize(refresh_ahead=...)`` does so too, and one caller at a time loads."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        base = (full_name(function) if name is None else name,)

        def cache_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args_to_key(base, args, kwargs, typed, ignore)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            key = cache_key(*args, **kwargs)

            def load() -> Any:
                begin = time.time()
                result = function(*args, **kwargs)
                cost = time.time() - begin
                cache.set(key, (result, cost), expire=expire, tag=tag, retry=True)
                return result

            found, expires = cache.get(key, default=ENOVAL, expire_time=True, retry=True)
            if found is ENOVAL:
                return load()
            result, cost = found
            ahead = -cost * beta * math.log(1 - random.random())
            # One thread at a time, of all processes.
            if ahead >= expires - time.time() and cache.add(
                (*key, "loading"), None, expire=max(cost, _PAUSE), retry=True
            ):
                threading.Thread(target=load, daemon=True).start()
            return result

        call.__cache_key__ = cache_key  # type: ignore[attr-defined]
        return call

    return decorate
