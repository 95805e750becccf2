"""How the adapters for other libraries come by a cache."""

from __future__ import annotations

import os
import weakref
from typing import Any, Union

from ._cache import Cache
from ._options import OpenOptions

CacheOrPath = Union[Cache[Any, Any], str, "os.PathLike[str]"]
"""A cache that is open, or a namespace of one; or the directory of one that is to be opened."""

# What other libraries call so is something else.
_OPTIONS = frozenset(OpenOptions.__annotations__) - {"serializer", "read_only"}

_opened: weakref.WeakValueDictionary[Any, Cache[Any, Any]] = weakref.WeakValueDictionary()


def opened(cache: CacheOrPath, **options: Any) -> Cache[Any, Any]:
    """The cache, opened if it is a directory: once for all who ask for it with the same options, as
    frameworks make an adapter for each thread. It closes when nobody has it any more."""
    if isinstance(cache, Cache):
        if options:
            raise TypeError(f"the cache is open already: it does not take {', '.join(options)}")
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
    """The options of ``shale.Cache`` among the arguments, which lose them."""
    return {name: arguments.pop(name) for name in _OPTIONS & arguments.keys()}
