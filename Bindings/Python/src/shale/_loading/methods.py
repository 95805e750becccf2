"""The methods of a cache that load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union, overload

from .._data.records import Entry
from .._store.store import Store
from .._typing import KT, VT, Key
from .memoize import decorator
from .policy import policy
from .single_flight import load as load_entry
from .single_flight import value_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .memoize import Memoized, P
    from .policy import LoadOptions
    from .results import Loaded, LoadResult, Missing, NotModified

V = TypeVar("V")


class LoadingMethods(Store[KT, VT]):
    """The part of `Cache` that loads."""

    @overload
    def get_or_load(
        self,
        key: KT,
        load: Callable[[], Union[Loaded[V], Missing, NotModified]],
        *,
        default: Any = None,
        **options: Unpack[LoadOptions],
    ) -> V: ...

    @overload
    def get_or_load(
        self,
        key: KT,
        load: Callable[[], Union[V, Missing, NotModified]],
        *,
        default: Any = None,
        **options: Unpack[LoadOptions],
    ) -> V: ...

    def get_or_load(
        self,
        key: KT,
        load: Callable[[], Any],
        *,
        default: Any = None,
        **options: Unpack[LoadOptions],
    ) -> Any:
        """The value, or the result of ``load()``, which it then stores.

        However many threads and processes ask for the key, one of them loads it at a time, for any
        number of keys. The others wait and get the value as soon as it is stored; if a stale value
        is kept, they get that at once. An exception of ``load`` stores nothing and is raised to all
        that waited: in the same process it is the same object, in other processes ``LoadFailed``.
        If the load is cancelled, interrupted (``KeyboardInterrupt`` and the like) or killed, one of
        the waiting callers loads at once.

        ``load`` may return ``shale.Loaded``, a value with its own age, tags and meta, or
        ``shale.Missing()`` if there is no value. That is stored too, so the key is not loaded again
        during its age, and this call returns ``default``; to calls that do not load, such a key is
        a miss.

        All times are seconds. How the value is stored:

        max_age, stale, tag, tags, pinned: as in ``set``. ``stale=0``: never return a stale value,
            even if one is kept.
        missing_age: the age of ``Missing()``. None, or not given: ``max_age``.
        jitter: subtract a random time from each stored age, evenly distributed up to this and to
            half the age: so that values that were loaded together do not expire together. Needs
            ``max_age``.

        When it is loaded:

        wait: how long to wait for another caller's load before loading all the same.
        lease: how soon another caller repeats the load of a process that was stopped, up to an
            hour. A load may take longer: its lease is renewed. The load of a process that was
            killed is repeated at once.
        refresh_ahead: above 0, a value is reloaded shortly before it expires: each caller draws a
            random time with this mean, and loads if less is left, so that the readers of a popular
            key never miss together. A good mean is the duration of a load, or a few times that. If
            the load fails, the old value is still fresh, and is returned.

        If the load is slow or fails:

        soft_timeout: return a stale value, if there is one, after this time. The load continues in
            the background, and stores its value. 0: at once.
        timeout: raise ``LoadTimeoutError`` after this time, waiting included. The load continues,
            and stores its value.
        stale_if_error: if the load fails or exceeds ``timeout``, return the stale value, if there
            is one, instead of raising.
        retry_after: for this time after a failed load, callers that give ``retry_after``, in all
            processes, do not load: they get the stale value, if there is one, or else the failure.

        With ``soft_timeout`` or ``timeout``, ``load`` runs in a thread of its own, in a copy of the
        caller's context. A load that asks for its own key, directly or through other loads, raises
        ``DeadlockError``.

        A value is not stored if, during its load, the key was set, counted or removed (also if it
        was absent), one of the value's tags was invalidated, or the cache was cleared: a caller
        that asks after such a change never gets a value that was read before it. The loading caller
        still gets the value, and so do callers of this process that waited when the load began; the
        next caller loads again.

        A value that cannot be stored, because of its type or its size or because there is no room,
        is returned all the same, to all callers of this process that waited for it, which get one
        object. ``stats().own.unstored`` counts such loads, and the first is logged (logger
        "shale"). With ``read_only``, one caller of each process loads and nothing is stored.

        Where so many leases are held that the cache cannot record another, a caller waits for one
        to end, for ``lease`` at most; then it loads, and so may one caller of each process.
        """
        return value_of(self, key, policy(options), lambda _previous: load(), default)

    def entry_or_load(
        self,
        key: KT,
        load: Callable[[Union[Entry[Any], None]], Any],
        **options: Unpack[LoadOptions],
    ) -> LoadResult:
        """As ``get_or_load``; the result also says where the value comes from.

        ``load`` gets the old entry, fresh or stale, or None. It may return ``shale.NotModified()``:
        the old entry then gets a new age, and its value is the result. An entry that was replaced
        meanwhile keeps its age, and one that was removed or evicted is not stored again. The old
        entry's ``meta`` is the one that ``Loaded(meta=...)`` stored, such as an ETag.
        """
        return load_entry(self, key, policy(options), load)

    @overload
    def memoize(
        self,
        function: Callable[P, V],
        /,
        *,
        name: str | None = None,
        key: Callable[..., Key] | None = None,
        **options: Unpack[LoadOptions],
    ) -> Memoized[P, V]: ...

    @overload
    def memoize(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., Key] | None = None,
        **options: Unpack[LoadOptions],
    ) -> Callable[[Callable[P, V]], Memoized[P, V]]: ...

    def memoize(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., Key] | None = None,
        **options: Unpack[LoadOptions],
    ) -> Any:
        """A decorator that stores the results of a function, by its arguments.

        Used as ``@cache.memoize``, or with options: ``@cache.memoize(max_age=60)``. For plain and
        ``async`` functions; options and guarantees are those of ``get_or_load``. ``None`` is a
        result like any other; for ``Missing()`` the call returns None. A waiting ``async`` function
        does not block the event loop.

        The key of a call is made from the function's name, all its arguments, given or default,
        and the variables that it captures, all as they are at the time of the call. Arguments are
        None, bool, int, float, str, bytes, Decimal, UUID, date, datetime, time, timedelta, members
        of enums, paths, classes; lists, tuples, sets and dicts; and objects of classes in Python,
        such as ``self``, which are their class and their attributes. Arguments that differ in type
        or value differ, as 1, 1.0 and True do; the order of a dict or set does not count. Code,
        which includes globals and the attributes of classes, is not in the key.

        ``classmethod`` and ``staticmethod`` go above or below it. A partial and a bound method have
        the key of the function with all its arguments.

        name: the name that the function's entries are stored under; None: its module and qualified
            name. Functions with one name share their entries: name functions of ``__main__``. A
            function that is given a name is stored without the variables that it captures: give
            closures that differ different names.
        key: a function of the same arguments that returns the key of a call. Nothing else is in
            the key, except the name.

        The function gets ``cache_key(*args)``, the key of a call; ``invalidate(*args)``, which
        removes its entry and returns whether there was one; ``cache_clear()``, which removes the
        results of all calls, in all processes, at a cost that does not depend on their number;
        ``cache_info()``, a ``CacheInfo`` with the number of hits and misses in this process; and
        ``__wrapped__``, the function itself. Of an ``async`` function, these are plain functions,
        too. On a bound method (``user.age.invalidate("x")``) they take the arguments without the
        object.

        If the cache's serializer is one for pydantic or msgspec, and the function's return
        annotation is of its classes (``list[User]``), results are stored and read as that type,
        which the serializer need not name: a stored value of another type is a miss, and a result
        of another type is returned but not stored (``stats().own.unstored``). Types are exact, but
        a subclass that the serializer names fits its base. All is as without an annotation if the
        annotation cannot be evaluated, when the function is decorated or first called, or names
        other types.

        One of the eight tags of an entry is for ``cache_clear``. Logs a warning (logger "shale")
        if a call changes what its key is made from, so that its result is not found again.

        Raises InvalidError for more tags. Raises TypeError for a generator function; if ``name``
        is not given, for a function without a name of its own (a lambda, a method of a builtin
        object) and for one that wraps another one and has its name (``functools.wraps``); when it
        is decorated or called, for captured variables and arguments without a key.
        """
        decorate = decorator(self, policy(options), name, key)
        return decorate if function is None else decorate(function)
