"""``get_or_load`` for threads: of all callers that miss a key, in all processes, one loads it.

A load with limits runs in a thread of its own, so that its caller can go on without it.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Callable, Final

from .._native import abi
from .._typing import Key
from . import in_flight
from .attempts import LoadAttempt
from .call_chain import outside_loads
from .in_flight import ThreadBell
from .load import Load
from .policy import Policy
from .results import LoadResult

if TYPE_CHECKING:
    from .._data.records import Entry
    from .._store.store import Store

    Loader = Callable[[Entry | None], Any]


NONE: Final[Any] = object()


def may_look(cache: Store[Any, Any]) -> bool:
    """Whether `hit`, which runs in C, may answer: the caller is not in a load, and the cache has no
    listeners."""
    return cache._calls is not None and cache._listeners is None and outside_loads()


def hit(cache: Store[Any, Any], key: Key, policy: Policy) -> Any:
    """The fresh value. NONE if there is none, or if this call has to reload it ahead of its expiry.
    Counts the lookup in either case: a load after it counts none."""
    least = 0 if policy.plain_hits else policy.least_expiry_ms(cache._pool.clock)
    return _fresh(cache, key, policy.read_flags, least)


def after_hit(cache: Store[Any, Any], key: Key, policy: Policy) -> Policy:
    """The policy of the load after a `hit` that returned NONE."""
    if policy.plain_hits or _fresh(cache, key, policy.read_flags | abi.GET_PEEK, 0) is NONE:
        return policy
    return policy.when_due()


def _fresh(cache: Store[Any, Any], key: Key, flags: int, least_expiry_ms: float) -> Any:
    # (`Store._encode`, in C.)
    whole_key = key if cache._whole else (cache._name, key)
    return cache._get_fresh(whole_key, flags, NONE, least_expiry_ms)


def value_of(
    cache: Store[Any, Any], key: Key, policy: Policy, loader: Loader, default: Any = None
) -> Any:
    """The value of `load`."""
    counted = may_look(cache)
    if counted:
        value = hit(cache, key, policy)
        if value is not NONE:
            return value
        policy = after_hit(cache, key, policy)
    result = load(cache, key, policy, loader, counted)
    return default if result.missing else result.value


def load(
    cache: Store[Any, Any], key: Key, policy: Policy, loader: Loader, counted: bool = False
) -> LoadResult:
    """The value, which this thread or another loads if there is none."""
    result = _load(cache, key, policy, loader, counted)
    emit_served(cache, key, result)
    return result


def _load(
    cache: Store[Any, Any], key: Key, policy: Policy, loader: Loader, counted: bool
) -> LoadResult:
    bell = ThreadBell()
    attempt = LoadAttempt(cache, key, policy, bell, counted)
    try:
        try:
            attempt.enter()
            found = attempt.look()
            if found is None:
                with attempt.waiting():
                    while found is None:
                        bell.wait(attempt.pause())
                        found = attempt.look()
            if not isinstance(found, Load):
                return found
            return _limited(found, loader) if found.limited else _run(found, loader)
        finally:
            attempt.leave()
    finally:
        # A signal handler's exception may have cut off the first.
        attempt.leave()


def _run(load: Load, loader: Loader) -> LoadResult:
    try:
        load.runs = True
        with load:
            load.begin()
            try:
                answer = loader(load.previous)
            except Exception as error:
                instead = load.failed(error)
                if instead is None:
                    raise
                return instead
            if isinstance(answer, Awaitable):
                if isinstance(answer, Coroutine):
                    # Without this Python warns that it was never awaited.
                    answer.close()
                load.refused(
                    TypeError(
                        "the loader is async: AsyncCache awaits it, and memoize does where it is "
                        "an async def itself"
                    )
                )
            return load.succeeded(answer)
    finally:
        load.end()


def _limited(load: Load, loader: Loader) -> LoadResult:
    results: list[LoadResult] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        if not load.claim():
            return
        try:
            results.append(_run(load, loader))
        except BaseException as error:
            errors.append(error)
            if load.left:
                load.log(error)
        finally:
            ended.set()

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), name="shale load", daemon=True)
    try:
        thread.start()
    except BaseException:
        # (A greenlet may be killed here after its thread has begun.)
        if load.claim():
            load.end()
        raise
    load.runs = True
    patience = load.patience()
    with in_flight.released():
        in_time = ended.wait(None if patience is None else min(patience, threading.TIMEOUT_MAX))
    if not in_time:
        return load.leave()
    if errors:
        raise errors.pop()
    return results[0]


def emit_served(cache: Store[Any, Any], key: Key, result: LoadResult) -> None:
    """The event of a value that this call has not loaded."""
    listeners = cache._listeners
    if listeners is not None and result.source != "loaded" and not result.missing:
        listeners.emit("stale" if result.stale else "hit", key, source=result.source)
