"""``memoize``: stores the results of a function under its name and arguments, in the keys of
`call_keys`."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import weakref
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, TypeVar, cast

from .._native import abi, log
from .._native.errors import InvalidError
from .._typing import Key
from .call_keys import Answer, CallKeys
from .policy import Policy
from .results import LoadResult
from .return_types import result_codec
from .single_flight import NONE, after_hit, hit, load, may_look

if TYPE_CHECKING:
    from typing import Protocol, overload

    from typing_extensions import Concatenate, ParamSpec

    from .._data.result_codec import ResultCodec
    from .._store.store import Store

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    S_contra = TypeVar("S_contra", contravariant=True)
    R_co = TypeVar("R_co", covariant=True)

    class Memoized(Protocol[P, R_co]):
        """A function that ``memoize`` has decorated."""

        __name__: str
        __qualname__: str

        @property
        def __wrapped__(self) -> Callable[P, R_co]: ...

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

        def cache_key(self, *args: P.args, **kwargs: P.kwargs) -> Key:
            """The key of a call with these arguments."""

        def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
            """Removes the result of a call with these arguments. Whether there was one."""

        def cache_info(self) -> CacheInfo:
            """The calls of this function in this process."""

        def cache_clear(self) -> None:
            """Removes all results of this function, also those of other processes, and starts
            counting again. Costs the same for any number of results."""

        @overload
        def __get__(self, instance: None, owner: type, /) -> Memoized[P, R_co]: ...

        @overload
        def __get__(
            self: Memoized[Concatenate[S_contra, Q], R_co], instance: S_contra, owner: type, /
        ) -> Memoized[Q, R_co]: ...


R = TypeVar("R")

_TAG: Final = b"\xffP1m"


class CacheInfo(NamedTuple):
    """The calls of a memoized function in this process, since its definition or the last
    ``cache_clear``. The fields are those of ``functools.lru_cache``."""

    hits: int
    """Results from the cache, or from another caller's load."""
    misses: int
    """Calls of the function itself."""
    maxsize: int | None
    """None: only the cache has a limit."""
    currsize: int | None
    """None: it is not known, as other processes store results too."""


class _Count:
    """A number that any thread increments, without a lock: each step of a counter is atomic."""

    __slots__ = ("_reads", "add")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._reads = itertools.count()
        self.add = itertools.count().__next__

    def read(self) -> int:
        # A read counts, too.
        return self.add() - next(self._reads)


class _Caller:
    """Answers the calls of a memoized function."""

    is_async = False

    def __init__(
        self,
        cache: Store[Any, Any],
        policy: Policy,
        function: Callable[..., Any],
        name: str | None,
        key: Callable[..., Key] | None,
    ) -> None:
        keys = self.keys = CallKeys(function, name, key)
        self.cache = cache
        self.function = function
        # (Its name is a part of a namespace's keys.)
        self.tag = _TAG + cache._encode(keys.name)
        self._policy = policy.with_tag(self.tag)
        _, _, tags = cache._scoped(None, None, self._policy.tags)
        if len(tags) > abi.MAX_TAGS:
            raise InvalidError(
                f"the entries of {keys.name} would have more than {abi.MAX_TAGS} tags: memoize "
                "adds one, and a namespace another"
            )
        self.hits, self.misses = _Count(), _Count()
        self._found_late: Answer | None = None
        self._is_checked = key is None
        self.key = keys.caller(lambda key, _args, _kwargs: key)

    def call(self) -> Callable[..., Any]:
        """A new function of the same arguments."""
        try:
            answer = self._by_type(result_codec(self.cache._codec, self.keys.function))
        except Exception:
            # The annotation may name a class that is not yet defined.
            answer = self._late_answer
        return self.keys.caller(answer, is_async=self.is_async)

    def _by_type(self, codec: ResultCodec | None) -> Answer:
        """Answers with results of the codec's type alone; None: of any type."""
        if codec is None:
            return self._answer
        self._policy = self._policy.with_codec(codec)
        self._classes, self._fits = codec.classes, codec.fits
        return self._typed_answer

    def _late_answer(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self._found_late
        if answer is None:
            try:
                codec = result_codec(self.cache._codec, self.keys.function)
            except Exception:
                codec = None
            answer = self._found_late = self._by_type(codec)
        return answer(key, args, kwargs)

    def _typed_hit(self, key: Key) -> Any:
        """A hit of the function's return type, or NONE."""
        value = hit(self.cache, key, self._policy)
        return value if type(value) in self._classes or self._fits(value) else NONE

    def _typed_answer(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `_answer`, if the function's return type decides what is a result."""
        counted = may_look(self.cache)
        if counted:
            value = self._typed_hit(key)
            if value is not NONE:
                self.hits.add()
                return value
        return self._load(key, counted, args, kwargs)

    def _answer(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        counted = may_look(self.cache)
        if counted:
            value = hit(self.cache, key, self._policy)
            if value is not NONE:
                self.hits.add()
                return value
        return self._load(key, counted, args, kwargs)

    def _load(self, key: Key, counted: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def loader(_previous: object) -> Any:
            self.misses.add()
            answer = self.function(*args, **kwargs)
            self._check(key, args, kwargs)
            return answer

        policy = after_hit(self.cache, key, self._policy) if counted else self._policy
        return self._result(load(self.cache, key, policy, loader, counted))

    def _result(self, result: LoadResult) -> Any:
        if result.source in ("cache", "waited"):
            self.hits.add()
        return None if result.missing else result.value

    def _check(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warns, once, if a call has changed what its key is made from: each call then has another
        key."""
        if not self._is_checked:
            return
        with suppress(TypeError):
            if self.key(*args, **kwargs) == key:
                return
        self._is_checked = False
        log.warn(
            "%s changes an argument, its object or a captured variable, which is a part of the key "
            "of a call: the same call does not find its result again. Give key=, or name= if it is "
            "a captured variable",
            self.keys.name,
        )


class _AsyncCaller(_Caller):
    """The same for a coroutine function."""

    is_async = True

    async def _load(
        self, key: Key, counted: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        from .single_flight_async import load_async

        async def loader(_previous: object) -> Any:
            self.misses.add()
            answer = await self.function(*args, **kwargs)
            self._check(key, args, kwargs)
            return answer

        policy = after_hit(self.cache, key, self._policy) if counted else self._policy
        return self._result(await load_async(self.cache, key, policy, loader, counted))

    async def _answer(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        counted = may_look(self.cache)
        if counted:
            value = hit(self.cache, key, self._policy)
            if value is not NONE:
                self.hits.add()
                return value
        return await self._load(key, counted, args, kwargs)

    async def _typed_answer(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        counted = may_look(self.cache)
        if counted:
            value = self._typed_hit(key)
            if value is not NONE:
                self.hits.add()
                return value
        return await self._load(key, counted, args, kwargs)


class _Function(functools.partial[Any]):
    """A memoized function, with the interface of `Memoized`. As a partial without arguments it
    calls `func` in C, which is faster than a ``__call__`` in Python."""

    def __new__(cls, caller: _Caller, _binding: type[Any] | None) -> _Function:
        return super().__new__(cls, caller.call())

    def __init__(self, caller: _Caller, binding: type[Any] | None) -> None:
        """binding: classmethod or staticmethod, if the function was one."""
        function = caller.function
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", "memoized")
        self.__qualname__: str = getattr(function, "__qualname__", self.__name__)
        # (Some builtin functions have no signature.)
        with suppress(ValueError):
            self.__signature__ = inspect.signature(function, follow_wrapped=False)
        # With these `inspect` takes a bound method for a function, and for a coroutine function if
        # it is one.
        self.__code__ = self.func.__code__
        self.__defaults__ = self.__kwdefaults__ = None
        if sys.version_info < (3, 10) and caller.is_async:
            # Before 3.10 `inspect` accepts only real functions; asyncio reads this mark.
            import asyncio

            self._is_coroutine = asyncio.coroutines._is_coroutine
        caller.keys.memoized = weakref.ref(self)
        self._caller = caller
        self._binding = binding

    def cache_key(self, /, *args: Any, **kwargs: Any) -> Key:
        return cast("Key", self._caller.key(*args, **kwargs))

    def invalidate(self, /, *args: Any, **kwargs: Any) -> bool:
        return self._caller.cache.remove(self._caller.key(*args, **kwargs))

    def cache_info(self) -> CacheInfo:
        return CacheInfo(self._caller.hits.read(), self._caller.misses.read(), None, None)

    def cache_clear(self) -> None:
        self._caller.cache.invalidate(self._caller.tag)
        self._caller.hits.reset()
        self._caller.misses.reset()

    def __get__(self, instance: object, owner: type | None = None) -> _Function | _Method:
        if self._binding is classmethod:
            instance = type(instance) if owner is None else owner
        if instance is None or self._binding is staticmethod:
            return self
        return _Method(self, instance)

    def __repr__(self) -> str:
        return f"<memoized {self.__qualname__}>"

    def __reduce__(self) -> str:
        """As functions are pickled: by name."""
        return self.__qualname__


class _Method:
    """A memoized function that is bound to an object, its first argument."""

    def __init__(self, function: _Function, instance: object) -> None:
        self.__func__ = function
        self.__self__ = instance
        # The class has its own docstring and module.
        self.__doc__, self.__module__ = function.__doc__, function.__module__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def cache_key(self, /, *args: Any, **kwargs: Any) -> Key:
        return self.__func__.cache_key(self.__self__, *args, **kwargs)

    def invalidate(self, /, *args: Any, **kwargs: Any) -> bool:
        return self.__func__.invalidate(self.__self__, *args, **kwargs)

    @property
    def __wrapped__(self) -> Any:
        return MethodType(self.__func__.__wrapped__, self.__self__)  # type: ignore[attr-defined]

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__wrapped__, follow_wrapped=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Method):
            return NotImplemented
        return self.__func__ is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((self.__func__, id(self.__self__)))

    def __repr__(self) -> str:
        return f"<memoized {self.__func__.__qualname__} of {self.__self__!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.__self__, self.__func__.__name__)


def decorator(
    cache: Store[Any, Any], policy: Policy, name: str | None, key: Callable[..., Key] | None
) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        inner: Any = function
        binding = type(inner) if isinstance(inner, (classmethod, staticmethod)) else None
        if binding is not None:
            inner = inner.__func__
        if not callable(inner):
            raise TypeError(f"memoize decorates a function, not {inner!r}")
        kind = _AsyncCaller if inspect.iscoroutinefunction(inner) else _Caller
        caller = kind(cache, policy, inner, name, key)
        return cast("Memoized[P, R]", _Function(caller, binding))

    return decorate
