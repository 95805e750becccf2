"""The views that ``keys``, ``values`` and ``items`` of a cache return. They follow the cache, as a
dict's views do."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any, Final

from .._typing import KT, VT

if TYPE_CHECKING:
    from .store import Store

_missing: Final = object()


def _same(one: object, other: object) -> bool:
    return one is other or bool(one == other)


class _View:
    """The common part of the three views."""

    def __init__(self, cache: Store[Any, Any], stale: bool) -> None:
        self._cache = cache
        self._stale = stale

    def __len__(self) -> int:
        return self._cache._count(self._stale)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._cache!r}>"

    # The type of the results of set operators.
    _from_iterable = set


class CacheKeys(_View, KeysView[KT]):
    """The keys of a cache."""

    def __iter__(self) -> Iterator[KT]:
        return self._cache._iterate_keys(self._stale)

    def __contains__(self, key: object) -> bool:
        return self._cache._has(key, self._stale)


class CacheValues(_View, ValuesView[VT]):
    """The values of a cache, except unreadable ones."""

    def __iter__(self) -> Iterator[VT]:
        for _, value in self._cache._iterate_items(self._stale):
            yield value

    def __contains__(self, value: object) -> bool:
        return any(_same(each, value) for each in self)


class CacheItems(_View, ItemsView[KT, VT]):
    """The keys and values of a cache, except unreadable ones."""

    def __iter__(self) -> Iterator[tuple[KT, VT]]:
        return self._cache._iterate_items(self._stale)

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        key, value = item
        found = self._cache.get(key, _missing, stale=self._stale, peek=True)
        return found is not _missing and _same(found, value)
