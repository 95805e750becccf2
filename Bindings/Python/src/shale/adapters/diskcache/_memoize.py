"""``memoize`` of diskcache: the names and the keys of calls."""

from __future__ import annotations

import functools
from collections.abc import Container
from typing import Any, Callable

from ._disk import ENOVAL


def full_name(function: Callable[..., Any]) -> str:
    """The module and the qualified name."""
    return f"{function.__module__}.{function.__qualname__}"


def args_to_key(
    base: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    typed: bool,
    ignore: Container[Any],
) -> tuple[Any, ...]:
    """The key of a call. With ``typed`` it has the names of the types, not the types, as in
    diskcache."""
    positional = [each for number, each in enumerate(args) if number not in ignore]
    named = sorted((name, each) for name, each in kwargs.items() if name not in ignore)
    key = (*base, *positional, None)
    for pair in named:
        key += pair
    if typed:
        given = [*positional, *(each for _, each in named)]
        key += tuple(f"{type(each).__module__}.{type(each).__qualname__}" for each in given)
    return key


def memoizer(
    get: Callable[[Any], Any],
    set: Callable[[Any, Any], Any],
    name: Any,
    typed: bool,
    ignore: Container[Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator. get: returns ENOVAL for a missing entry."""
    if callable(name):
        raise TypeError("name cannot be callable")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        base = (full_name(function) if name is None else name,)

        def cache_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return args_to_key(base, args, kwargs, typed, ignore)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            key = cache_key(*args, **kwargs)
            result = get(key)
            if result is ENOVAL:
                result = function(*args, **kwargs)
                set(key, result)
            return result

        call.__cache_key__ = cache_key  # type: ignore[attr-defined]
        return call

    return decorate
