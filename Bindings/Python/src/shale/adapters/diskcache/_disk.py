"""Converts keys and values to those of Shale, and back: the hooks of diskcache's ``Disk``."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from typing import Any, ClassVar, Final

from ..._data import packed
from ..._data.serializers import PickleSerializer, Serializer
from ..._native import abi


class Constant(tuple):  # type: ignore[type-arg]
    """A unique value, whose repr is its name."""

    __slots__ = ()

    def __new__(cls, name: str) -> Constant:
        return super().__new__(cls, (name,))

    def __repr__(self) -> str:
        return str(self[0])


ENOVAL: Final = Constant("ENOVAL")
"""No value: a default that a cache cannot contain."""
UNKNOWN: Final = Constant("UNKNOWN")
"""The key or the value is not known yet."""

MODE_RAW: Final = 1
MODE_BINARY: Final = 2
MODE_TEXT: Final = 3
MODE_PICKLE: Final = 4


class Disk:
    """Stores keys and values as Shale does, and never pickles or unpickles.

    A subclass may override ``put`` and ``get`` (keys), and ``store`` and ``fetch`` (values), as in
    diskcache. Values are not files: ``filename`` is always None. min_file_size: the size in bytes
    from which ``get(read=True)`` returns a file. pickle_protocol: for subclasses.
    """

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        self._directory = directory
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol

    def serializer(self) -> Serializer | None:
        """The serializer for values of types that Shale cannot store."""
        return None

    def hash(self, key: Any) -> int:
        """A hash of the key, equal in every process."""
        stored, _ = self.put(key)
        if isinstance(stored, int):
            return stored % 0xFFFFFFFF
        if isinstance(stored, float):
            stored = struct.pack("!d", stored)
        elif isinstance(stored, str):
            stored = stored.encode("utf-8", "surrogatepass")
        return zlib.adler32(stored) & 0xFFFFFFFF

    def put(self, key: Any) -> tuple[Any, bool]:
        """A key as str, bytes, int of 64 bits or float; and whether it is unchanged.

        Raises TypeError for a key of another type.
        """
        kind = type(key)
        if (
            kind is str
            or kind is bytes
            or kind is float
            or (kind is int and abi.INT64_MIN <= key <= abi.INT64_MAX)
        ):
            return key, True
        return self._put_other(key), False

    def get(self, key: Any, raw: bool) -> Any:
        """The argument of ``put``."""
        return key if raw else self._get_other(key)

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> tuple[int, int, None, Any]:
        """(size, mode, None, value to store). read: the value is a file, open for reading."""
        if read:
            data = value.read()
            return len(data), MODE_BINARY, None, data
        kind = type(value)
        if kind is bytes and len(value) >= self.min_file_size:
            return len(value), MODE_BINARY, None, value
        if kind is str and len(value) >= self.min_file_size:
            return len(value), MODE_TEXT, None, value
        return 0, MODE_RAW, None, value

    def fetch(self, mode: int, filename: None, value: Any, read: bool) -> Any:
        """The value. read: return large bytes as a file."""
        return _file(value) if read and mode == MODE_BINARY else value

    def _put_other(self, key: Any) -> bytes:
        try:
            return packed.pack(_plain(key))
        except TypeError as error:
            raise TypeError(f"{error}; {_ASK} for keys of every type") from None

    def _get_other(self, key: bytes) -> Any:
        return packed.unpack(key)


class JSONDisk(Disk):
    """Keys and values as JSON, compressed by zlib. compress_level: from 0 to 9."""

    def __init__(self, directory: str, compress_level: int = 1, **options: Any) -> None:
        self.compress_level = compress_level
        super().__init__(directory, **options)

    def put(self, key: Any) -> tuple[Any, bool]:
        return super().put(self._dump(key))

    def get(self, key: Any, raw: bool) -> Any:
        return self._load(super().get(key, raw))

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> tuple[int, int, None, Any]:
        return super().store(value if read else self._dump(value), read, key)

    def fetch(self, mode: int, filename: None, value: Any, read: bool) -> Any:
        data = super().fetch(mode, filename, value, read)
        return data if read else self._load(data)

    def _dump(self, value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode(), self.compress_level)

    def _load(self, data: bytes) -> Any:
        return json.loads(zlib.decompress(data))


class PickleDisk(Disk):
    """Pickles keys and values of types that Shale cannot store.

    Unpickling runs code that the bytes choose. Use it only if all who can write to the directory
    may also run code as this process.
    """

    # No packed form begins with so high a byte.
    _PICKLED: ClassVar[bytes] = b"\x80"

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 5) -> None:
        # Older protocols have no mark to recognise them by.
        super().__init__(directory, min_file_size, max(2, pickle_protocol))

    def serializer(self) -> Serializer:
        return PickleSerializer(self.pickle_protocol)

    def _put_other(self, key: Any) -> bytes:
        try:
            return packed.pack(key)
        except TypeError:
            return self.serializer().dumps(key)  # type: ignore[return-value]

    def _get_other(self, key: bytes) -> Any:
        if key.startswith(self._PICKLED):
            return self.serializer().loads(key)
        return super()._get_other(key)


_ASK: Final = "pass disk=shale.adapters.diskcache.PickleDisk"


def refused(error: TypeError) -> TypeError:
    """The error for a value that cannot be stored."""
    return TypeError(f"{error}; or {_ASK}")


def _plain(key: Any) -> Any:
    return tuple(key) if type(key) is Constant else key


def _file(value: bytes) -> io.BufferedRandom:
    """A file without a name."""
    file = os.fdopen(os.memfd_create("shale"), "w+b")
    file.write(value)
    file.seek(0)
    return file
