"""The return type of a memoized function, by which its results are stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Union, get_args, get_origin, get_type_hints

from .._data.result_codec import ResultCodec
from .._data.values import Codec
from .results import Loaded, Missing, NotModified


def result_codec(of_cache: Codec, function: Callable[..., Any]) -> ResultCodec | None:
    """None if the cache's serializer has nothing to do with the function's return type. Raises any
    exception if the annotation cannot be evaluated, or is not of types that the serializer knows.
    """
    for_results = getattr(of_cache.serializer, "for_results", None)
    annotation = getattr(function, "__annotations__", {}).get("return")
    if for_results is None or annotation is None:
        return None
    # (Annotations of arguments are often of names that only type checkers know.)
    alone = SimpleNamespace(__annotations__={"return": annotation})
    hints = get_type_hints(alone, globalns=_globals(function), include_extras=True)
    kind = _value_type(hints["return"])
    types = None if kind is None else for_results(kind)
    return None if types is None else ResultCodec(of_cache, types)


def _globals(function: Any) -> dict[str, Any]:
    # The annotations of a wrapper are those of the innermost function.
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__globals__", {})


def _value_type(kind: Any) -> Any:
    """The type without `Missing` and `NotModified`, and that in `Loaded`. None: there is none."""
    from .._data.type_expressions import members

    kinds: list[Any] = []
    for each in members(kind):
        if get_origin(each) is Loaded:
            kinds += get_args(each)
        elif each not in (Missing, NotModified):
            kinds.append(each)
    return Union[tuple(kinds)] if kinds else None
