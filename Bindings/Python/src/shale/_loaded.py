"""What a loader answers, and what its caller learns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ._options import Tag
from ._units import Seconds

if TYPE_CHECKING:
    from typing import Literal

V = TypeVar("V")


@dataclass(frozen=True)
class Loaded(Generic[V]):
    """A loaded value that says how it is to be stored. A loader may return it for the value."""

    value: V
    max_age: Seconds | None = None
    """Seconds, or a timedelta. None: the age that the caller gave."""
    tags: Iterable[Tag] = ()
    """Beside those that the caller gave."""
    meta: bytes = b""
    """The loader's own bytes beside the value, such as an ETag. ``Entry.meta`` is these."""


@dataclass(frozen=True)
class Missing:
    """There is no such thing. A loader returns it, and is not asked again for that time.

    To all but those who load, the key is a miss.
    """

    max_age: Seconds | None = None
    """Seconds, or a timedelta. None: the caller's ``missing_age``, or else its ``max_age``."""
    tags: Iterable[Tag] = ()
    """Beside those that the caller gave."""


@dataclass(frozen=True)
class NotModified:
    """The old entry is still right. It gets a new age, if it is still there, and its value is the
    answer."""

    max_age: Seconds | None = None
    """Seconds, or a timedelta. None: the age that the caller gave."""


class LoadResult(NamedTuple):
    """A value, and how ``entry_or_load`` came by it."""

    value: Any
    """None where it is known to be missing."""
    source: Literal["cache", "waited", "loaded", "renewed"]
    """
    - ``"cache"``: it was there
    - ``"waited"``: another loaded it, and this call waited
    - ``"loaded"``: this call loaded it
    - ``"renewed"``: this call's loader found that it was not modified
    """
    stale: bool = False
    """Past its age."""
    missing: bool = False
    """Its loader has found that there is no such thing."""
    error: Exception | None = None
    """Why a load failed in whose place this is served, in this call or in the pause before it."""
