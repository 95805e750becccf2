"""How keys and values become what Shale stores, and back: the hooks of diskcache's ``Disk``."""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from typing import Any, ClassVar, Final

from ... import _abi, _packed
from ..._serializers import PickleSerializer, Serializer


class Constant(tuple):  # type: ignore[type-arg]
    """A value that is itself alone, and prints as its name."""

    __slots__ = ()

    def __new__(cls, name: str) -> Constant:
        return super().__new__(cls, (name,))

    def __repr__(self) -> str:
        return str(self[0])


ENOVAL: Final = Constant("ENOVAL")
"""No value: a default that cannot be in a cache."""
UNKNOWN: Final = Constant("UNKNOWN")
"""No key, or no value, is known yet."""

MODE_RAW: Final = 1
MODE_BINARY: Final = 2
MODE_TEXT: Final = 3
MODE_PICKLE: Final = 4


class Disk:
    """Keys and values as Shale has them: no pickle, in either direction.

    A subclass may change ``put`` and ``get`` (keys), and ``store`` and ``fetch`` (values), as with
    diskcache. There is no file for a value: ``filename`` is None throughout.

    min_file_size: bytes from which on ``get(read=True)`` gives a file. pickle_protocol: for
    subclasses.
    """

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0) -> None:
        self._directory = directory
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol

    def serializer(self) -> Serializer | None:
        """What writes values of types that Shale has no form for."""
        return None

    def hash(self, key: Any) -> int:
        """A number for the key, the same in every process."""
        stored, _ = self.put(key)
        if isinstance(stored, int):
            return stored % 0xFFFFFFFF
        if isinstance(stored, float):
            stored = struct.pack("!d", stored)
        elif isinstance(stored, str):
            stored = stored.encode("utf-8", "surrogatepass")
        return zlib.adler32(stored) & 0xFFFFFFFF

    def put(self, key: Any) -> tuple[Any, bool]:
        """A key as str, bytes, int of 64 bits or float; and whether it is that already.

        Raises TypeError for a key that has no form.
        """
        kind = type(key)
        if (
            kind is str
            or kind is bytes
            or kind is float
            or (kind is int and _abi.INT64_MIN <= key <= _abi.INT64_MAX)
        ):
            return key, True
        return self._put_other(key), False

    def get(self, key: Any, raw: bool) -> Any:
        """The key that ``put`` was given."""
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
        """The value. read: one of bytes that is large, as a file."""
        return _file(value) if read and mode == MODE_BINARY else value

    def _put_other(self, key: Any) -> bytes:
        try:
            return _packed.pack(_plain(key))
        except TypeError as error:
            raise TypeError(f"{error}; {_ASK} for keys of every type") from None

    def _get_other(self, key: bytes) -> Any:
        return _packed.unpack(key)


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
    """Pickles keys and values of types that have no form of their own.

    Unpickling runs code that the bytes choose. Use it only where everybody who can write to the
    directory may also run code as this process.
    """

    # Of what is packed, no first byte is as high.
    _PICKLED: ClassVar[bytes] = b"\x80"

    def __init__(self, directory: str, min_file_size: int = 0, pickle_protocol: int = 5) -> None:
        # Older protocols have no mark by which to know them.
        super().__init__(directory, min_file_size, max(2, pickle_protocol))

    def serializer(self) -> Serializer:
        return PickleSerializer(self.pickle_protocol)

    def _put_other(self, key: Any) -> bytes:
        try:
            return _packed.pack(key)
        except TypeError:
            return self.serializer().dumps(key)  # type: ignore[return-value]

    def _get_other(self, key: bytes) -> Any:
        if key.startswith(self._PICKLED):
            return self.serializer().loads(key)
        return super()._get_other(key)


_ASK: Final = "pass disk=shale.compat.diskcache.PickleDisk"


def refused(error: TypeError) -> TypeError:
    """What to raise for a value that has no form."""
    return TypeError(f"{error}; or {_ASK}")


def _plain(key: Any) -> Any:
    return tuple(key) if type(key) is Constant else key


def _file(value: bytes) -> io.BufferedRandom:
    """A file that no directory has."""
    file = os.fdopen(os.memfd_create("shale"), "w+b")
    file.write(value)
    file.seek(0)
    return file
