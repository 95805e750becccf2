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
=================  ==========================
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Callable, Final, TypeVar, cast

from ._keys import Key
from ._loading import load
from ._policy import Policy

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import ParamSpec

    from ._cache import Cache

    P = ParamSpec("P")
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


R = TypeVar("R")

_BY_POSITION: Final = frozenset(
    (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
)


def decorator(
    cache: Cache, policy: Policy, name: str | None, key: Callable[..., Key] | None
) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        call_key = _call_key(function, name, key)
        memoized: Any

        if inspect.iscoroutinefunction(function):
            from ._loading_async import load_async

            @functools.wraps(function)
            async def memoized(*args: P.args, **kwargs: P.kwargs) -> Any:
                call = cast("Callable[..., Awaitable[Any]]", function)
                result = await load_async(
                    cache,
                    call_key(*args, **kwargs),
                    policy,
                    lambda _previous: call(*args, **kwargs),
                )
                return result.value

        else:

            @functools.wraps(function)
            def memoized(*args: P.args, **kwargs: P.kwargs) -> R:
                result = load(
                    cache,
                    call_key(*args, **kwargs),
                    policy,
                    lambda _previous: function(*args, **kwargs),
                )
                return cast(R, result.value)

        def invalidate(*args: P.args, **kwargs: P.kwargs) -> bool:
            return cache.remove(call_key(*args, **kwargs))

        memoized.cache_key = call_key
        memoized.invalidate = invalidate
        return cast("Memoized[P, R]", memoized)

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
    signature = inspect.signature(function)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    # With these, and nothing by name, the arguments are what binding them would give.
    plain = len(kinds) if _BY_POSITION.issuperset(kinds) else -1

    def call_key(*args: Any, **kwargs: Any) -> Key:
        if kwargs or len(args) != plain:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        positional = tuple(map(_part, args))
        if not kwargs:
            return (name, positional)
        return (name, positional, tuple((each, _part(kwargs[each])) for each in sorted(kwargs)))

    return call_key


def _name(function: Callable[..., Any]) -> str:
    qualified = getattr(function, "__qualname__", None)
    if qualified is None or "<lambda>" in qualified:
        raise TypeError(f"memoize needs a name for {function!r}: give name=")
    return f"{function.__module__}.{qualified}"


def _part(argument: object) -> Key:
    """The part of the key that an argument is."""
    if argument is None:
        return ("None",)
    if isinstance(argument, bool):
        return ("bool", int(argument))
    if isinstance(argument, (str, bytes, int)):
        return argument
    if isinstance(argument, float):
        return ("float", float.__repr__(argument))
    if isinstance(argument, tuple):
        return ("tuple", *map(_part, argument))
    raise TypeError(
        f"memoize tells calls apart by arguments that are str, bytes, int, float, bool, None or "
        f"tuples of these, not {type(argument).__name__}; for others give key=, a function of the "
        f"same arguments that returns a key"
    )
