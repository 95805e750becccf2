"""Type expressions, such as ``list[User]``: their names, and which values they describe.

They describe values by the exact types of all parts: so whichever of several fitting expressions a
value is read by, it has the same types as before.
"""

from __future__ import annotations

import datetime
import types
import typing
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Callable, Final, Literal, Union, get_args, get_origin
from uuid import UUID

NONE_TYPE: Final = type(None)
SCALARS: Final[frozenset[type[Any]]] = frozenset((
    NONE_TYPE, bool, int, float, str, bytes, datetime.datetime, datetime.date, datetime.time,
    datetime.timedelta, Decimal, UUID,
))  # fmt: skip
_COLLECTIONS: Final = (list, set, frozenset)
_UNIONS: Final = (Union, getattr(types, "UnionType", Union))

Test = Callable[[Any], bool]


def class_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def bare(kind: Any) -> Any:
    """The type without what does not change which values it has: an alias, a NewType, Annotated."""
    while True:
        if kind is None:
            return NONE_TYPE
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif getattr(typing, getattr(kind, "_name", None) or "", None) is kind is not Any:
            # typing.List, of anything.
            kind = get_origin(kind) or object
        else:
            return kind


def is_union(kind: Any) -> bool:
    return get_origin(kind) in _UNIONS


def is_class(kind: Any) -> bool:
    # (Before 3.11 list[int] is an instance of type.)
    return isinstance(kind, type) and get_origin(kind) is None and kind is not Any


def members(kind: Any) -> Iterator[Any]:
    """The types of a union, or the type itself."""
    inner = bare(kind)
    if is_union(inner):
        for each in get_args(inner):
            yield from members(each)
    else:
        yield inner if is_class(inner) else kind


def leaves(kind: Any) -> Iterator[Any]:
    """The classes of the expression, and what is no type expression."""
    for each in members(kind):
        inner = bare(each)
        origin, arguments = get_origin(inner), get_args(inner)
        if origin is None:
            yield inner
        elif origin is Literal:
            yield from map(type, arguments)
        else:
            if origin not in _COLLECTIONS and origin not in (dict, tuple):
                yield origin
            for argument in arguments:
                # (Before 3.11 the argument of tuple[()] is ().)
                if argument is not ... and argument != ():
                    yield from leaves(argument)


def name_of(kind: Any) -> str:
    """One name for all spellings of a type expression. That of a class has its module."""
    kind = bare(kind)
    return class_name(kind) if is_class(kind) else _name(kind)


def _name(kind: Any) -> str:
    kind = bare(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is NONE_TYPE:
        return "None"
    if kind is ...:
        return "..."
    if origin is None:
        if not is_class(kind):
            raise TypeError(f"a type is expected, not {kind!r}")
        return kind.__qualname__ if kind.__module__ == "builtins" else class_name(kind)
    if is_union(kind):
        return "|".join(map(_name, members(kind)))
    if origin is Literal:
        return f"Literal[{','.join(map(repr, arguments))}]"
    return f"{_name(origin)}[{','.join(_name(each) for each in arguments if each != ())}]"


class Fit:
    """Tests whether a value is of a type."""

    __slots__ = ("_classes", "_tests")

    def __init__(self, kind: Any, tests: Tests) -> None:
        classes: list[type[Any]] = []
        self._tests: list[Test] = []
        for each in map(bare, members(kind)):
            if get_origin(each) is None:
                tests.check_class(each)
                classes.append(each)
            else:
                self._tests.append(tests.test(each))
        self._classes = frozenset(classes)

    def __call__(self, value: Any) -> bool:
        return type(value) in self._classes or any(test(value) for test in self._tests)

    def all(self, values: Iterable[Any]) -> bool:
        return self._classes.issuperset(map(type, values)) or all(map(self, values))


class Tests:
    """Makes tests of values, for the types that a library knows."""

    def __init__(
        self,
        check_class: Callable[[Any], None],
        check_key: Callable[[Any], None],
        fields: Callable[[Any], Iterable[tuple[str, Any]]],
    ) -> None:
        """check_class, check_key: raise TypeError for a class that the library does not know, and
        for the type of a dict's keys. fields: the fields of a generic class whose types depend on
        its arguments."""
        self.check_class = check_class
        self._check_key = check_key
        self._fields = fields
        self._made: dict[Any, Test] = {}

    def test(self, kind: Any) -> Test:
        """Of a type with arguments."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            choices = {(type(each), each) for each in arguments}
            classes = {type(each) for each in arguments}
            if not classes <= {NONE_TYPE, bool, int, str}:
                raise TypeError(f"a literal is None, a bool, an int or a str, not {kind!r}")
            return lambda value: type(value) in classes and (type(value), value) in choices
        if origin in _COLLECTIONS:
            item = Fit(arguments[0], self)
            return lambda value: type(value) is origin and item.all(value)
        if origin is dict:
            self._check_key(arguments[0])
            key, item = Fit(arguments[0], self), Fit(arguments[1], self)
            return lambda value: type(value) is dict and key.all(value) and item.all(value.values())
        if origin is tuple:
            return self._tuple([each for each in arguments if each != ()])
        if is_class(origin):
            return self._generic(kind, origin)
        raise TypeError(f"{kind!r} does not say which class its values have")

    def _tuple(self, arguments: list[Any]) -> Test:
        if arguments[1:] == [...]:
            item = Fit(arguments[0], self)
            return lambda value: type(value) is tuple and item.all(value)
        items = [Fit(each, self) for each in arguments]
        return lambda value: (
            type(value) is tuple
            and len(value) == len(items)
            and all(item(each) for item, each in zip(items, value))
        )

    def _generic(self, kind: Any, origin: type[Any]) -> Test:
        made = self._made.get(kind)
        if made is None:
            fits: list[tuple[str, Fit]] = []

            def test(value: Any) -> bool:
                return type(value) is origin and all(
                    fit(getattr(value, name)) for name, fit in fits
                )

            # Before its fields, which may be of the same type.
            made = self._made[kind] = test
            self.check_class(origin)
            fits.extend((name, Fit(each, self)) for name, each in self._fields(kind))
        return made


def value_classes(kind: Any) -> set[type[Any]]:
    """The classes of the values of a type that is no union."""
    inner = bare(kind)
    origin = get_origin(inner)
    if origin is Literal:
        return set(map(type, get_args(inner)))
    return {inner if origin is None else origin}
