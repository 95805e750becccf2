"""`Store`: the base class of caches, without the public methods."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Final, Generic

from .._data.keys import MARKER, K, encode_key, encode_keys
from .._data.options import set_options, tag_list
from .._data.values import join_meta
from .._native import abi, library
from .._native.errors import InvalidError, check, failure
from .._native.library import SIZES, fast_set
from .._native.units import unsigned
from .._typing import KT, VT
from . import iteration, lookups
from .fast import Fast

if TYPE_CHECKING:
    from .._data.options import Rest, Tag
    from .._data.values import Codec
    from .._native.handles import CallContext, Pool
    from .._native.units import Seconds
    from .events import Counts, EventName, Listeners

_STALE: Final = abi.GET_STALE
_MOST_PREPARED: Final = 256


class Store(Fast, Generic[KT, VT]):
    """An open cache for the layers above: `Cache` adds the public methods, and `Namespace` replaces
    what depends on its keys and options.
    """

    _pool: Pool
    _codec: Codec
    _counts: Counts
    _listeners: Listeners | None
    _identity: object
    """Equal for all caches of this process that are open on one directory."""
    _raw_kind: type[Any] | None
    """The type that is stored as it is: bytes, or None with ``serialize_all``."""
    _plain: dict[bytes, Any]
    """By meta, a pointer to the options of a set without options."""
    _without_tags: dict[tuple[bytes, int, Seconds | None, Seconds | None], Any]
    """Pointers to set options without tags and version, made once."""
    _shale_class: ClassVar[type[Any]]
    """`Cache` or `Namespace`, for an object of a subclass too."""

    if TYPE_CHECKING:

        @property
        def closed(self) -> bool: ...

        def get(
            self, key: Any, default: Any = None, *, stale: bool = False, peek: bool = False
        ) -> Any: ...

        def remove(self, key: Any, *, if_version: int | None = None) -> bool: ...

        def invalidate(self, tag: Tag, *, expire: bool = False) -> None: ...

    # Replaced by namespaces

    _whole = True
    """Whether it is a whole cache, and no namespace."""

    _name: str
    """Of a namespace, the first item of its keys in the cache."""

    def _encode(self, key: Any) -> bytes:
        """The stored form of a key."""
        return encode_key(key)

    def _encode_many(self, keys: Iterable[K]) -> dict[bytes, K]:
        """The keys by their stored form."""
        return encode_keys(keys)

    def _scoped(
        self, max_age: Seconds | None, stale: Seconds | None, tags: list[bytes]
    ) -> tuple[Seconds | None, Seconds | None, list[bytes]]:
        """The ages and tags of a stored entry."""
        return max_age, stale, tags

    def _iterate_keys(self, stale: bool) -> Iterator[Any]:
        return iteration.keys(self._pool, _STALE if stale else 0)

    def _iterate_items(self, stale: bool) -> Iterator[tuple[Any, Any]]:
        return iteration.items(self._pool, _STALE if stale else 0, self._codec)

    def _count(self, stale: bool) -> int:
        return iteration.count(self._pool, _STALE if stale else 0)

    # Inside

    def _has(self, key: Any, stale: bool) -> bool:
        flags = _STALE if stale else 0
        return self._pool.run(lookups.contains, self._encode(key), flags, self._codec)

    def _emit(self, name: EventName, key: Any = None, **details: Any) -> None:
        if self._listeners is not None:
            self._listeners.emit(name, key, **details)

    def _stats(self) -> abi.Stats:
        stats = abi.Stats(struct_size=abi.STATS_SIZE)
        self._call(library.get_stats, ctypes.byref(stats))
        return stats

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        """Calls a function of the library on this cache. Returns its status, or raises its
        error."""
        return self._pool.run(_call, function, *arguments)

    def _set_if(
        self,
        key: Any,
        value: Any,
        flags: int,
        rest: Rest,
        if_present: bool,
        if_version: int | None,
    ) -> bool:
        """`set` with a condition."""
        flags |= abi.SET_IF_VERSION
        if if_version is not None:
            if if_present:
                raise InvalidError("give only one of if_version and if_present")
            asked = unsigned("if_version", if_version, 64, least=1)
            return self._store(key, value, flags, *rest, version=asked) == abi.OK
        stored = self._encode(key)
        while True:
            # The library's own condition would be met by an entry that says that the key is
            # missing.
            version = self._pool.run(lookups.version, stored)
            if version is None:
                # A value that cannot be stored is an error in any case.
                self._codec.encode(value)
                return False
            if self._store(key, value, flags, *rest, version=version) == abi.OK:
                return True

    def _store(
        self,
        key: Any,
        value: Any,
        flags: int = 0,
        max_age: Seconds | None = None,
        stale: Seconds | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        own_meta: bytes = b"",
        version: int = 0,
    ) -> int:
        """Stores a value. Returns the status of ``shale_set``; raises errors."""
        # As in `get`: encode_key, Codec.encode, Pool.run and CallContext.set.
        stored = key if type(key) is bytes and key < MARKER and key else encode_key(key)
        meta, data = (b"", value) if type(value) is self._raw_kind else self._codec.encode(value)
        if (
            flags
            or own_meta
            or max_age is not None
            or stale is not None
            or tag is not None
            or tags is not None
        ):
            if own_meta:
                meta = join_meta(meta, own_meta)
            options = self._prepared(meta, flags, max_age, stale, tag, tags, version)
        else:
            options = self._plain[meta]
        pool = self._pool
        idle = pool.idle
        try:
            context = idle.pop()
        except IndexError:
            context = pool.make()
        try:
            status = fast_set(
                context.pointer, stored, SIZES[len(stored)], data, SIZES[len(data)], options
            )
            if status < 0:
                raise failure(status)
            return status
        finally:
            idle.append(context)

    def _prepared(
        self,
        meta: bytes,
        flags: int,
        max_age: Seconds | None,
        stale: Seconds | None,
        tag: Tag | None,
        tags: Iterable[Tag] | None,
        version: int,
    ) -> Any:
        """A pointer to set options. Options without tags and version are few, and made once."""
        if tag is not None or tags is not None or version:
            named = tag_list(tag, tags)
            scoped = self._scoped(max_age, stale, named)
            return ctypes.byref(set_options(meta, flags, *scoped, version))
        wanted = (meta, flags, max_age, stale)
        options = self._without_tags.get(wanted)
        if options is None:
            scoped = self._scoped(max_age, stale, [])
            options = ctypes.byref(set_options(meta, flags, *scoped))
            if len(self._without_tags) < _MOST_PREPARED:
                self._without_tags[wanted] = options
        return options


def _call(context: CallContext, function: Callable[..., int], *arguments: Any) -> int:
    return check(function(context.pointer, *arguments))
