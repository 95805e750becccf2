"""Values of web frameworks, stored without pickle."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from .._data import packed
from .._data.values import Codec
from .._native import log
from .._native.errors import InvalidError, TooLargeError
from .._native.extension import speed

_LEAVES: Final = frozenset((str, int, float, bool, bytes, type(None)))
_TUPLE: Final = ""

_encode = Codec(None).encode
_decode: Final = packed.unpack if speed is None else speed.unpack


class FormSerializer:
    """A serializer for Shale's types and for those of a framework, also inside of lists, tuples,
    sets and dicts.

    A value of the framework is a tuple with its tag first; a tuple has the tag "". A subclass names
    its format and converts the framework's values.
    """

    name = ""

    def form(self, value: Any) -> tuple[Any, ...] | None:
        """A tag and parts of Shale's types; None for a value of another kind. TypeError, with the
        reason, for one that cannot be stored."""
        raise NotImplementedError

    def value(self, tag: str, *parts: Any) -> Any:
        """The value of a form. An error of ``LOADS_ERRORS`` for parts that do not fit."""
        raise NotImplementedError

    def dumps(self, value: Any, /) -> bytes:
        try:
            return _encode((self._plain(value),))[1]
        except (RecursionError, InvalidError) as error:
            raise TypeError("the value is nested too deeply, or contains itself") from error

    def loads(self, data: bytes, /) -> Any:
        (plain,) = _decode(data)
        return self._restored(plain)

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _LEAVES:
            return value
        form = self.form(value)
        if form is not None:
            return form
        if kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            return (_TUPLE, *map(self._plain, value))
        if kind is list or kind is set or kind is frozenset:
            return kind(map(self._plain, value))
        if kind is dict or kind is OrderedDict:
            return kind((self._plain(key), self._plain(value[key])) for key in value)
        return value

    def _restored(self, plain: Any) -> Any:
        kind = type(plain)
        if kind is tuple:
            tag, *parts = plain
            if tag == _TUPLE:
                return tuple(map(self._restored, parts))
            return self.value(tag, *parts)
        if kind is list or kind is set or kind is frozenset:
            return kind(map(self._restored, plain))
        if kind is dict or kind is OrderedDict:
            return kind((self._restored(key), self._restored(plain[key])) for key in plain)
        return plain

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def is_markup(value: Any) -> bool:
    """Whether it is a str that templates do not escape: Django's, MarkupSafe's or a subclass."""
    return isinstance(value, str) and hasattr(value, "__html__")


def exactly(kind: Any, part: Any) -> Any:
    """The part of a form, if it is of this type."""
    if not isinstance(part, kind):
        raise TypeError(f"a part of a form is {type(part).__name__}")
    return part


REFUSED: Final = TypeError, TooLargeError
"""What a cache raises for a value that it cannot store."""


class Refusals:
    """Logs values that cannot be stored: one of each type in a group."""

    _MOST: Final = 1000

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._logged: set[tuple[type[Any], str]] = set()

    def log(self, key: str, value: Any, error: Exception, group: str, name: str = "") -> None:
        """group: of keys that belong together. name: of the group, for the reader."""
        kind = type(value)
        if (kind, group) in self._logged or len(self._logged) == self._MOST:
            return
        self._logged.add((kind, group))
        log.warn(
            "not cached (and not logged again): a %s.%s with the key %r%s, as %s. %s",
            kind.__module__,
            kind.__qualname__,
            key,
            name,
            error,
            self._advice,
        )
