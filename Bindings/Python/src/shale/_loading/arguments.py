"""The parts of a key for the arguments of a call.

A part is the same in every process and release. Arguments of two types, or with two values, have
two parts: 1, 1.0 and True, or ``Decimal("1.0")`` and ``Decimal("1.00")``, or one moment in two time
zones. Only the order of a dict or a set does not count.

==========================  ==================================================================
argument                    part
==========================  ==================================================================
str, bytes, int             itself
``None``                    ``("None",)``
``True``                    ``("bool", 1)``
``1.5``                     ``("float", "1.5")``
``("a", None)``             ``("tuple", "a", ("None",))``; list likewise
``{"a": 1}``                ``("dict", "a", 1)``, by the stored forms of the keys
``OrderedDict(a=1)``        ``("OrderedDict", "a", 1)``, in its order
``bytearray(b"a")``         ``("bytearray", b"a")``
``{2, 1}``                  ``("set", 1, 2)``, by the stored forms; frozenset likewise
``Color.RED``               ``("enum", "module.Color", "RED")``
``Color``                   ``("class", "module.Color")``; a module likewise
``Decimal("1.0")``          ``("Decimal", "1.0")``
``UUID(int=1)``             ``("UUID", "00000000-0000-0000-0000-000000000001")``
``date(2026, 1, 31)``       ``("date", "2026-01-31")``
``time(12)``                ``("time", "12:00:00", 0, ("None",))``, with fold and tzinfo;
                            datetime likewise
``timedelta(1)``            ``("timedelta", 1, 0, 0)``: days, seconds, microseconds
``timezone.utc``            ``("timezone", 0, "UTC")``: microseconds from UTC, and the name
``ZoneInfo("Asia/Tokyo")``  ``("ZoneInfo", "Asia/Tokyo")``
``Path("a")``               ``("PosixPath", "a")``
any other object            ``("object", "module.Class", "attribute", part, ...)``, sorted
==========================  ==================================================================

An unnamed combination of flags has the part of its value instead of a name. An object is the name
of its class and its attributes, those in ``__dict__`` and in ``__slots__``; if its class extends
one of the types above, the part of that type follows. An object with other state, which only code
in C can have, has no part; nor has ``object()``, which is nothing but itself.
"""

from __future__ import annotations

import enum
import weakref
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from types import MemberDescriptorType, ModuleType
from typing import Any, Callable, Final, NamedTuple, Union, cast

from .._data.keys import encode_key
from .._typing import Key

# A key nests 32 deep, of which the tuples of a call and of a namespace take four.
_MAX_DEPTH: Final = 27


class NoPart(TypeError):
    """An argument has no part."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where = ""
        """The path to it in the argument, such as ``.session[0]``."""


def part(argument: Any, depth: int = 0) -> Key:
    """The part for an argument. Raises `NoPart`."""
    kind = type(argument)
    if kind is str or kind is int or kind is bytes:
        return cast("Key", argument)
    form = _form(kind)
    if form is not None:
        return form(argument, depth)
    if issubclass(kind, enum.Enum):
        # Members of two classes may be equal.
        member = part(argument.value) if argument.name is None else argument.name
        return ("enum", class_name(kind), member)
    if issubclass(kind, type):
        return ("class", class_name(argument))
    return _object(argument, depth)


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _inner(argument: Any, depth: int, where: str) -> Key:
    """The part for an argument in another one. where: its place there."""
    if depth >= _MAX_DEPTH:
        raise NoPart("nested too deep")
    try:
        return part(argument, depth + 1)
    except NoPart as error:
        error.where = where + error.where
        raise


# The forms of types. They call methods of the type itself: a subclass may have others.

_Form = Callable[[Any, int], Key]


def _sequence(kind: Any) -> _Form:
    def form(items: Any, depth: int) -> Key:
        inner = enumerate(list(kind.__iter__(items)))
        return (kind.__name__, *(_inner(item, depth, f"[{index}]") for index, item in inner))

    return form


def _set(kind: Any) -> _Form:
    def form(items: Any, depth: int) -> Key:
        parts = [_inner(item, depth, "{}") for item in list(kind.__iter__(items))]
        return (kind.__name__, *sorted(parts, key=encode_key))

    return form


def _pairs(items: Any, depth: int) -> list[tuple[Key, Key]]:
    return [
        (_inner(key, depth, "{}"), _inner(value, depth, f"[{key!r}]"))
        for key, value in list(dict.items(items))
    ]


def _dict(items: Any, depth: int) -> Key:
    pairs = sorted(_pairs(items, depth), key=lambda pair: encode_key(pair[0]))
    return ("dict", *(each for pair in pairs for each in pair))


def _ordered_dict(items: Any, depth: int) -> Key:
    return ("OrderedDict", *(each for pair in _pairs(items, depth) for each in pair))


def _moment(kind: Any) -> _Form:
    def form(moment: Any, depth: int) -> Key:
        zone = _inner(moment.tzinfo, depth, ".tzinfo")
        return (kind.__name__, kind.isoformat(moment), moment.fold, zone)

    return form


def _timezone(zone: timezone, _depth: int) -> Key:
    microseconds = zone.utcoffset(None) // timedelta(microseconds=1)
    return ("timezone", microseconds, zone.tzname(None))


def _zone_info(zone: Any, _depth: int) -> Key:
    if zone.key is None:
        raise NoPart("a ZoneInfo without a key")
    return ("ZoneInfo", zone.key)


def _decimal(number: Any, _depth: int) -> Key:
    from decimal import Decimal

    return ("Decimal", Decimal.__str__(number))


_FORMS: Final[dict[type, Union[_Form, None]]] = {
    # (These three are for subclasses.)
    str: lambda text, _: str.__str__(text),
    bytes: lambda data, _: bytes.__getitem__(data, slice(None)),
    int: lambda number, _: int.__int__(number),
    type(None): lambda _none, _: ("None",),
    bool: lambda truth, _: ("bool", int(truth)),
    float: lambda number, _: ("float", float.__repr__(number)),
    bytearray: lambda data, _: ("bytearray", bytes(data)),
    tuple: _sequence(tuple),
    list: _sequence(list),
    dict: _dict,
    set: _set(set),
    frozenset: _set(frozenset),
    datetime: _moment(datetime),
    date: lambda day, _: ("date", date.isoformat(day)),
    time: _moment(time),
    timedelta: lambda span, _: ("timedelta", span.days, span.seconds, span.microseconds),
    timezone: _timezone,
    ModuleType: lambda module, _: ("module", module.__name__),
}


def _path(path: Any, _depth: int) -> Key:
    return (type(path).__name__, str(path))


# Of modules that are slow to import: a program that has such an argument has imported them.
_MORE_FORMS: Final[dict[tuple[str, str], _Form]] = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("decimal", "Decimal"): _decimal,
    ("uuid", "UUID"): lambda number, _: ("UUID", str(number)),
    ("zoneinfo", "ZoneInfo"): _zone_info,
    ("pathlib", "PosixPath"): _path,
    ("pathlib", "PurePosixPath"): _path,
    ("pathlib", "WindowsPath"): _path,
    ("pathlib", "PureWindowsPath"): _path,
}


def _form(kind: type) -> _Form | None:
    form = _FORMS.get(kind)
    if form is None:
        # (In 3.13 a path's module is pathlib._local.)
        return _MORE_FORMS.get((kind.__module__.partition(".")[0], kind.__qualname__))
    return form


# Other objects


class _Shape(NamedTuple):
    """Where the objects of a class have their state."""

    name: str
    slots: tuple[MemberDescriptorType, ...]
    base: _Form | None
    """The form of the type that the class extends."""


_shapes: Final[weakref.WeakKeyDictionary[type, _Shape | None]] = weakref.WeakKeyDictionary()

# The flag of a type whose size does not include the reference of its objects to their __dict__.
_MANAGED_DICT: Final = 1 << 4
_POINTER: Final = tuple.__itemsize__


def _object(argument: Any, depth: int) -> Key:
    kind = type(argument)
    try:
        shape = _shapes[kind]
    except KeyError:
        shape = _shapes[kind] = _shape(kind)
    if shape is None:
        raise NoPart(f"of the type {class_name(kind)}")
    state = []
    for slot in shape.slots:
        # (It may have no value.)
        with suppress(AttributeError):
            state.append((slot.__name__, slot.__get__(argument)))
    state += dict(getattr(argument, "__dict__", ())).items()
    state.sort(key=lambda pair: pair[0])
    parts: list[Key] = []
    for name, value in state:
        parts += (name, _inner(value, depth, f".{name}"))
    if shape.base is not None:
        parts.append(shape.base(argument, depth + 1))
    return ("object", shape.name, *parts)


def _shape(kind: type) -> _Shape | None:
    """None: the objects of the class have state that Python code does not see."""
    base: type = next(each for each in kind.__mro__ if each is object or _form(each) is not None)
    slots = tuple(
        slot
        for each in kind.__mro__
        if each not in base.__mro__ and "__slots__" in vars(each)
        for slot in vars(each).values()
        if isinstance(slot, MemberDescriptorType)
    )
    pointers = len(slots) + _references(kind) - _references(base)
    visible = base.__basicsize__ + pointers * _POINTER
    # (Some of the named tuples of C, such as os.stat_result, have more items than the tuple.)
    if kind is object or kind.__basicsize__ > visible or hasattr(kind, "n_sequence_fields"):
        return None
    return _Shape(class_name(kind), slots, _form(base))


def _references(kind: type) -> int:
    """The number of references, to a __dict__ and to weak references, in an object."""
    has_dict = kind.__dictoffset__ != 0 and not kind.__flags__ & _MANAGED_DICT
    return has_dict + (kind.__weakrefoffset__ > 0)
