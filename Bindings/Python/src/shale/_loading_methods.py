"""The methods of a cache that load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar, Union, cast, overload

from . import _loading, _memoize
from ._keys import Key
from ._policy import policy
from ._records import Entry
from ._typing import KT

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._cache import Cache
    from ._loaded import Loaded, LoadResult, Missing, NotModified
    from ._memoize import Memoized, P
    from ._policy import LoadOptions

V = TypeVar("V")


class LoadingMethods(Generic[KT]):
    """What `Cache` inherits."""

    @property
    def _as_cache(self) -> Cache[KT, Any]:
        return cast("Cache[KT, Any]", self)

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
        """The value, or what ``load()`` gives, which is then stored.

        However many threads and processes ask for the key, one at a time loads it.
        The others wait, and have the value as soon as it is stored; where there is
        a stale one that is kept, they have that at once. What ``load`` raises goes
        to its caller alone, and stores nothing; one of those who waited then loads.

        ``load`` may return ``shale.Loaded``, a value with an age, tags and meta of
        its own, or ``shale.Missing()``: there is no such thing. That is stored too,
        so that nobody loads it again until it is past its age, and this call gives
        ``default``; for everything but loading, such a key is a miss.

        All times are seconds. How the value is stored:

        max_age, stale, tag, tags, pinned: as in ``set``. ``stale=0``: a stale value
            is not returned either, even if one is kept.
        missing_age: the age of ``Missing()``. None, or not given: ``max_age``.
        jitter: up to so much, drawn evenly, is taken off each age that is stored, but
            never more than half of it: so that what was loaded together does not end
            together. Needs ``max_age``.

        When it is loaded:

        wait: how long to wait for another's load before loading all the same.
        lease: how soon the load of a process that was stopped is begun again, up to an
            hour. A load may take longer: its lease is renewed. That of a process that was
            killed is begun again at once.
        refresh_ahead: above 0, a value is loaded anew shortly before it expires:
            each caller draws a time by chance, with this mean, and loads if less is
            left, so that the readers of a popular key never miss together. What a
            load takes, or some times that, is a good mean. If it fails, the value
            is still good, and is returned.

        What is served where it takes long, or fails:

        soft_timeout: where there is a stale value, it is returned after so long. The
            load goes on in the background, and stores. 0: at once.
        timeout: after so long, waiting included, the call raises
            ``LoadTimeoutError``. The load goes on, and stores.
        stale_if_error: a load that fails, or exceeds ``timeout``, gives the stale
            value, if there is one, instead of raising.
        retry_after: for so long after a failed load, this process serves what is
            stale without another try.

        With ``soft_timeout`` or ``timeout``, ``load`` runs in a thread of its own, in a
        copy of the caller's context. A load that asks for its own key, directly or by
        way of others, raises ``DeadlockError``.

        What is loaded is not stored if, while it was loaded, the key was set, counted
        or removed (also where it was absent), one of the value's tags invalidated, or
        the cache cleared: who asks after such a change never has what was read before
        it. The one who loaded has it all the same, and so have those of this process
        who waited when the load began; the next one loads anew.

        A value that there is no room for, or that is larger than the cache allows,
        is returned all the same. With ``read_only``, everybody loads and nothing is
        stored. Raises TypeError, after the load, for a value that can't be stored.
        """
        return _loading.value_of(
            self._as_cache, key, policy(options), lambda _previous: load(), default
        )

    def entry_or_load(
        self,
        key: KT,
        load: Callable[[Union[Entry[Any], None]], Any],
        **options: Unpack[LoadOptions],
    ) -> LoadResult:
        """As ``get_or_load``, and says how it came by the value.

        ``load`` is given the old entry, fresh or stale, or None. It may return
        ``shale.NotModified()``: the old entry gets a new age, and its value is the
        result. An entry that was replaced meanwhile keeps its age, and one that has
        left stays away. What ``Loaded(meta=...)`` stored, an ETag for example, is the old
        entry's ``meta``.
        """
        return _loading.load(self._as_cache, key, policy(options), load)

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
        """A decorator that stores what a function returns, by its arguments.

        As ``@cache.memoize``, or with options: ``@cache.memoize(max_age=60)``. For plain and
        for ``async`` functions; the options are those of ``get_or_load``, and so is what they
        promise. ``None`` is a result like any other; ``Missing()`` gives None. An
        ``async`` function that waits doesn't hold the event loop.

        Arguments may be str, bytes, int, float, bool, None, members of enums, and tuples of
        these; an argument counts the same by position, by name and by default, and 1, 1.0 and
        True are three. For others, methods too, whose first argument is the object, give a key.

        name: what the function's entries are stored under; None: its module and
            qualified name. Functions of one name share their entries: give one to
            those of ``__main__`` and to those that differ in a variable around them.
        key: a function of the same arguments that gives what tells one call from
            another.

        The function gets ``cache_key(*args)``, the key of a call;
        ``invalidate(*args)``, which removes its entry, and says whether there was
        one; and ``__wrapped__``, the function itself. On a method that was looked up on an
        object (``user.age.invalidate("x")``), they take the arguments without the object.

        Raises TypeError for a function that is a generator, or has no name of its own (a lambda,
        a bound method) and was given none; in a call, for arguments that are none of these.
        """
        decorate = _memoize.decorator(self._as_cache, policy(options), name, key)
        return decorate if function is None else decorate(function)
