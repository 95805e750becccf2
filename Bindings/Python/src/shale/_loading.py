"""``get_or_load`` for threads: of all who want a key's value, in all processes, one loads it.

Where there are limits, a thread of its own loads: its caller can then go on without it.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Callable, Final

from ._chain import in_no_course
from ._keys import Key
from ._load import Load
from ._loaded import LoadResult
from ._policy import Policy
from ._turn import Turn

if TYPE_CHECKING:
    from ._cache import Cache
    from ._records import Entry

    Loader = Callable[[Entry | None], Any]


NONE: Final[Any] = object()


def looks_first(cache: Cache[Any, Any], policy: Policy) -> bool:
    """Whether `hit` may answer: in C, for a caller who is in the course of no load and told of by
    nobody."""
    return (
        policy.plain_hits
        and cache._calls is not None
        and cache._whole
        and cache._listeners is None
        and in_no_course()
    )


def hit(cache: Cache[Any, Any], key: Key, policy: Policy) -> Any:
    """What is fresh, or NONE. It is counted in either case, so who loads then has looked."""
    return cache._get_fresh(key, policy.read_flags, NONE)


def value_of(
    cache: Cache[Any, Any], key: Key, policy: Policy, loader: Loader, default: Any = None
) -> Any:
    """`load`, of whose result its caller wants the value alone."""
    counted = looks_first(cache, policy)
    if counted:
        value = hit(cache, key, policy)
        if value is not NONE:
            return value
    result = load(cache, key, policy, loader, counted)
    return default if result.missing else result.value


def load(
    cache: Cache[Any, Any], key: Key, policy: Policy, loader: Loader, counted: bool = False
) -> LoadResult:
    """The value, loaded by this thread or by another."""
    result = _load(cache, key, policy, loader, counted)
    listeners = cache._listeners
    return result if listeners is None else listeners.served(key, result)


def _load(
    cache: Cache[Any, Any], key: Key, policy: Policy, loader: Loader, counted: bool
) -> LoadResult:
    turn = Turn(cache, key, policy, counted)
    found = turn.look()
    if found is None:
        with turn.waiting(blocks=True):
            while found is None:
                time.sleep(turn.pause())
                found = turn.look()
    if not isinstance(found, Load):
        return found
    return _limited(found, loader) if found.limited else _run(found, loader)


def _run(load: Load, loader: Loader) -> LoadResult:
    with load:
        load.begin()
        try:
            answer = loader(load.previous)
        except Exception as error:
            return load.failed(error)
        if isinstance(answer, Awaitable):
            if isinstance(answer, Coroutine):
                # Nobody is to be warned that it was never awaited.
                answer.close()
            raise TypeError(
                "the loader is async: AsyncCache awaits it, and memoize does where it is an "
                "async def itself"
            )
        return load.succeeded(answer)


def _limited(load: Load, loader: Loader) -> LoadResult:
    results: list[LoadResult] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
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
        load.release()
        raise
    patience = load.patience()
    if not ended.wait(None if patience is None else min(patience, threading.TIMEOUT_MAX)):
        return load.leave()
    if errors:
        raise errors[0]
    return results[0]
