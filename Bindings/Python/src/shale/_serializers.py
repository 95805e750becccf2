"""Serializers for values that have no form of their own."""

from __future__ import annotations

import pickle
from typing import Any, Protocol, Union


class Serializer(Protocol):
    """What ``Cache(serializer=...)`` takes.

    ``name`` is stored beside each value that ``dumps`` wrote, and only a cache
    that was opened with a serializer of the same name reads it. Change the name
    when the form changes. What ``loads`` can't read (it raises any ``Exception``)
    is a miss. ``dumps`` gives bytes, ``bytearray`` or ``memoryview``; what it raises goes to the
    caller, and nothing is stored.

    It is asked for values that have no form of their own. One that encrypts has to write all of
    them: open the cache with ``serialize_all=True``.
    """

    @property
    def name(self) -> str: ...

    def dumps(self, value: Any, /) -> Union[bytes, bytearray, memoryview]: ...

    def loads(self, data: bytes, /) -> Any: ...


class PickleSerializer:
    """Stores any picklable object.

    Unpickling runs code that the bytes choose. Use it only where everybody who
    can write to the cache's directory may also run code as this process.
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
