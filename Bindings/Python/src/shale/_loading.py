"""``get_or_load`` for threads: of all who want a key's value, in all processes, one loads it.

Where there are limits, a thread of its own loads: its caller can then go on without it.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Callable

from ._keys import Key
from ._load import Load
from ._loaded import LoadResult
from ._policy import Policy
from ._turn import Turn

if TYPE_CHECKING:
    from ._cache import Cache
    from ._records import Entry

    Loader = Callable[[Entry | None], Any]


def load(cache: Cache[Any, Any], key: Key, policy: Policy, loader: Loader) -> LoadResult:
    """The value, loaded by this thread or by another."""
    result = _load(cache, key, policy, loader)
    listeners = cache._listeners
    return result if listeners is None else listeners.served(key, result)


def _load(cache: Cache[Any, Any], key: Key, policy: Policy, loader: Loader) -> LoadResult:
    turn = Turn(cache, key, policy)
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
