"""The pause after a failed load, in which what is stale is served without another try.

It is the process's own: all its threads, event loops and `Cache` objects of one
directory share it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._chain import Place

# Keys that may be in their pause at once. Of more, those that failed first are tried again.
_MOST: Final = 4096


class Throttle:
    def __init__(self) -> None:
        self._failed: dict[Place, tuple[float, Exception]] = {}
        """Until when, of time.monotonic(), and why."""

    def note(self, place: Place, error: Exception, seconds: float) -> None:
        """Begins a pause."""
        failed = self._failed
        failed.pop(place, None)
        failed[place] = (time.monotonic() + seconds, error)
        if len(failed) > _MOST:
            first, *_ = list(failed)
            failed.pop(first, None)

    def error(self, place: Place) -> Exception | None:
        """Why the key is in a pause, or None where it is in none."""
        found = self._failed.get(place)
        if found is None:
            return None
        until, error = found
        if time.monotonic() < until:
            return error
        self.end(place)
        return None

    def end(self, place: Place) -> None:
        self._failed.pop(place, None)


throttle = Throttle()
