"""Reads pickles without unpickling: runs no code and imports nothing that a pickle names.

`read` interprets the opcodes of protocols 0 to 5. It builds values that Shale has forms for: None,
numbers, str, bytes, collections, and a few classes of the standard library, which it makes from
their checked arguments by itself. In place of anything else it goes on with `_OTHER`, so that it
finds all names of a pickle.

A pickle that was made to exhaust a reader is not read to its end: `_MOST_WORK` limits the steps, so
the objects, and the comparisons of keys; `_MOST_DIGITS` and `_LONGEST_INT` ints; and the value
that it describes, with each shared part counted wherever it occurs, may not be much larger than the
pickle, nor deeper than Shale's values.
"""

from __future__ import annotations

import codecs
import struct
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Callable, Final
from uuid import UUID

from ..._data.packed import MAX_DEPTH

_MOST_WORK: Final = 2_000_000
_MOST_DIGITS: Final = 4300
_LONGEST_INT: Final = 1 << 16
"""Bytes."""
_MOST_SHARED: Final = 64 << 20
"""The size of a value, with its shared parts counted wherever they occur, that any pickle may have;
a larger pickle may have four times its own size."""
_COMPARISONS: Final = 200
"""Comparisons of keys that count as one step."""
_BITS: Final = 10
"""The logarithm of the bits of an int that count as one: a hash walks all of them."""
_SET: Final = 4
"""The work of an empty set, which is large."""
_LONGEST_NAME: Final = 200


class _Unreadable(Exception):
    """The bytes are no pickle, or are cut off."""


class _Costly(_Unreadable):
    """The pickle takes too much work or memory."""


@dataclass
class Pickle:
    """What `read` found."""

    kind: str
    """"plain", "data" (plain but for ``data_names``), "classes", "damaged" or "costly"."""
    value: Any
    """Of a pickle that is plain or data."""
    data_names: list[str]
    """The names of classes whose objects were made without calling them."""
    names: list[str]
    """All other names. Unpickling imports their modules and can call them."""

    @property
    def built(self) -> bool:
        return self.kind in ("plain", "data")


class _Other:
    """In place of what is not built."""


class _Name:
    """A class or function that a pickle names, and ours in its place."""

    __slots__ = ("full", "make", "new")

    def __init__(
        self, full: str, make: Callable[..., Any] | None, new: Callable[[], Any] | None
    ) -> None:
        self.full = full
        self.make = make
        self.new = new


_OTHER: Final = _Other()

# Makers, by name. They get the arguments of a pickle, and raise for others than pickle writes.


def _is(value: Any, *kinds: type[Any]) -> Any:
    if type(value) not in kinds:
        raise _Unreadable
    return value


def _date(state: Any) -> date:
    year, month, day = struct.unpack(">HBB", _is(state, bytes))
    return date(year, month, day)


def _datetime(state: Any, zone: Any = None) -> datetime:
    year, month, day, hour, minute, second, micro = struct.unpack(">HBBBBB3s", _is(state, bytes))
    return datetime(
        year, month & 127, day, hour, minute, second, int.from_bytes(micro, "big"), _zone(zone),
        fold=month >> 7,
    )  # fmt: skip


def _time(state: Any, zone: Any = None) -> time:
    hour, minute, second, micro = struct.unpack(">BBB3s", _is(state, bytes))
    micro = int.from_bytes(micro, "big")
    return time(hour & 127, minute, second, micro, _zone(zone), fold=hour >> 7)


def _zone(zone: Any) -> tzinfo | None:
    if zone is None or isinstance(zone, tzinfo):
        return zone
    raise _Unreadable


def _timedelta(days: Any, seconds: Any, microseconds: Any) -> timedelta:
    return timedelta(_is(days, int), _is(seconds, int), _is(microseconds, int))


def _timezone(offset: Any) -> timezone:
    return timezone(_is(offset, timedelta))


def _zoneinfo(key: Any, cached: Any) -> tzinfo:
    from zoneinfo import ZoneInfo

    return ZoneInfo(_is(key, str))


def _decimal(text: Any) -> Decimal:
    return Decimal(_is(text, str))


_ZONE: Final = "zoneinfo.ZoneInfo"
_ZONE_METHOD: Final = _ZONE + "._unpickle"


def _new_uuid() -> UUID:
    return UUID(int=0)


def _set_uuid(value: UUID, state: Any) -> None:
    number = _is(_is(state, dict)["int"], int)
    if not 0 <= number < 1 << 128:
        raise _Unreadable
    object.__setattr__(value, "int", number)


def _bytes(*arguments: Any) -> bytes:
    # Of protocols without an opcode for them: no argument.
    if arguments:
        raise _Unreadable
    return b""


def _encoded(text: Any, encoding: Any) -> bytes:
    if encoding != "latin1":
        raise _Unreadable
    return bytes(_is(text, str).encode("latin1"))


def _bytearray(data: Any = b"", encoding: Any = None) -> bytearray:
    if encoding is not None:
        data = _is(data, str).encode("latin1")
    return bytearray(_is(data, bytes))


def _ordered() -> OrderedDict[Any, Any]:
    return OrderedDict()


_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "_codecs.encode": _encoded,
    "collections.OrderedDict": _ordered,
    "builtins.bytearray": _bytearray,
    "builtins.bytes": _bytes,
    "datetime.date": _date,
    "datetime.datetime": _datetime,
    "datetime.time": _time,
    "datetime.timedelta": _timedelta,
    "datetime.timezone": _timezone,
    "decimal.Decimal": _decimal,
    _ZONE_METHOD: _zoneinfo,
}
_SETS: Final = ("builtins.set", "builtins.frozenset")
# Made without arguments, then given their state.
_NEW: Final[dict[str, Callable[[], Any]]] = {"uuid.UUID": _new_uuid}
_GETATTR: Final = "builtins.getattr"
# The forms of built-in types in old protocols, and of a method.
_BUILT_IN: Final = frozenset(
    ("_codecs.encode", "builtins.bytearray", "builtins.bytes", _GETATTR, *_SETS)
)

# Before protocol 3, modules have the names of Python 2.
_PYTHON_2: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}

_ERRORS: Final = (_Unreadable, ValueError, TypeError, LookupError, ArithmeticError, AttributeError,
                  struct.error, OSError)  # fmt: skip


def read(data: bytes) -> Pickle:
    """What the pickle describes."""
    reader = _Reader(data)
    value = None
    try:
        found = reader.run()
        if reader.names or reader.incomplete:
            kind = "classes"
        else:
            _measure(found, max(_MOST_SHARED, 4 * len(data)), {}, 0)
            kind, value = "data" if reader.data_names else "plain", found
    except _Costly:
        kind = "costly"
    except _ERRORS:
        kind = "classes" if reader.names else "damaged"
    return Pickle(kind, value, list(reader.data_names), list(reader.names))


def _measure(
    value: Any, most: int, known: dict[int, tuple[int, int]], depth: int
) -> tuple[int, int]:
    """The size of a value, with each part counted wherever it occurs, and its depth."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return 1 + len(value), 0
    if kind is dict or kind is OrderedDict:
        parts: Any = (part for pair in value.items() for part in pair)
    elif kind is list or kind is tuple or kind is set or kind is frozenset:
        parts = value
    else:
        if kind is _Name:
            # The class itself.
            raise _Unreadable
        return 1 + (value.bit_length() >> _BITS if kind is int else 0), 0
    found = known.get(id(value))
    if found is None:
        if depth == MAX_DEPTH:
            raise _Costly
        size, height = 1, 0
        for part in parts:
            of_part = _measure(part, most, known, depth + 1)
            size += of_part[0]
            height = max(height, of_part[1])
            if size > most:
                raise _Costly
        found = known[id(value)] = size, height + 1
    if depth + found[1] > MAX_DEPTH:
        raise _Costly
    return found


class _Reader:
    """The machine that pickles are programs of: a stack with marks, and a memo."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.work = 0
        self.protocol = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.names: dict[str, None] = {}
        self.data_names: dict[str, None] = {}
        self.incomplete = False
        # They count what they make.
        self.makers: dict[str, Callable[..., Any]] = {
            _SETS[0]: self.set_of,
            _SETS[1]: self.frozenset_of,
            _GETATTR: self.attribute,
        }

    def run(self) -> Any:
        data, size, operations = self.data, len(self.data), _OPERATIONS
        while self.at < size:
            code = data[self.at]
            self.at += 1
            self.charge(1)
            if code == _STOP:
                return self.stack.pop()
            operation = operations[code]
            if operation is None:
                raise _Unreadable
            operation(self)
        raise _Unreadable

    def charge(self, work: int) -> None:
        self.work += work
        if self.work > _MOST_WORK:
            raise _Costly

    # Arguments of opcodes

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise _Unreadable
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _Unreadable
        return self.take(end + 1 - self.at)[:-1]

    def digits(self) -> int:
        text = self.line()
        if len(text) > _MOST_DIGITS:
            raise _Costly
        return int(text)

    def items(self) -> list[Any]:
        """Takes what is above the last mark."""
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    # What several opcodes do

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def other(self) -> None:
        self.incomplete = True
        self.stack.append(_OTHER)

    def name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            self.names["(a name that it computes)"] = None
            return self.other()
        if self.protocol < 3:
            module = _PYTHON_2.get(module, module)
        full = f"{module}.{name}"
        make = _MAKERS.get(full) or self.makers.get(full)
        if make is None and full not in _NEW and full != _ZONE:
            self.names[full[:_LONGEST_NAME]] = None
            return self.other()
        if full not in _BUILT_IN:
            self.data_names[_ZONE if full == _ZONE_METHOD else full] = None
        return self.push(_Name(full, make, _NEW.get(full)))

    def unknown(self, function: Any) -> None:
        """The call of what is not called here."""
        if type(function) is _Name:
            self.names[function.full] = None
        self.other()

    def reduce(self, function: Any, arguments: Any) -> None:
        if (
            type(function) is not _Name
            or function.make is None
            or type(arguments) is not tuple
            or _OTHER in arguments[:3]
        ):
            return self.unknown(function)
        return self.push(function.make(*arguments))

    def new(self, kind: Any, arguments: Any) -> None:
        if type(kind) is not _Name or kind.new is None or arguments != ():
            return self.unknown(kind)
        return self.push(kind.new())

    def attribute(self, of: Any, name: Any) -> Any:
        if type(of) is _Name and of.full == _ZONE and name == "_unpickle":
            return _Name(_ZONE_METHOD, _zoneinfo, None)
        self.names[_GETATTR] = None
        self.incomplete = True
        return _OTHER

    def set_of(self, items: Any = ()) -> set[Any]:
        if items != ():
            _is(items, list)
        found: set[Any] = set()
        self.add(found, items)
        return found

    def frozenset_of(self, items: Any = ()) -> frozenset[Any]:
        return frozenset(self.set_of(items))

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.push(self.memo[index])

    def charge_key(self, key: Any, among: int) -> None:
        """Before a key is hashed and compared with others. The hash of text is random, others can
        be made to collide; that of a tuple walks all of it."""
        kind = type(key)
        if kind is str or kind is bytes:
            return
        if kind is tuple or kind is frozenset or kind is int:
            self.charge(_measure(key, _MOST_WORK, {}, 0)[0])
        self.charge(among // _COMPARISONS)

    def add(self, to: set[Any], items: Any) -> None:
        self.charge(len(items))
        for item in items:
            self.charge_key(item, len(to))
            to.add(item)

    def set_items(self, table: Any, items: list[Any]) -> None:
        if type(table) is not dict and type(table) is not OrderedDict:
            self.incomplete = True
            return
        self.charge(len(items))
        for index in range(0, len(items), 2):
            key, value = items[index], items[index + 1]
            if type(key) is _Other:
                continue
            self.charge_key(key, len(table))
            table[key] = value

    def extend(self, to: Any, items: list[Any]) -> None:
        if type(to) is list:
            self.charge(len(items))
            to.extend(items)
        else:
            self.incomplete = True

    # Opcodes

    def pop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def text(self, data: bytes) -> None:
        self.push(data.decode("utf-8", "surrogatepass"))

    def python_2_str(self, data: bytes) -> None:
        self.push(data.decode("ascii"))

    def quoted(self) -> None:
        line = self.line()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise _Unreadable
        self.python_2_str(codecs.escape_decode(line[1:-1])[0])

    def integer(self) -> None:
        at = self.at
        text = self.line()
        if text in (b"00", b"01"):
            self.push(text == b"01")
        else:
            self.at = at
            self.push(self.digits())

    def long_text(self) -> None:
        text = self.line()
        if len(text) > _MOST_DIGITS:
            raise _Costly
        self.push(int(text[:-1] if text.endswith(b"L") else text))

    def long(self, size: int) -> None:
        if size > _LONGEST_INT:
            raise _Costly
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def empty_set(self) -> None:
        self.charge(_SET)
        self.push(set())

    def frame(self) -> None:
        if self.number(8) > len(self.data) - self.at:
            raise _Unreadable

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise _Unreadable
        items = tuple(self.stack[-count:])
        self.stack[-count:] = [items]

    def build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is UUID and type(state) is dict:
            _set_uuid(self.stack[-1], state)
        else:
            self.incomplete = True

    def instance(self) -> None:
        self.name(_ascii(self.line()), _ascii(self.line()))
        self.stack.pop()
        self.items()
        self.other()

    def object_of(self) -> None:
        self.items()
        self.other()

    def reduce_top(self) -> None:
        arguments = self.stack.pop()
        self.reduce(self.stack.pop(), arguments)

    def new_top(self) -> None:
        arguments = self.stack.pop()
        self.new(self.stack.pop(), arguments)

    def new_with_keywords(self) -> None:
        del self.stack[-3:]
        self.other()

    def stack_name(self) -> None:
        name = self.stack.pop()
        self.name(self.stack.pop(), name)

    def persistent(self, _id: Any) -> None:
        self.names["(a persistent id)"] = None
        self.other()

    def extension(self, size: int) -> None:
        self.take(size)
        self.names["(an extension code)"] = None
        self.other()

    def buffer(self) -> None:
        raise _Unreadable


def _ascii(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


_STOP: Final = ord(".")


def _operations() -> list[Callable[[_Reader], Any] | None]:
    reader = _Reader
    by_code: dict[str, Callable[[_Reader], Any]] = {
        "(": lambda its: its.marks.append(len(its.stack)),
        "0": reader.pop,
        "1": reader.items,
        "2": lambda its: its.push(its.stack[-1]),
        "F": lambda its: its.push(float(its.line())),
        "I": reader.integer,
        "J": lambda its: its.long(4),
        "K": lambda its: its.push(its.number(1)),
        "L": reader.long_text,
        "M": lambda its: its.push(its.number(2)),
        "N": lambda its: its.push(None),
        "P": lambda its: its.persistent(its.line()),
        "Q": lambda its: its.persistent(its.stack.pop()),
        "R": reader.reduce_top,
        "S": reader.quoted,
        "T": lambda its: its.python_2_str(its.take(its.number(4))),
        "U": lambda its: its.python_2_str(its.take(its.number(1))),
        "V": lambda its: its.push(its.line().decode("raw-unicode-escape")),
        "X": lambda its: its.text(its.take(its.number(4))),
        "a": lambda its: its.extend(its.stack[-2], [its.stack.pop()]),
        "b": reader.build,
        "c": lambda its: its.name(_ascii(its.line()), _ascii(its.line())),
        "d": lambda its: _dict(its, its.items()),
        "}": lambda its: its.push({}),
        "e": lambda its: _appended(its, its.items()),
        "g": lambda its: its.get(its.digits()),
        "h": lambda its: its.get(its.number(1)),
        "i": reader.instance,
        "j": lambda its: its.get(its.number(4)),
        "l": lambda its: its.push(its.items()),
        "]": lambda its: its.push([]),
        "o": reader.object_of,
        "p": lambda its: its.put(its.digits()),
        "q": lambda its: its.put(its.number(1)),
        "r": lambda its: its.put(its.number(4)),
        "s": lambda its: _set_last(its),
        "t": lambda its: its.push(tuple(its.items())),
        ")": lambda its: its.push(()),
        "u": lambda its: _set_all(its, its.items()),
        "G": lambda its: its.push(struct.unpack(">d", its.take(8))[0]),
        "B": lambda its: its.push(its.take(its.number(4))),
        "C": lambda its: its.push(its.take(its.number(1))),
        "\x80": lambda its: setattr(its, "protocol", its.number(1)),
        "\x81": reader.new_top,
        "\x82": lambda its: its.extension(1),
        "\x83": lambda its: its.extension(2),
        "\x84": lambda its: its.extension(4),
        "\x85": lambda its: its.tuple_of(1),
        "\x86": lambda its: its.tuple_of(2),
        "\x87": lambda its: its.tuple_of(3),
        "\x88": lambda its: its.push(True),
        "\x89": lambda its: its.push(False),
        "\x8a": lambda its: its.long(its.number(1)),
        "\x8b": lambda its: its.long(its.number(4)),
        "\x8c": lambda its: its.text(its.take(its.number(1))),
        "\x8d": lambda its: its.text(its.take(its.number(8))),
        "\x8e": lambda its: its.push(its.take(its.number(8))),
        "\x8f": reader.empty_set,
        "\x90": lambda its: _added(its, its.items()),
        "\x91": lambda its: _frozen(its, its.items()),
        "\x92": reader.new_with_keywords,
        "\x93": reader.stack_name,
        "\x94": lambda its: its.put(len(its.memo)),
        "\x95": reader.frame,
        "\x96": lambda its: its.push(bytearray(its.take(its.number(8)))),
        "\x97": reader.buffer,
        "\x98": reader.buffer,
    }
    return [by_code.get(chr(code)) for code in range(256)]


def _dict(its: _Reader, items: list[Any]) -> None:
    its.push({})
    its.set_items(its.stack[-1], items)


def _set_last(its: _Reader) -> None:
    value = its.stack.pop()
    key = its.stack.pop()
    its.set_items(its.stack[-1], [key, value])


def _set_all(its: _Reader, items: list[Any]) -> None:
    its.set_items(its.stack[-1], items)


def _appended(its: _Reader, items: list[Any]) -> None:
    its.extend(its.stack[-1], items)


def _added(its: _Reader, items: list[Any]) -> None:
    if type(its.stack[-1]) is set:
        its.add(its.stack[-1], items)
    else:
        its.incomplete = True


def _frozen(its: _Reader, items: list[Any]) -> None:
    its.push(frozenset(its.set_of(items)))


_OPERATIONS: Final = _operations()
