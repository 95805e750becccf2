"""The recipes of diskcache, on ``Cache`` and ``FanoutCache`` of this package.

They keep what they know under a key of the cache, so that it should be one of
``eviction_policy="none"``. ``shale.Cache`` has locks of its own, that end with their process.
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
    """The average of what was added, by all threads and processes."""

    def add(self, value: float) -> None:
        """Counts one more."""
        with self._cache.transact(retry=True):
            total, count = self._cache.get(self._key, default=(0.0, 0))
            self._set((total + value, count + 1))

    def get(self) -> float | None:
        """The average, or None."""
        return _average(*self._cache.get(self._key, default=(0.0, 0), retry=True))

    def pop(self) -> float | None:
        """The average, or None; it begins anew."""
        return _average(*self._cache.pop(self._key, default=(0.0, 0), retry=True))


def _average(total: float, count: int) -> float | None:
    return total / count if count else None


class _Lock(_Recipe):
    def acquire(self) -> None:
        """Waits until it is had, without end."""
        while not self._try():
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Gives it back."""
        raise NotImplementedError

    def _try(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.release()


class Lock(_Lock):
    """A lock of all threads and processes. That of a killed process stays, unless it has an
    ``expire``: ``shale.Cache.lock`` does not."""

    def release(self) -> None:
        """Gives it back, whoever has it."""
        self._cache.delete(self._key, retry=True)

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._key in self._cache

    def _try(self) -> bool:
        return bool(
            self._cache.add(self._key, None, expire=self._expire, tag=self._tag, retry=True)
        )


class RLock(_Lock):
    """A lock that the thread that has it may have again."""

    def release(self) -> None:
        """Gives it back once. AssertionError where this thread has it not."""
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
    """Up to ``value`` at a time have it."""

    def __init__(
        self, cache: Any, key: Any, value: int = 1, expire: float | None = None, tag: Any = None
    ) -> None:
        super().__init__(cache, key, expire, tag)
        self._value = value

    def release(self) -> None:
        """Gives it back. AssertionError where nobody has it."""
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
    """A decorator that lets ``count`` calls in ``seconds``, of all processes together, and lets the
    others wait."""
    rate = count / seconds

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        key = full_name(function) if name is None else name
        cache.set(key, (time_func(), count), expire=expire, tag=tag, retry=True)

        def wait() -> float:
            """How long, until a call is due; 0 counts it."""
            with cache.transact(retry=True):
                # Where it was evicted, the time begins anew.
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
    """A decorator that lets as many calls at a time as the lock: ``Lock``, ``RLock``,
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
    """A decorator that keeps results for ``expire`` seconds, and calls the function again before
    that by chance, in a thread, sooner the longer it takes and the larger ``beta`` is.
    ``shale.Cache.memoize(refresh_ahead=...)`` does so too, and lets one at a time load as well."""

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
