"""The answers of a loader, and the result of a load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .._data.options import Tag
from .._native.units import Seconds

if TYPE_CHECKING:
    from typing import Literal

V = TypeVar("V")


@dataclass(frozen=True)
class Loaded(Generic[V]):
    """A loaded value with options of its own. A loader may return it instead of the value."""

    value: V
    max_age: Seconds | None = None
    """Seconds, or a timedelta. None: the caller's ``max_age``."""
    tags: Iterable[Tag] = ()
    """In addition to the caller's tags."""
    meta: bytes = b""
    """The loader's own bytes, such as an ETag. They become ``Entry.meta``."""


@dataclass(frozen=True)
class Missing:
    """A loader returns it if there is no value. The loader is not called again during its age.

    To all calls that do not load, the key is a miss.
    """

    max_age: Seconds | None = None
    """Seconds, or a timedelta. None: the caller's ``missing_age``, or else its ``max_age``."""
    tags: Iterable[Tag] = ()
    """In addition to the caller's tags."""


@dataclass(frozen=True)
class NotModified:
    """A loader returns it if the old entry is still valid. The entry gets a new age, if it still
    exists, and its value is the result."""

    max_age: Seconds | None = None
    """Seconds, or a timedelta. None: the caller's ``max_age``."""


class LoadResult(NamedTuple):
    """The result of ``entry_or_load``: a value, and where it comes from."""

    value: Any
    """None if it is known to be missing."""
    source: Literal["cache", "waited", "loaded", "renewed"]
    """
    - ``"cache"``: the cache had it
    - ``"waited"``: another call loaded it, and this call waited
    - ``"loaded"``: this call loaded it
    - ``"renewed"``: this call's loader returned ``NotModified``
    """
    stale: bool = False
    """Past its age."""
    missing: bool = False
    """A loader found that there is no value (``Missing``)."""
    error: Exception | None = None
    """Why a load failed, in this call or before its ``retry_after`` pause, so that this value is
    served instead."""
