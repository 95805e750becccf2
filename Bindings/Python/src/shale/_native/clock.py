"""A clock that the caller gives, ``Cache(now=...)``.

Python asks it before each call of the library, so its exceptions, and those of a signal handler
that runs in it, are raised to the caller. The library then reads the answer without running Python
code: from a callback, ctypes can only print an exception, and returns undefined memory.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Callable

from . import abi
from .errors import InvalidError
from .units import int64


class Clock:
    """A function that returns seconds since 1970, for a library that counts milliseconds."""

    __slots__ = ("_answer", "_now", "function")

    def __init__(self, now: Callable[[], float]) -> None:
        if not callable(now):
            raise TypeError("now is a function that returns seconds since 1970-01-01 UTC")
        self._now = now
        # A value for each thread and greenlet, which is read without running Python code, also if
        # gevent or eventlet has replaced threading.local.
        self._answer: ContextVar[int] = ContextVar("shale's now")
        self.function: Any = abi.Clock(self._answer.get)
        """For C: the last answer in this thread, or else the context that C passes."""

    @property
    def answer(self) -> int:
        """The last answer in this thread, milliseconds."""
        return self._answer.get()

    def ask(self) -> int:
        """Asks the clock, before a call of the library. Milliseconds."""
        seconds = self._now()
        try:
            milliseconds = int64("now", round(seconds * 1000))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidError(
                f"now returns seconds since 1970-01-01 UTC, not {seconds!r}"
            ) from error
        self._answer.set(milliseconds)
        return milliseconds
