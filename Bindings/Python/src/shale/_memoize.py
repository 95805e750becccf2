"""``memoize``: what a function returns is stored under its name and its arguments.

The key of a call is ``(name, arguments)``, or ``(name, arguments, named)`` where
the function has arguments that go by name alone; ``named`` are pairs, sorted. It
is the same in every process and release, as every key is. Keys have no ``None``,
``bool`` and ``float``, so these are tuples that begin with what they are, and so
are tuples, to tell them from those:

=================  ==========================
argument           in the key
=================  ==========================
str, bytes, int    itself
``None``           ``("None",)``
``True``           ``("bool", 1)``
``1.5``            ``("float", "1.5")``
``("a", None)``    ``("tuple", "a", ("None",))``
``Color.RED``      ``("enum", "module.Color", "RED")``
=================  ==========================

A combination of flags that has no name has the part of its value in place of that.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Awaitable
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, Callable, Final, TypeVar, cast

from ._keys import Key
from ._loading import value_of
from ._policy import Policy

if TYPE_CHECKING:
    from typing import Protocol, overload

    from typing_extensions import Concatenate, ParamSpec

    from ._cache import Cache

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
            """What a call with these arguments is stored under."""

        def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
            """Removes what a call with these arguments has stored. Whether there was any."""

        @overload
        def __get__(self, instance: None, owner: type, /) -> Memoized[P, R_co]: ...

        @overload
        def __get__(
            self: Memoized[Concatenate[S_contra, Q], R_co], instance: S_contra, owner: type, /
        ) -> Memoized[Q, R_co]: ...


R = TypeVar("R")

_BY_POSITION: Final = frozenset(
    (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
)


class _Function:
    """A function that is memoized, as `Memoized` says."""

    def __init__(
        self,
        cache: Cache[Any, Any],
        function: Callable[..., Any],
        call: Callable[..., Any],
        call_key: Callable[..., Key],
    ) -> None:
        functools.update_wrapper(self, function)
        self.__name__: str = getattr(function, "__name__", "memoized")
        self.__qualname__: str = getattr(function, "__qualname__", self.__name__)
        # (Some builtin functions have none to show.)
        with suppress(ValueError):
            self.__signature__ = inspect.signature(function, follow_wrapped=False)
        # With these it is a function to `inspect`, and one of coroutines if `call` is.
        self.__code__ = call.__code__
        self.__defaults__ = self.__kwdefaults__ = None
        if sys.version_info < (3, 10) and inspect.iscoroutinefunction(call):
            # There `inspect` takes nothing for a function that is none; asyncio can be told.
            import asyncio

            self._is_coroutine = asyncio.coroutines._is_coroutine
        self._cache = cache
        self._call = call
        self._call_key = call_key

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def cache_key(self, /, *args: Any, **kwargs: Any) -> Key:
        return self._call_key(*args, **kwargs)

    def invalidate(self, /, *args: Any, **kwargs: Any) -> bool:
        return self._cache.remove(self._call_key(*args, **kwargs))

    def __get__(self, instance: object, _owner: type | None = None) -> _Function | _Method:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<memoized {self.__qualname__}>"

    def __reduce__(self) -> str:
        """As functions are pickled: by name."""
        return self.__qualname__


class _Method:
    """One that was looked up on an object, which goes first into each call."""

    def __init__(self, function: _Function, instance: object) -> None:
        self.__func__ = function
        self.__self__ = instance
        # The class has its own.
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
    cache: Cache[Any, Any], policy: Policy, name: str | None, key: Callable[..., Key] | None
) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        if not callable(function):
            raise TypeError(
                f"memoize decorates a function, not {function!r} (a classmethod goes above it)"
            )
        call_key = _call_key(function, name, key)
        call: Any

        if inspect.iscoroutinefunction(function):
            from ._loading_async import value_of_async

            async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
                coroutine = cast("Callable[..., Awaitable[Any]]", function)
                return await value_of_async(
                    cache,
                    call_key(*args, **kwargs),
                    policy,
                    lambda _previous: coroutine(*args, **kwargs),
                )

        else:

            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                found = value_of(
                    cache,
                    call_key(*args, **kwargs),
                    policy,
                    lambda _previous: function(*args, **kwargs),
                )
                return cast(R, found)

        return cast("Memoized[P, R]", _Function(cache, function, call, call_key))

    return decorate


def _call_key(
    function: Callable[..., Any], name: str | None, key: Callable[..., Key] | None
) -> Callable[..., Key]:
    """A function of the same arguments that gives the key of a call."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("memoize stores what a function returns; a generator can't be stored")
    if name is None:
        name = _name(function)
    if key is not None:
        return lambda *args, **kwargs: (name, key(*args, **kwargs))
    # Its own, not that of a function which it wraps, and may call with other arguments.
    signature = inspect.signature(function, follow_wrapped=False)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    # With these, and nothing by name, the arguments are what binding them would give.
    plain = len(kinds) if _BY_POSITION.issuperset(kinds) else -1

    def call_key(*args: Any, **kwargs: Any) -> Key:
        if kwargs or len(args) != plain:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        positional = args if _THEMSELVES.issuperset(map(type, args)) else tuple(map(_part, args))
        if not kwargs:
            return (name, positional)
        return (name, positional, tuple((each, _part(kwargs[each])) for each in sorted(kwargs)))

    return call_key


def _name(function: Callable[..., Any]) -> str:
    qualified = getattr(function, "__qualname__", None)
    # A bound method's name is that of all objects' alike.
    bound = getattr(function, "__self__", None)
    if qualified is None or "<lambda>" in qualified or not (bound is None or _is_scope(bound)):
        raise TypeError(f"memoize needs a name for {function!r}: give name=")
    return f"{function.__module__}.{qualified}"


def _is_scope(bound: object) -> bool:
    """Whether it is a class, or a builtin function's module: nothing that a name leaves out."""
    return isinstance(bound, type) or inspect.ismodule(bound)


# The types of arguments that are parts of a key as they are.
_THEMSELVES: Final = frozenset((str, int, bytes))


def _part(argument: object) -> Key:
    """The part of the key that an argument is."""
    kind = type(argument)
    if kind is str or kind is int or kind is bytes:
        return cast("Key", argument)
    if argument is None:
        return ("None",)
    if isinstance(argument, bool):
        return ("bool", int(argument))
    if isinstance(argument, enum.Enum):
        # Members of two classes may be equal.
        member = _part(argument.value) if argument.name is None else argument.name
        return ("enum", f"{kind.__module__}.{kind.__qualname__}", member)
    if isinstance(argument, (str, bytes, int)):
        return argument
    if isinstance(argument, float):
        return ("float", float.__repr__(argument))
    if isinstance(argument, tuple):
        return ("tuple", *map(_part, argument))
    raise TypeError(
        f"memoize tells calls apart by arguments that are str, bytes, int, float, bool, None, "
        f"members of enums or tuples of these, not {type(argument).__name__}; for others give "
        f"key=, a function of the same arguments that returns a key"
    )
