"""What happens to a cache, told to those who listen.

A cache to which nobody listens pays nothing for it: its methods are the plain ones.
Where somebody does, those of this module stand in front of them, as attributes of the
one object. Loads are told of by `_load` and `_turn`, which take microseconds anyway.

A listener is called in the thread of the call that it is told of, when that call is
done with the library: no lock is held and no buffer is lent, so it may use the cache.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from contextvars import ContextVar
from types import MethodType
from typing import TYPE_CHECKING, Any, Callable, Final, Literal, NamedTuple, get_args

from . import _abi, _batch, _library
from ._errors import InvalidError, check
from ._keys import Key
from ._records import LoadStats, details_of, entry_of
from ._typing import pairs
from ._values import MISSING, Unreadable

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from ._cache import Cache
    from ._handle import Loan
    from ._loaded import LoadResult
    from ._options import Tag
    from ._records import Details, Entry

    Reason: TypeAlias = Literal[
        "absent", "expired", "invalidated", "damaged", "missing", "undecodable"
    ]
    Listener: TypeAlias = Callable[["Event"], object]

EventName = Literal[
    "hit",
    "stale",
    "miss",
    "set",
    "remove",
    "expire",
    "invalidate",
    "clear",
    "load",
    "loaded",
    "conflict",
]
NAMES: Final = get_args(EventName)


class Event(NamedTuple):
    """Something that this cache object did. What does not apply is None."""

    name: EventName
    """
    - ``"hit"``: a value was found, within its age
    - ``"stale"``: one past its age was served
    - ``"miss"``: none was found; ``reason`` says why
    - ``"set"``: one was stored, by a call or by a load
    - ``"remove"``: one was removed
    - ``"expire"``: one was made stale by ``expire``, or all of a ``tag`` by ``invalidate``
    - ``"invalidate"``: all of a ``tag`` were removed
    - ``"clear"``: all were removed
    - ``"load"``: a loader is about to be called
    - ``"loaded"``: it has ended, after ``seconds``, perhaps with an ``error``
    - ``"conflict"``: what it loaded was not stored, as something had happened to its key or tags
    """
    key: Key | None = None
    tag: Tag | None = None
    reason: Reason | None = None
    """``"missing"``: known to be so. ``"undecodable"``: by this cache's serializer."""
    source: Literal["cache", "waited", "loaded", "renewed"] | None = None
    """Where a hit or a stale value comes from, as in ``LoadResult``."""
    seconds: float | None = None
    error: BaseException | None = None


class Counts:
    """What a cache object counts of its loads."""

    __slots__ = ("__weakref__", "_counted", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, float] = {}
        _all_counts.add(self)

    def add(self, **more: float) -> None:
        with self._lock:
            for name, count in more.items():
                self._counted[name] = self._counted.get(name, 0) + count

    def first(self, name: str) -> bool:
        """Counts one. Whether it is the first of these."""
        with self._lock:
            count = self._counted.get(name, 0)
            self._counted[name] = count + 1
            return count == 0

    def stats(self, undecodable: int) -> LoadStats:
        with self._lock:
            return LoadStats(**self._counted, undecodable=undecodable)  # type: ignore[arg-type]

    def after_fork_in_child(self) -> None:
        # Another thread, which is gone, may have had it.
        self._lock = threading.Lock()


_all_counts: Final[weakref.WeakSet[Counts]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for counts in list(_all_counts):
        counts.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)

# What a listener does with a cache is not told: it would be told of itself, without end.
_is_told: Final[ContextVar[bool]] = ContextVar("shale listener", default=False)


class Listeners:
    """Those who listen to one cache."""

    __slots__ = ("_by_name", "_cache", "_lock")

    def __init__(self, cache: Cache[Any, Any]) -> None:
        self._cache = cache
        self._lock = threading.RLock()
        self._by_name: dict[str, tuple[Listener, ...]] = {}

    def add(self, name: EventName, listener: Listener) -> Callable[[], None]:
        if name not in NAMES:
            raise InvalidError(f"there is no event {name!r}; there are {', '.join(NAMES)}")
        # One of its own: the same function may be given twice.
        entry: Listener = lambda event: listener(event)  # noqa: E731
        with self._lock:
            self._by_name[name] = (*self._by_name.get(name, ()), entry)
            _stand_in_front(self._cache)
            self._cache._listeners = self

        def remove() -> None:
            with self._lock:
                left = tuple(each for each in self._by_name.get(name, ()) if each is not entry)
                if left:
                    self._by_name[name] = left
                    return
                self._by_name.pop(name, None)
                if not self._by_name and self._cache._listeners is self:
                    self._cache._listeners = None
                    _step_aside(self._cache)

        return remove

    def tell(self, name: EventName, key: Key | None = None, **details: Any) -> None:
        listeners = self._by_name.get(name)
        if not listeners or _is_told.get():
            return
        event = Event(name, key, **details)
        token = _is_told.set(True)
        try:
            for listener in listeners:
                try:
                    listener(event)
                except Exception:
                    import logging

                    logging.getLogger("shale").exception("a listener of %r failed", name)
        finally:
            _is_told.reset(token)

    def served(self, key: Key, result: LoadResult) -> LoadResult:
        """What ``get_or_load`` gives. Told of where it was not loaded for this call."""
        if result.source != "loaded" and not result.missing:
            self.tell("stale" if result.stale else "hit", key, source=result.source)
        return result

    def looked(self, key: Key, status: int, why: int, unreadable: bytes | None) -> None:
        """Of a read: its status, a miss's flags, and the meta of what can't be read here."""
        if status == _abi.MISS:
            self.missed(key, why)
        elif unreadable is not None:
            self.tell("miss", key, reason=_why_unreadable(unreadable))
        else:
            self.tell("stale" if status == _abi.STALE else "hit", key, source="cache")

    def missed(self, key: Key, flags: int) -> None:
        self.tell("miss", key, reason=_REASONS.get(flags, "absent"))


_REASONS: Final[dict[int, Reason]] = {
    _abi.VALUE_EXPIRED: "expired",
    _abi.VALUE_INVALIDATED: "invalidated",
    _abi.VALUE_DAMAGED: "damaged",
}


def _why_unreadable(meta: bytes) -> Reason:
    return "missing" if meta == MISSING else "undecodable"


# The methods that stand in front


def _read(loan: Loan, key: bytes, flags: int) -> tuple[int, int, Details | None, bytes, bytes]:
    """(status, flags, details, data, meta) of a key."""
    status = check(loan.get(key, flags))
    struct = loan.buffer.struct
    if status == _abi.MISS:
        return status, struct.flags, None, b"", b""
    details = details_of(loan)
    data, meta = loan.buffer.take()
    return status, 0, details, data, meta


class _Look(NamedTuple):
    """What a read has found, and the event that tells of it."""

    event: EventName
    reason: Reason | None
    value: Any = None
    meta: bytes = b""
    details: Details | None = None


def _look(cache: Cache[Any, Any], key: Key, stale: bool) -> _Look:
    """Not told yet."""
    flags = _abi.GET_STALE if stale else 0
    status, why, details, data, meta = cache._pool.lend(_read, cache._encode(key), flags)
    if details is None:
        return _Look("miss", _REASONS.get(why, "absent"))
    try:
        value = cache._codec.decode(meta, data)
    except Unreadable:
        return _Look("miss", _why_unreadable(meta))
    return _Look("stale" if status == _abi.STALE else "hit", None, value, meta, details)


def _tell_of(cache: Cache[Any, Any], key: Key, look: _Look) -> None:
    source = None if look.details is None else "cache"
    cache._tell(look.event, key, reason=look.reason, source=source)


def _get(
    cache: Cache[Any, Any],
    key: Key,
    default: Any = None,
    *,
    stale: bool = False,
    peek: bool = False,
) -> Any:
    if peek:
        return type(cache).get(cache, key, default, stale=stale, peek=True)
    look = _look(cache, key, stale)
    _tell_of(cache, key, look)
    return default if look.details is None else look.value


def _entry(
    cache: Cache[Any, Any], key: Key, *, stale: bool = False, peek: bool = False
) -> Entry | None:
    if peek:
        return type(cache).entry(cache, key, stale=stale, peek=True)
    look = _look(cache, key, stale)
    _tell_of(cache, key, look)
    return None if look.details is None else entry_of(look.value, look.meta, look.details)


def _get_many(
    cache: Cache[Any, Any], keys: Iterable[Key], *, stale: bool = False, peek: bool = False
) -> dict[Key, Any]:
    if peek:
        return type(cache).get_many(cache, keys, stale=stale, peek=True)
    found = {}
    for key in cache._encode_many(keys).values():
        look = _look(cache, key, stale)
        _tell_of(cache, key, look)
        if look.details is not None:
            found[key] = look.value
    return found


def _pop(cache: Cache[Any, Any], key: Key, default: Any = None) -> Any:
    stored = cache._encode(key)
    while True:
        look = _look(cache, key, stale=False)
        if look.details is None:
            _tell_of(cache, key, look)
            return default
        version = look.details.version
        if cache._call(_library.remove, stored, len(stored), version) == _abi.OK:
            _tell_of(cache, key, look)
            cache._tell("remove", key)
            return look.value


def _store(cache: Cache[Any, Any], key: Key, value: Any, *arguments: Any, **options: Any) -> int:
    status = type(cache)._store(cache, key, value, *arguments, **options)
    if status == _abi.OK:
        cache._tell("set", key)
    return status


def _set_many(cache: Cache[Any, Any], items: Any, **options: Any) -> None:
    items = dict(pairs(items))
    type(cache).set_many(cache, items, **options)
    for key in items:
        cache._tell("set", key)


def _incr(cache: Cache[Any, Any], key: Key, delta: int = 1, **options: Any) -> int | None:
    number: int | None = type(cache).incr(cache, key, delta, **options)
    if number is not None:
        cache._tell("set", key)
    return number


def _remove(cache: Cache[Any, Any], key: Key, **options: Any) -> bool:
    was_there = type(cache).remove(cache, key, **options)
    if was_there:
        cache._tell("remove", key)
    return was_there


def _remove_many(cache: Cache[Any, Any], keys: Iterable[Key]) -> int:
    by_stored = cache._encode_many(keys)
    removed: list[bytes] = []
    cache._pool.lend(_batch.remove_many, list(by_stored), removed)
    for stored in removed:
        cache._tell("remove", by_stored[stored])
    return len(removed)


def _expire(cache: Cache[Any, Any], key: Key) -> bool:
    was_there = type(cache).expire(cache, key)
    if was_there:
        cache._tell("expire", key)
    return was_there


def _invalidate(cache: Cache[Any, Any], tag: Tag, *, expire: bool = False) -> None:
    type(cache).invalidate(cache, tag, expire=expire)
    cache._tell("expire" if expire else "invalidate", tag=tag)


def _clear(cache: Cache[Any, Any]) -> None:
    type(cache).clear(cache)
    cache._tell("clear")


# They do the work themselves: the plain ones don't say enough.
_INSTEAD: Final[dict[str, Callable[..., Any]]] = {
    "get": _get,
    "entry": _entry,
    "get_many": _get_many,
    "pop": _pop,
    "remove_many": _remove_many,
}

# They call what the class has.
_AROUND: Final[dict[str, Callable[..., Any]]] = {
    "_store": _store,
    "set_many": _set_many,
    "incr": _incr,
    "remove": _remove,
    "expire": _expire,
    "invalidate": _invalidate,
    "clear": _clear,
}


def _stand_in_front(cache: Cache[Any, Any]) -> None:
    from ._cache import Cache
    from ._namespace import Namespace

    plain = Namespace if isinstance(cache, Namespace) else Cache
    for name, function in {**_INSTEAD, **_AROUND}.items():
        # A subclass's own method is not replaced.
        if name in _AROUND or getattr(type(cache), name) is getattr(plain, name):
            cache.__dict__[name] = MethodType(function, cache)
    cache._sets_plainly = False


def _step_aside(cache: Cache[Any, Any]) -> None:
    for name in (*_INSTEAD, *_AROUND):
        cache.__dict__.pop(name, None)
    cache._sets_plainly = cache._whole
