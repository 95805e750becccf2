"""Serializers for the values of other libraries. None runs code that is stored, and each reads the
types alone that its caller names: a value of another type is a miss, whose reason is logged.

    from shale.serializers import PydanticSerializer

    cache = shale.Cache("/var/cache/app", serializer=PydanticSerializer(User, Order))

Each needs its library: ``pip install 'shale-cache[pydantic]'``, ``[msgspec]`` or ``[numpy]``.
"""

from __future__ import annotations

import json
import math
from importlib import import_module
from io import BytesIO
from typing import Any, Final

from ._errors import InvalidError
from ._varint import read_size, size_bytes

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
    """Values of some classes: a size and the class's name, then what its library writes."""

    name = ""

    def __init__(self, kinds: tuple[type[Any], ...]) -> None:
        if not kinds:
            raise InvalidError(f"{type(self).__name__} is given the types that it may read")
        for kind in kinds:
            if not isinstance(kind, type):
                raise TypeError(f"a type is expected, not {kind!r}")
        self._kinds = {_name(kind).encode(): kind for kind in kinds}
        if len(self._kinds) < len(kinds):
            raise InvalidError("two of the types have one name")

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

    An object is of exactly one of the types that are given; what it contains is as its class says.
    What does not fit the class any more is a miss.
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
    """Pydantic models, as the JSON that they write; they validate it when it is read.

    An object is of exactly one of the models that are given. What does not fit its model any more
    is a miss. Fields that a model leaves out of its JSON are not stored.
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
    """What has to do with dtypes."""

    def __init__(self, dtypes: tuple[Any, ...]) -> None:
        self._numpy = _library("numpy")
        if not dtypes:
            raise InvalidError(f"{type(self).__name__} is given the dtypes that it may read")
        self._dtypes = [self._numpy.dtype(each) for each in dtypes]
        if any(each.hasobject for each in self._dtypes):
            raise InvalidError("an array of objects could only be pickled")

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
    """``numpy.ndarray`` of the dtypes that are given, in numpy's own ``.npy`` format."""

    name = "numpy"

    def __init__(self, *dtypes: Any) -> None:
        super().__init__(dtypes)

    def dumps(self, value: Any, /) -> memoryview:
        data = BytesIO()
        self._numpy.save(data, self._check(value), allow_pickle=False)
        return data.getbuffer()

    def loads(self, data: bytes, /) -> Any:
        return self._check(self._numpy.load(BytesIO(data), allow_pickle=False))


_TENSORS: Final = {
    "BOOL": "?", "U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


class TensorsSerializer(_Arrays):
    """A dict of names to ``numpy.ndarray`` of the dtypes that are given, in the ``safetensors``
    format, which other programs read. The arrays of one that was read are read-only views of one
    ``bytes``."""

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
                raise ValueError(f"{name!r} is not where the header says")
            at = end
            part = memoryview(data)[8 + size + begin : 8 + size + end]
            arrays[name] = self._check(self._numpy.frombuffer(part, dtype).reshape(shape))
        if len(data) != 8 + size + at:
            raise ValueError("there is more after the arrays")
        return arrays
