"""Opens the cache of an adapter."""

from __future__ import annotations

import os
import weakref
from typing import Any, Union

from .._cache import Cache
from .._data.options import OpenOptions

CacheOrPath = Union[Cache[Any, Any], str, "os.PathLike[str]"]
"""An open cache or a namespace of one; or the directory of a cache to open."""

# In other libraries these names mean something else.
_OPTIONS = frozenset(OpenOptions.__annotations__) - {"serializer", "read_only"}

_opened: weakref.WeakValueDictionary[Any, Cache[Any, Any]] = weakref.WeakValueDictionary()


def opened(cache: CacheOrPath, **options: Any) -> Cache[Any, Any]:
    """The cache, opened if it is a directory. All adapters with the same directory and options
    share one, as frameworks make an adapter for each thread. It closes when no adapter references
    it."""
    if isinstance(cache, Cache):
        if options:
            names = ", ".join(options)
            raise TypeError(f"the cache is open already: give {names} to shale.Cache instead")
        return cache
    path = os.path.abspath(os.path.expanduser(os.fspath(cache)))
    wanted = path, tuple(sorted((name, repr(value)) for name, value in options.items()))
    found = _opened.get(wanted)
    if found is None or found.closed:
        found = _opened.setdefault(wanted, Cache(path, **options))
        if found.closed:
            _opened[wanted] = found = Cache(path, **options)
    return found


def taken(arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes the options of ``shale.Cache`` from the arguments, and returns them."""
    return {name: arguments.pop(name) for name in _OPTIONS & arguments.keys()}
