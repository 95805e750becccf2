"""`ResultCodec`: the values of a memoized function whose return type its serializer knows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from .serializers import Serializer
from .values import Codec, Unreadable


class ResultSerializer(Serializer, Protocol):
    """A serializer of values of some types."""

    @property
    def classes(self) -> Collection[type[Any]]:
        """Classes all of whose values fit."""

    def fits(self, value: Any) -> bool:
        """Whether the value is of one of the types."""


class ResultCodec(Codec):
    """Stores and reads only values of the serializer's types, also those that Shale writes itself:
    a list without items."""

    __slots__ = ("_of_cache", "classes", "fits")

    def __init__(self, of_cache: Codec, types: ResultSerializer) -> None:
        super().__init__(types, of_cache.serializes_all)
        self._of_cache = of_cache
        self.classes, self.fits = types.classes, types.fits

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        meta, data = super().encode(value)
        if meta != self._serialized and not self.fits(value):
            raise self._unfit(value)
        return meta, data

    def decode(self, meta: bytes, data: bytes) -> Any:
        value = super().decode(meta, data)
        if meta != self._serialized and not self.fits(value):
            self._count_unreadable(meta, self._unfit(value))
            raise Unreadable
        return value

    def _unfit(self, value: Any) -> TypeError:
        return TypeError(
            f"a {type(value).__qualname__} with this content does not fit the function's return "
            f"type, which {self.serializer!r} reads"
        )

    def _count_unreadable(self, meta: bytes, error: Exception | None = None) -> None:
        self._of_cache._count_unreadable(meta, error)
