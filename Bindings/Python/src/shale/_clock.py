"""A clock of the caller's own, ``Cache(now=...)``.

It is asked in Python, before each call of the library: what it raises, or a signal handler that
runs in it, goes to the caller. The library then gets the answer by way of C alone. ctypes could not
tell it of an exception: it would print that one and hand on whatever is in the result's memory.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Callable

from . import _abi
from ._errors import InvalidError
from ._units import int64


class Clock:
    """Seconds since 1970 to the library's milliseconds."""

    __slots__ = ("_answer", "_now", "function")

    def __init__(self, now: Callable[[], float]) -> None:
        if not callable(now):
            raise TypeError("now is a function that gives seconds since 1970-01-01 UTC")
        self._now = now
        # Each thread and each greenlet has a value of its own, which is read without any Python,
        # whatever gevent or eventlet has put in place of threading.local.
        self._answer: ContextVar[int] = ContextVar("shale's now")
        self.function: Any = _abi.Clock(self._answer.get)
        """For C: the answer that this thread had last, or else the context that C passes."""

    @property
    def answer(self) -> int:
        """What this thread was last told, milliseconds."""
        return self._answer.get()

    def ask(self) -> int:
        """Asks before a call of the library. Milliseconds."""
        seconds = self._now()
        try:
            milliseconds = int64("now", round(seconds * 1000))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidError(
                f"now gives seconds since 1970-01-01 UTC, not {seconds!r}"
            ) from error
        self._answer.set(milliseconds)
        return milliseconds
