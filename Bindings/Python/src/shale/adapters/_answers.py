"""The common part of the adapters for language models."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .._cache import Cache, Namespace
from .._native.errors import Error
from .._native.log import warn
from .._native.units import Seconds
from ._opening import CacheOrPath, opened


class Answers:
    """Answers in a namespace of a cache."""

    def __init__(self, cache: CacheOrPath, name: str, **options: Any) -> None:
        """name: of the namespace, unless the cache is one. options: those of ``shale.Cache``."""
        whole = opened(cache, **options)
        self.cache: Cache[Any, Any] = (
            whole if isinstance(whole, Namespace) else whole.namespace(name)
        )
        self._name = name
        self._logged: set[type[BaseException]] = set()

    def get(self, key: Any, read: Any = None) -> Any:
        """The answer, or None. read: a function that makes it of the stored value; what that
        cannot read is a miss."""
        found = self.cache.get(key)
        if found is None or read is None:
            return found
        try:
            return read(found)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            self._log("a stored answer cannot be read, and is a miss", error)
            return None

    def keep(self, key: Any, value: Any, write: Any = None, max_age: Seconds | None = None) -> None:
        """Stores an answer. It is paid for already, so a failure is logged, not raised."""
        try:
            self.cache.set(key, value if write is None else write(value), max_age=max_age)
        except (Error, RuntimeError, TypeError, ValueError) as error:
            self._log("an answer is not cached", error)

    def _log(self, what: str, error: BaseException) -> None:
        if type(error) not in self._logged:
            self._logged.add(type(error))
            warn("%s: %s: %s (later errors of this kind are not logged)", self._name, what, error)


def key_of(*parts: str) -> bytes:
    """A short key of long texts."""
    # In ASCII, two surrogates would look like one character.
    text = json.dumps(parts, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
