"""Serializers for the values of other libraries. They run no stored code, and read only the types
that their caller names: a value of another type is a miss, whose cause is logged.

    from shale.serializers import PydanticSerializer

    cache = shale.Cache("/var/cache/app", serializer=PydanticSerializer(User, Order))

Each needs its library: ``pip install 'shale-cache[pydantic]'``, ``[msgspec]`` or ``[numpy]``.
"""

from __future__ import annotations

import json
import math
from importlib import import_module
from io import BytesIO
from tokenize import TokenError
from typing import Any, Final

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


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class _ByType:
    """Values of given classes: a size, the name of the class, and the bytes of its library."""

    name = ""

    def __init__(self, kinds: tuple[type[Any], ...]) -> None:
        if not kinds:
            raise InvalidError(f"{type(self).__name__} needs the types that it may read")
        for kind in kinds:
            if not isinstance(kind, type):
                raise TypeError(f"a type is expected, not {kind!r}")
        self._kinds = {_name(kind).encode(): kind for kind in kinds}
        if len(self._kinds) < len(kinds):
            raise InvalidError("two of the types have the same name")

    def dumps(self, value: Any, /) -> bytes:
        kind = type(value)
        name = _name(kind).encode()
        if self._kinds.get(name) is not kind:
            raise TypeError(f"{_name(kind)} is none of the types of {self!r}")
        return size_bytes(len(name)) + name + self._write(value)

    def loads(self, data: bytes, /) -> Any:
        size, at = read_size(data, 0)
        name = data[at : at + size]
        kind = self._kinds.get(name)
        if kind is None:
            raise TypeError(f"{name!r} is none of the types of {self!r}")
        return self._read(kind, data[at + size :])

    def _write(self, value: Any) -> bytes:
        raise NotImplementedError

    def _read(self, kind: type[Any], data: bytes) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        kinds = ", ".join(map(_name, self._kinds.values()))
        return f"{type(self).__name__}({kinds})"


class MsgspecSerializer(_ByType):
    """``msgspec.Struct``, dataclasses and attrs classes, as msgspec's MessagePack, and whatever
    they contain that msgspec knows: datetimes, enums, UUIDs, sets, others of their kind.

    The type of an object is exactly one of the given types, and its class defines its contents.
    Bytes that no longer fit the class are a miss.
    """

    name = "msgspec"

    def __init__(self, *kinds: type[Any]) -> None:
        super().__init__(kinds)
        msgpack = _library("msgspec").msgpack
        self._encoder = msgpack.Encoder()
        self._decoders = {kind: msgpack.Decoder(kind) for kind in kinds}

    def _write(self, value: Any) -> bytes:
        data: bytes = self._encoder.encode(value)
        return data

    def _read(self, kind: type[Any], data: bytes) -> Any:
        return self._decoders[kind].decode(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self._kinds.values())


class PydanticSerializer(_ByType):
    """Pydantic models, as JSON, which the model validates when it is read.

    The type of an object is exactly one of the given models. JSON that no longer fits its model is
    a miss. Fields that a model leaves out of its JSON are not stored.
    """

    name = "pydantic"

    def __init__(self, *models: type[Any]) -> None:
        super().__init__(models)
        base = _library("pydantic").BaseModel
        for model in models:
            if not issubclass(model, base):
                raise TypeError(f"{_name(model)} is no model of pydantic")

    def _write(self, value: Any) -> bytes:
        text: str = value.model_dump_json(round_trip=True, by_alias=False)
        return text.encode()

    def _read(self, kind: Any, data: bytes) -> Any:
        return kind.model_validate_json(data, by_alias=False, by_name=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self._kinds.values())


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
            raise TypeError(f"{_name(type(array))} is no numpy.ndarray")
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
            raise TypeError(f"{_name(type(value))} is no dict of arrays")
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
