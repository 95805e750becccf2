"""Serializers for values of types that Shale cannot store."""

from __future__ import annotations

import pickle
from typing import Any, Protocol, Union


class Serializer(Protocol):
    """The interface of ``Cache(serializer=...)``.

    ``name`` is stored with each value that ``dumps`` writes, and only a cache with a serializer of
    the same name reads the value. Change the name when the format changes. ``dumps`` returns bytes,
    ``bytearray`` or ``memoryview``; if it raises, the caller gets the exception and nothing is
    stored.

    ``loads`` raises ``ValueError`` for bytes that it cannot read, and the value is a miss; so it is
    for ``TypeError``, ``LookupError``, ``ArithmeticError``, ``AttributeError``, ``ImportError``,
    ``EOFError``, ``RecursionError``, ``AssertionError``, ``struct.error`` and
    ``pickle.PickleError``. The caller gets all other exceptions, such as that of a time limit.

    It gets values of types that Shale cannot store. A serializer that encrypts has to write all
    values: open the cache with ``serialize_all=True``.
    """

    @property
    def name(self) -> str: ...

    def dumps(self, value: Any, /) -> Union[bytes, bytearray, memoryview]: ...

    def loads(self, data: bytes, /) -> Any: ...


class PickleSerializer:
    """Stores any picklable object.

    Unpickling runs code that the bytes choose. Use it only if all who can write to the cache's
    directory may also run code as this process.
    """

    name = "pickle"

    def __init__(self, protocol: int = 5) -> None:
        self.protocol = protocol

    def dumps(self, value: Any, /) -> bytes:
        return pickle.dumps(value, self.protocol)

    def loads(self, data: bytes, /) -> Any:
        return pickle.loads(data)

    def __repr__(self) -> str:
        return f"PickleSerializer(protocol={self.protocol})"
