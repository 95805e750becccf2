"""The key of a call of a memoized function.

It is ``(name, positional)``; ``(name, positional, named)`` if the function has keyword-only
arguments; ``(name, positional, named, captured)`` if it is a closure. `positional` are the parts of
the arguments, given or default, as in `arguments`; `named` and `captured` are pairs of a name and a
part. So a call has one key however it is written.

Globals and the attributes of classes count as code, which is not in the key.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType, MethodType
from typing import Any, Callable, Final, cast

from .._typing import Key
from .arguments import NoPart, part

Answer = Callable[[Key, tuple[Any, ...], dict[str, Any]], Any]
_Captured = Callable[[], tuple[tuple[str, Key], ...]]


class CallKeys:
    """The keys of a function's calls."""

    def __init__(
        self, function: Callable[..., Any], name: str | None, key: Callable[..., Key] | None
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "memoize stores the results of a function; a generator cannot be stored"
            )
        self.memoized: Callable[[], object] = lambda: None
        """Returns the memoized function: one that calls itself captures it."""
        self._captured: _Captured | None = None
        self._key_of: Callable[..., Key] | None = None
        inner, first, keywords = _innermost(function)
        self.function = inner
        """Without partials around it, and no bound method."""
        if key is not None:
            own = self.name = _name(function) if name is None else name
            self._key_of = lambda *args, **kwargs: (own, key(*args, **kwargs))
            return
        self.name = _name(inner) if name is None else name
        """What the keys begin with."""
        if name is None:
            if hasattr(inner, "__wrapped__"):
                raise TypeError(
                    f"{self.name} is a wrapper that has the name of the function that it wraps, "
                    "but maybe other results: memoize that function itself, or give name="
                )
            self._captured = _captured_by(inner, lambda value: value is self.memoized())
        if first or keywords:
            of_all = self.caller(lambda key, _args, _kwargs: key)
            self._key_of = lambda *args, **kwargs: of_all(*first, *args, **{**keywords, **kwargs})

    def caller(self, answer: Answer, *, is_async: bool = False) -> Callable[..., Any]:
        """A function of the same arguments that returns ``answer(key, args, kwargs)``, or awaits
        it."""
        key_of = self._key_of
        if key_of is None:
            return _caller(self.function, self.name, self._captured, answer, is_async)
        if not is_async:
            return lambda *args, **kwargs: answer(key_of(*args, **kwargs), args, kwargs)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await answer(key_of(*args, **kwargs), args, kwargs)

        return call


def _innermost(function: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function that a partial or a bound method calls, and the arguments that these add."""
    first: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while True:
        if type(function) is functools.partial:
            first, keywords = (*function.args, *first), {**function.keywords, **keywords}
            function = function.func
        elif type(function) is MethodType:
            first, function = (function.__self__, *first), function.__func__
        else:
            return function, first, keywords


def _name(function: Callable[..., Any]) -> str:
    qualified = getattr(function, "__qualname__", None)
    # The bound methods of all objects have the same name.
    bound = getattr(function, "__self__", None)
    if qualified is None or "<lambda>" in qualified or not (bound is None or _is_scope(bound)):
        raise TypeError(f"memoize needs a name for {function!r}: give name=")
    return f"{function.__module__}.{qualified}"


def _is_scope(bound: object) -> bool:
    """Whether it is a class, or the module of a builtin function, which the name includes."""
    return isinstance(bound, type) or inspect.ismodule(bound)


def _captured_by(function: Any, is_itself: Callable[[object], bool]) -> _Captured | None:
    """A function that returns the variables that the function captures, except itself, with their
    parts. None if it captures none."""
    if not isinstance(function, FunctionType):
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    if not cells:
        return None

    def captured() -> tuple[tuple[str, Key], ...]:
        found = []
        for name, cell in cells.items():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # No value has been assigned.
            try:
                found.append((name, part(value)))
            except NoPart as error:
                if value is function or is_itself(value):
                    continue
                raise TypeError(
                    f"memoize has no key for {name}{error.where} ({error.what}), which "
                    f"{function.__qualname__} captures: pass it as an argument, or give name=, one "
                    "for each value, or key="
                ) from None
        return tuple(found)

    # What is refused is refused early, if it has been assigned.
    captured()
    return captured


class _Name:
    """A default value in a signature, of which only a name is to be printed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# The types of arguments that are their own parts.
_THEMSELVES: Final = frozenset((str, int, bytes))


def _caller(
    function: Callable[..., Any],
    name: str,
    captured: _Captured | None,
    answer: Answer,
    is_async: bool,
) -> Callable[..., Any]:
    """`CallKeys.caller`, made from source with the parameters of `function`: so that Python assigns
    the arguments, as it does in a call, in a tenth of the time of ``Signature.bind``."""
    # Its own signature: a function that it wraps may have another one.
    signature = inspect.signature(function, follow_wrapped=False)
    qualified = getattr(function, "__qualname__", name)
    # Longer than the name of any parameter.
    own = "_" * (1 + max(map(len, signature.parameters), default=0))
    declared, positional, named, tests = [], [], [], []
    defaults: list[Any] = []
    more = ""
    for each in signature.parameters.values():
        default: Any = each.default
        if default is not each.empty:
            default = _Name(f"{own}defaults[{len(defaults)}]")
            defaults.append(each.default)
        declared.append(each.replace(default=default, annotation=each.empty))
        if each.kind is each.VAR_POSITIONAL:
            more = each.name
            tests.append(f"{own}known.issuperset({own}map({own}type, {more}))")
        elif each.kind is each.VAR_KEYWORD:
            named.append(f"**{each.name}")
        elif each.kind is each.KEYWORD_ONLY:
            named.append(f"{each.name!r}: {each.name}")
        else:
            positional.append(each.name)
            tests.append(f"{own}type({each.name}) in {own}known")

    def checked_part(argument: object, where: str) -> Key:
        try:
            return part(argument)
        except NoPart as error:
            raise TypeError(
                f"memoize has no key for the argument {where}{error.where} ({error.what}) of "
                f"{qualified}: give key=, a function of the same arguments that returns the key "
                "of a call"
            ) from None

    def parts(arguments: tuple[Any, ...]) -> tuple[Key, ...]:
        beyond = (f"{more}[{index}]" for index in range(len(arguments) - len(positional)))
        return tuple(map(checked_part, arguments, (*positional, *beyond)))

    def pairs(arguments: dict[str, Any]) -> tuple[tuple[str, Key], ...]:
        return tuple((each, checked_part(arguments[each], each)) for each in sorted(arguments))

    items = "".join(f"{each}, " for each in (*positional, more and f"*{more}") if each)
    key = f"{own}name, {own}args if {' and '.join(tests) or True} else {own}parts({own}args)"
    if named or captured:
        key += f", {own}pairs({own}kwargs)"
    if captured:
        key += f", {own}captured()"
    bare = signature.replace(parameters=declared, return_annotation=signature.empty)
    begin, give = ("async def", "return await") if is_async else ("def", "return")
    source = f"""
{begin} {own}call{bare}:
    {own}args, {own}kwargs = ({items}), {{{", ".join(named)}}}
    {give} {own}answer(({key}), {own}args, {own}kwargs)
"""
    used = {
        "name": name, "known": _THEMSELVES, "map": map, "type": type, "defaults": defaults,
        "parts": parts, "pairs": pairs, "captured": captured, "answer": answer,
    }  # fmt: skip
    scope: dict[str, Any] = {f"{own}{each}": value for each, value in used.items()}
    exec(source, scope)
    # (In its own globals it would be in a cycle.)
    call = scope.pop(f"{own}call")
    # For the errors of wrong calls.
    call.__name__ = getattr(function, "__name__", name)
    call.__qualname__ = qualified
    return cast("Callable[..., Any]", call)
