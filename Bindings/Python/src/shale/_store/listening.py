"""The methods of a cache that has listeners.

A cache without listeners uses the methods of its class and pays nothing for events. The first
listener puts these methods in front of them, as attributes of the one object; the end of the last
listener removes them. Loads emit their events themselves: they take microseconds anyway.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from types import MethodType
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple

from .._data.records import details_of, entry_of
from .._data.values import Unreadable
from .._native import abi, library
from .._native.errors import check
from .._typing import Key, pairs
from . import batch, lookups
from .events import Listeners, reason_of, reason_unreadable

if TYPE_CHECKING:
    from .._data.options import Tag
    from .._data.records import Details, Entry
    from .._native.handles import CallContext
    from .events import EventName, Listener, Reason
    from .store import Store


_registration: Final = threading.RLock()
"""Of the listeners of all caches."""

os.register_at_fork(
    before=_registration.acquire,
    after_in_parent=_registration.release,
    after_in_child=_registration.release,
)


def listen(cache: Store[Any, Any], name: EventName, listener: Listener) -> Callable[[], None]:
    """Calls the listener at each event of this name. Returns a function that ends that."""
    # A new object each time: one function may listen twice.
    entry: Listener = lambda event: listener(event)  # noqa: E731
    with _registration:
        listeners = cache._listeners or Listeners()
        listeners.add(name, entry)
        _wrap_methods(cache)
        cache._listeners = listeners

    def stop() -> None:
        with _registration:
            if listeners.remove(name, entry) and cache._listeners is listeners:
                cache._listeners = None
                _unwrap_methods(cache)

    return stop


def _class_of(cache: Store[Any, Any]) -> Any:
    """The class, whose methods these methods call."""
    return type(cache)


def _read(
    context: CallContext, key: bytes, flags: int
) -> tuple[int, int, Details | None, bytes, bytes]:
    """(status, flags, details, data, meta) of a key."""
    status = check(context.get(key, flags))
    struct = context.buffer.struct
    if status == abi.MISS:
        return status, struct.flags, None, b"", b""
    details = details_of(context)
    data, meta = context.buffer.take()
    return status, 0, details, data, meta


class _Look(NamedTuple):
    """The result of a read, and its event."""

    event: EventName
    reason: Reason | None
    value: Any = None
    meta: bytes = b""
    details: Details | None = None
    version: int = 0
    """0: no entry was found."""


def _look(cache: Store[Any, Any], key: Key, stale: bool) -> _Look:
    """Reads. Emits nothing yet."""
    flags = abi.GET_STALE if stale else 0
    status, why, details, data, meta = cache._pool.run(_read, cache._encode(key), flags)
    if details is None:
        return _Look("miss", reason_of(why))
    try:
        value = cache._codec.decode(meta, data)
    except Unreadable:
        return _Look("miss", reason_unreadable(meta), version=details.version)
    event: EventName = "stale" if status == abi.STALE else "hit"
    return _Look(event, None, value, meta, details, details.version)


def _emit_look(cache: Store[Any, Any], key: Key, look: _Look) -> None:
    source = None if look.details is None else "cache"
    cache._emit(look.event, key, reason=look.reason, source=source)


def _get(
    cache: Store[Any, Any],
    key: Key,
    default: Any = None,
    *,
    stale: bool = False,
    peek: bool = False,
) -> Any:
    if peek:
        return _class_of(cache).get(cache, key, default, stale=stale, peek=True)
    look = _look(cache, key, stale)
    _emit_look(cache, key, look)
    return default if look.details is None else look.value


def _entry(
    cache: Store[Any, Any], key: Key, *, stale: bool = False, peek: bool = False
) -> Entry | None:
    if peek:
        found: Entry | None = _class_of(cache).entry(cache, key, stale=stale, peek=True)
        return found
    look = _look(cache, key, stale)
    _emit_look(cache, key, look)
    return None if look.details is None else entry_of(look.value, look.meta, look.details)


def _get_many(
    cache: Store[Any, Any], keys: Iterable[Key], *, stale: bool = False, peek: bool = False
) -> dict[Key, Any]:
    if peek:
        peeked: dict[Key, Any] = _class_of(cache).get_many(cache, keys, stale=stale, peek=True)
        return peeked
    found = {}
    for key in cache._encode_many(keys).values():
        look = _look(cache, key, stale)
        _emit_look(cache, key, look)
        if look.details is not None:
            found[key] = look.value
    return found


def _pop(cache: Store[Any, Any], key: Key, default: Any = None) -> Any:
    stored = cache._encode(key)
    while True:
        look = _look(cache, key, stale=False)
        if look.version:
            status = cache._call(library.remove, stored, len(stored), look.version)
            is_done = status == abi.OK
        else:
            status = cache._pool.run(lookups.remove_missed, stored)
            is_done = status != abi.CONFLICT
        if is_done:
            _emit_look(cache, key, look)
            if status == abi.OK:
                cache._emit("remove", key)
            return default if look.details is None else look.value


def _store(cache: Store[Any, Any], key: Key, value: Any, *arguments: Any, **options: Any) -> int:
    status: int = _class_of(cache)._store(cache, key, value, *arguments, **options)
    if status == abi.OK:
        cache._emit("set", key)
    return status


def _set_many(cache: Store[Any, Any], items: Any, **options: Any) -> None:
    items = dict(pairs(items))
    _class_of(cache).set_many(cache, items, **options)
    for key in items:
        cache._emit("set", key)


def _incr(cache: Store[Any, Any], key: Key, delta: int = 1, **options: Any) -> int | None:
    number: int | None = _class_of(cache).incr(cache, key, delta, **options)
    if number is not None:
        cache._emit("set", key)
    return number


def _remove(cache: Store[Any, Any], key: Key, **options: Any) -> bool:
    was_there: bool = _class_of(cache).remove(cache, key, **options)
    if was_there:
        cache._emit("remove", key)
    return was_there


def _remove_many(cache: Store[Any, Any], keys: Iterable[Key]) -> int:
    by_stored = cache._encode_many(keys)
    removed: list[bytes] = []
    cache._pool.run(batch.remove_many, list(by_stored), removed)
    for stored in removed:
        cache._emit("remove", by_stored[stored])
    return len(removed)


def _expire(cache: Store[Any, Any], key: Key) -> bool:
    was_there: bool = _class_of(cache).expire(cache, key)
    if was_there:
        cache._emit("expire", key)
    return was_there


def _invalidate(cache: Store[Any, Any], tag: Tag, *, expire: bool = False) -> None:
    _class_of(cache).invalidate(cache, tag, expire=expire)
    cache._emit("expire" if expire else "invalidate", tag=tag)


def _clear(cache: Store[Any, Any]) -> None:
    _class_of(cache).clear(cache)
    cache._emit("clear")


# These replace the methods, which do not report enough.
_REPLACED: Final[dict[str, Callable[..., Any]]] = {
    "get": _get,
    "entry": _entry,
    "get_many": _get_many,
    "pop": _pop,
    "remove_many": _remove_many,
}

# These call the methods.
_WRAPPED: Final[dict[str, Callable[..., Any]]] = {
    "_store": _store,
    "set_many": _set_many,
    "incr": _incr,
    "remove": _remove,
    "expire": _expire,
    "invalidate": _invalidate,
    "clear": _clear,
}


def _wrap_methods(cache: Store[Any, Any]) -> None:
    for name, function in {**_REPLACED, **_WRAPPED}.items():
        # A subclass's own method is not replaced.
        own = getattr(type(cache), name) is not getattr(cache._shale_class, name)
        if name in _WRAPPED or not own:
            cache.__dict__[name] = MethodType(function, cache)
    cache._sets_plainly = False


def _unwrap_methods(cache: Store[Any, Any]) -> None:
    for name in (*_REPLACED, *_WRAPPED):
        cache.__dict__.pop(name, None)
    cache._sets_plainly = cache._whole
