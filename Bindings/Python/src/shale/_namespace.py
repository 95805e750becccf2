"""``Cache.namespace``: a part of a cache, that is a cache itself.

A key of a namespace is the second item of a tuple, whose first is the namespace's name: that is how
it is stored. What is stored by way of a namespace carries a tag that is the namespace's own, which
no ``str`` can be; so all of it leaves with that tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from . import _library, _options
from ._cache import Cache
from ._errors import InvalidError
from ._keys import K, encode_key, several
from ._typing import KT, VT
from ._units import Seconds, age_ms
from ._values import BYTES, FIXED_METAS

_TAG: Final = b"\xffP1n"
_missing: Final = object()

# What it has from its cache. Its listeners and prepared options are its own.
_SHARED: Final = (
    "_codec",
    "_counts",
    "_directory",
    "_handle_arguments",
    "_identity",
    "_largest_raw",
    "_pool",
    "_raw_kind",
)


class Namespace(Cache[KT, VT]):
    """A part of a cache, as ``Cache.namespace`` gives it, which says what is different."""

    def __init__(
        self,
        cache: Cache[Any, Any],
        name: str,
        max_age: Seconds | None,
        stale: Seconds | None,
        tags: list[bytes],
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a namespace's name is a str, not {type(name).__name__}")
        if not name:
            raise InvalidError("a namespace's name is empty")
        age_ms(max_age), age_ms(stale)
        for attribute in _SHARED:
            setattr(self, attribute, getattr(cache, attribute))
        self._calls = cache._calls
        self._cache = cache
        self._name = name
        self._tag = _TAG + name.encode("utf-8", "surrogatepass")
        self._own = max_age, stale, [self._tag, *tags]
        self._plain = _options.set_options_by_meta(
            BYTES,
            *FIXED_METAS,
            self._codec.serialized_meta,
            max_age=max_age,
            stale=stale,
            tags=self._own[2],
        )
        self._without_tags = {}
        self._listeners = None

    @property
    def name(self) -> str:
        """What it is called, the first item of its keys in the cache."""
        return self._name

    @property
    def cache(self) -> Cache[Any, Any]:
        """The cache that it is of."""
        return self._cache

    def close(self) -> None:
        """Nothing: it is open as long as its cache is."""

    def __repr__(self) -> str:
        return f"<shale.Namespace {self._name!r} of {self._cache!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._cache, self._name, *self._own[:2], self._own[2][1:])

    def namespace(self, name: str, **options: Any) -> Namespace[Any, Any]:
        raise InvalidError("a namespace has no namespaces; give it a name of two parts")

    # Its keys

    _whole = False

    def _encode(self, key: Any) -> bytes:
        return encode_key((self._name, key))

    def _encode_many(self, keys: Iterable[K]) -> dict[bytes, K]:
        return {self._encode(key): key for key in several(keys)}

    def _scoped(
        self, max_age: Seconds | None, stale: Seconds | None, tags: list[bytes]
    ) -> tuple[Seconds | None, Seconds | None, list[bytes]]:
        own_max_age, own_stale, own_tags = self._own
        return (
            own_max_age if max_age is None else max_age,
            own_stale if stale is None else stale,
            [*own_tags, *tags],
        )

    # These two encode keys themselves, to be faster.

    def get(self, key: Any, default: Any = None, *, stale: bool = False, peek: bool = False) -> Any:
        own: Any = self._name, key
        if stale or peek:
            return super().get(own, default, stale=stale, peek=peek)
        return super().get(own, default)

    def _store(self, key: Any, *arguments: Any, **options: Any) -> int:
        return super()._store((self._name, key), *arguments, **options)

    # The whole of it

    def clear(self) -> None:
        """Removes all that was stored by way of a namespace of this name, pinned or not. Costs the
        same however many there are."""
        self._call(_library.invalidate_with, self._tag, len(self._tag), 0)

    def _iterate_keys(self, stale: bool) -> Iterator[Any]:
        for key in super()._iterate_keys(stale):
            if type(key) is tuple and len(key) == 2:
                name, own = key
                # (Python may warn of a str that is compared with bytes.)
                if type(name) is str and name == self._name:
                    yield own

    def _iterate_items(self, stale: bool) -> Iterator[tuple[Any, Any]]:
        for key in self._iterate_keys(stale):
            value = self.get(key, _missing, stale=stale, peek=True)
            if value is not _missing:
                yield key, value

    def _count(self, stale: bool) -> int:
        return sum(1 for _ in self._iterate_keys(stale))
