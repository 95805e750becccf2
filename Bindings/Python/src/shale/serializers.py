"""Serializers for the values of other libraries. They run no stored code, and read only the types
that their caller names: a value of another type is a miss, whose cause is logged.

    from shale.serializers import PydanticSerializer

    cache = shale.Cache("/var/cache/app", serializer=PydanticSerializer(User, Order))

Each needs its library: ``pip install 'shale-cache[pydantic]'``, ``[msgspec]`` or ``[numpy]``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from enum import Enum
from functools import partial
from importlib import import_module
from io import BytesIO
from tokenize import TokenError
from typing import Annotated, Any, Callable, Final, Literal, Optional, get_args, get_origin

from ._data.type_expressions import (
    NONE_TYPE,
    SCALARS,
    Fit,
    Tests,
    bare,
    class_name,
    is_class,
    is_union,
    leaves,
    members,
    name_of,
    value_classes,
)
from ._data.varint import read_size, size_bytes
from ._native.errors import InvalidError

__all__ = ["MsgspecSerializer", "NumpySerializer", "PydanticSerializer", "TensorsSerializer"]


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this serializer needs {name}: pip install 'shale-cache[{name}]'"
        ) from error


_Write = Callable[[Any], bytes]
_Read = Callable[[bytes], Any]


class _ByType:
    """Values of given types: a size, the name of the type, and the bytes of its library."""

    name = ""

    def __init__(self, kinds: tuple[Any, ...]) -> None:
        self._given = kinds
        self._tests = Tests(self._check_class, self._check_key, self._fields)
        self._kinds: dict[bytes, Any] = {}
        self._readers: dict[bytes, _Read] = {}
        self._writers: dict[type[Any], list[tuple[Fit | None, bytes, _Write]]] = {}
        for kind in kinds:
            for each in members(kind):
                self._add(each)
        for writers in self._writers.values():
            # A class without its arguments describes less.
            writers.sort(key=lambda writer: writer[0] is None)

    def _add(self, kind: Any) -> None:
        name = name_of(kind).encode()
        if name in self._kinds:
            if self._kinds[name] != kind:
                raise InvalidError(f"two of the types have the same name: {name.decode()}")
            return
        # Of a class, the class alone decides.
        fit = None
        if is_class(kind):
            self._check_given(kind)
        else:
            fit = Fit(kind, self._tests)
        write, self._readers[name] = self._form(kind)
        self._kinds[name] = kind
        for each in value_classes(kind):
            head = size_bytes(len(name)) + name
            self._writers.setdefault(each, []).append((fit, head, write))

    def dumps(self, value: Any, /) -> bytes:
        writers = self._writers.get(type(value), ())
        for fit, head, write in writers:
            if fit is None or fit(value):
                return head + write(value)
        what = " of this content" if writers else ""
        raise TypeError(f"{class_name(type(value))}{what} is none of the types of {self!r}")

    def loads(self, data: bytes, /) -> Any:
        size, at = read_size(data, 0)
        name = data[at : at + size]
        read = self._readers.get(name)
        if read is None:
            raise TypeError(f"{name!r} is none of the types of {self!r}")
        return read(data[at + size :])

    @property
    def classes(self) -> frozenset[type[Any]]:
        """The types that are classes: all their values fit."""
        return frozenset(filter(is_class, self._kinds.values()))

    def fits(self, value: Any) -> bool:
        """Whether the value is of one of the types."""
        writers = self._writers.get(type(value), ())
        return any(fit is None or fit(value) for fit, _, _ in writers)

    def for_results(self, kind: Any) -> _ByType | None:
        """The serializer of a memoized function that returns this type. None if its results are
        not of classes of the library."""
        classes = set(leaves(kind))
        if classes <= SCALARS:
            return None
        for each in classes:
            self._check_class(each)
        given = tuple(each for each in members(kind) if is_class(each))
        derived = [
            each for each in self._kinds.values() if is_class(each) and issubclass(each, given)
        ]
        return type(self)(kind, *derived)

    def _check_given(self, kind: type[Any]) -> None:
        """TypeError for a class that the library does not know, as far as that is known."""
        self._check_class(kind)

    def _check_class(self, kind: Any) -> None:
        """The same for a class inside of a type."""
        raise NotImplementedError

    def _check_key(self, kind: Any) -> None:
        """The same for the keys of a dict."""

    def _fields(self, kind: Any) -> Iterable[tuple[str, Any]]:
        """The fields of a generic class whose types depend on its arguments."""
        raise TypeError(f"{kind!r} does not say which class its values have")

    def _form(self, kind: Any) -> tuple[_Write, _Read]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(name.decode() for name in self._kinds)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given


class MsgspecSerializer(_ByType):
    """``msgspec.Struct``, dataclasses and attrs classes, as msgspec's MessagePack, and whatever
    they contain that msgspec knows: datetimes, enums, UUIDs, sets, others of their kind.

    Given as classes, generic structs (``Page[User]``), and lists, dicts, sets, tuples and unions of
    these (``list[User]``). A value is stored by the first type that has exactly its classes, and
    the class of an object defines its contents. Bytes that no longer fit the type are a miss. The
    return type of a memoized function need not be given.
    """

    name = "msgspec"

    def __init__(self, *kinds: Any) -> None:
        self._msgspec = _library("msgspec")
        self._encode = self._msgspec.msgpack.Encoder().encode
        super().__init__(kinds)

    def _check_given(self, kind: type[Any]) -> None:
        pass

    def _check_class(self, kind: Any) -> None:
        known = is_class(kind) and (
            kind in SCALARS
            or issubclass(kind, (self._msgspec.Struct, Enum))
            or hasattr(kind, "__dataclass_fields__")
            or hasattr(kind, "__attrs_attrs__")
            or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        )
        if not known:
            raise TypeError(f"a type that msgspec knows is expected, not {kind!r}")

    def _fields(self, kind: Any) -> Iterable[tuple[str, Any]]:
        fields = self._msgspec.structs.fields
        for own, general in zip(fields(kind), fields(get_origin(kind))):
            if own.type != general.type:
                yield own.name, own.type

    def _form(self, kind: Any) -> tuple[_Write, _Read]:
        decode, wrong = self._msgspec.msgpack.Decoder(kind).decode, self._msgspec.DecodeError

        def read(data: bytes) -> Any:
            try:
                return decode(data)
            except wrong as error:
                # (In older releases it is no ValueError.)
                raise ValueError(str(error)) from error

        return self._encode, read


class PydanticSerializer(_ByType):
    """Pydantic models, as JSON, which the model validates when it is read.

    Given as models, also generic ones (``Page[User]``), and lists, dicts, sets, tuples and unions
    of these (``list[User]``). A value is stored by the first type that has exactly its classes.
    JSON that no longer fits its type is a miss. Fields that a model leaves out of its JSON are not
    stored, and a model reads the unions in its fields as it does from any JSON. The return
    type of a memoized function need not be given.
    """

    name = "pydantic"

    def __init__(self, *kinds: Any) -> None:
        self._pydantic = _library("pydantic")
        super().__init__(kinds)

    def _check_class(self, kind: Any) -> None:
        if not is_class(kind):
            raise TypeError(f"a type is expected, not {kind!r}")
        if kind not in SCALARS and not issubclass(kind, (self._pydantic.BaseModel, Enum)):
            raise TypeError(f"{class_name(kind)} is no model of pydantic")

    def _check_key(self, kind: Any) -> None:
        inner = bare(kind)
        if get_origin(inner) is Literal:
            inner = str if set(leaves(kind)) == {str} else None
        if inner is NONE_TYPE or inner not in SCALARS:
            raise TypeError(f"JSON has no keys of {kind!r}")

    def _form(self, kind: Any) -> tuple[_Write, _Read]:
        if is_class(kind) and issubclass(kind, self._pydantic.BaseModel):

            def write_model(value: Any) -> bytes:
                text: str = value.model_dump_json(round_trip=True, by_alias=False)
                return text.encode()

            return write_model, partial(kind.model_validate_json, by_alias=False, by_name=True)
        adapter = self._pydantic.TypeAdapter(
            self._tagged(kind),
            config=_CONFIG,
        )
        return (
            partial(adapter.dump_json, round_trip=True, by_alias=False),
            partial(adapter.validate_json, by_alias=False, by_name=True),
        )

    def _tagged(self, kind: Any) -> Any:
        """The type with the name of a union's member before each of its values: JSON alone may fit
        several."""
        inner = bare(kind)
        origin, arguments = get_origin(inner), get_args(inner)
        if is_union(inner):
            several = [each for each in members(inner) if each is not NONE_TYPE]
            if len(several) == 1:
                return Optional[self._tagged(several[0])]
            options = [
                (name_of(each), self._tagged(each), Fit(each, self._tests))
                for each in members(inner)
            ]
            return Annotated[Any, _Tagged(options)]
        if get_origin(kind) is Annotated:
            annotated: Any = Annotated
            parts = (self._tagged(get_args(kind)[0]), *get_args(kind)[1:])
            return annotated[parts]
        if origin is None or origin is Literal or arguments == ():
            return inner
        return origin[
            tuple(each if each in (..., ()) else self._tagged(each) for each in arguments)
        ]


# Of values outside of models: JSON for all floats and bytes.
_CONFIG: Final[Any] = {
    "ser_json_inf_nan": "constants",
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
}


class _Tagged:
    """An annotation for pydantic: a value is an object whose only key is the name of its type."""

    def __init__(self, options: list[tuple[str, Any, Fit]]) -> None:
        self._options = options

    def __get_pydantic_core_schema__(self, _source: Any, handler: Any) -> Any:
        schemas = _library("pydantic_core").core_schema
        fields = schemas.typed_dict_schema(
            {
                name: schemas.typed_dict_field(handler.generate_schema(kind), required=False)
                for name, kind, _ in self._options
            },
            extra_behavior="forbid",
            config=_CONFIG,
        )
        return schemas.no_info_after_validator_function(
            self._value,
            fields,
            serialization=schemas.plain_serializer_function_ser_schema(
                self._object, return_schema=fields
            ),
        )

    def _object(self, value: Any) -> dict[str, Any]:
        return {next(name for name, _, fit in self._options if fit(value)): value}

    @staticmethod
    def _value(found: dict[str, Any]) -> Any:
        (value,) = found.values()
        return value


class _Arrays:
    """The common part of the serializers of arrays."""

    def __init__(self, dtypes: tuple[Any, ...]) -> None:
        self._numpy = _library("numpy")
        if not dtypes:
            raise InvalidError(f"{type(self).__name__} needs the dtypes that it may read")
        self._dtypes = [self._numpy.dtype(each) for each in dtypes]
        if any(each.hasobject for each in self._dtypes):
            raise InvalidError("an array of objects cannot be stored without pickle")

    def _check(self, array: Any) -> Any:
        if type(array) is not self._numpy.ndarray:
            raise TypeError(f"{class_name(type(array))} is no numpy.ndarray")
        if array.dtype not in self._dtypes:
            raise TypeError(f"{array.dtype} is none of the dtypes of {self!r}")
        return array

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self._dtypes))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self._dtypes)


class NumpySerializer(_Arrays):
    """``numpy.ndarray`` of the given dtypes, in numpy's ``.npy`` format."""

    name = "numpy"

    def __init__(self, *dtypes: Any) -> None:
        super().__init__(dtypes)

    def dumps(self, value: Any, /) -> memoryview:
        data = BytesIO()
        self._numpy.save(data, self._check(value), allow_pickle=False)
        return data.getbuffer()

    def loads(self, data: bytes, /) -> Any:
        try:
            array = self._numpy.lib.format.read_array(BytesIO(data), allow_pickle=False)
        except (SyntaxError, TokenError) as error:
            raise ValueError("no header of an array") from error
        return self._check(array)


_TENSORS: Final = {
    "BOOL": "?", "U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


class TensorsSerializer(_Arrays):
    """A dict of names to ``numpy.ndarray`` of the given dtypes, in the ``safetensors`` format,
    which other programs read. Arrays are read as read-only views of one ``bytes``."""

    name = "safetensors"

    def __init__(self, *dtypes: Any) -> None:
        super().__init__(dtypes)
        self._letters = {self._numpy.dtype(form): name for name, form in _TENSORS.items()}
        for each in self._dtypes:
            if each not in self._letters:
                raise InvalidError(f"safetensors has no {each}")

    def dumps(self, value: Any, /) -> bytes:
        if type(value) is not dict:
            raise TypeError(f"{class_name(type(value))} is no dict of arrays")
        header: dict[str, Any] = {}
        parts: list[bytes] = []
        end = 0
        for name, array in value.items():
            if type(name) is not str or name == "__metadata__":
                raise TypeError(f"{name!r} is no name of an array")
            parts.append(self._check(array).tobytes())
            begin, end = end, end + len(parts[-1])
            header[name] = {
                "dtype": self._letters[array.dtype],
                "shape": list(array.shape),
                "data_offsets": [begin, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return b"".join((len(text).to_bytes(8, "little"), text, *parts))

    def loads(self, data: bytes, /) -> Any:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 + size:
            raise ValueError("the header is cut off")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        arrays = {}
        at = 0
        for name, tensor in header.items():
            dtype = self._numpy.dtype(_TENSORS[tensor["dtype"]])
            begin, end = tensor["data_offsets"]
            shape = tensor["shape"]
            fits = begin == at and end <= len(data) - 8 - size and min(shape, default=0) >= 0
            if not fits or end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{name!r} does not fit the header")
            at = end
            part = memoryview(data)[8 + size + begin : 8 + size + end]
            arrays[name] = self._check(self._numpy.frombuffer(part, dtype).reshape(shape))
        if len(data) != 8 + size + at:
            raise ValueError("there are more bytes after the arrays")
        return arrays
