"""The exceptions: one for each error code of the library, two of loading, one of locks.

Where it has a code, the text is the library's own: what failed, on which path, why,
and what to do, the last in words of Python.
A miss is never one of these: only ``cache[key]`` and ``del cache[key]`` raise,
and what they raise is ``KeyError``.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from . import _abi, _library

if TYPE_CHECKING:
    from ._keys import Key


class Error(Exception):
    """Base of all of Shale's errors.

    ``code`` is the number in ``shale.h`` (``SHALE_E_...``), ``errno`` that of
    the system call that failed, or 0 where none did.
    """

    code: ClassVar[int] = 0

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.errno)


class InvalidError(Error, ValueError):
    """An argument is out of range, or the cache is closed."""

    code = _abi.E_INVALID


class TooLargeError(Error, ValueError):
    """The key exceeds 65,535 bytes, or the value the cache's limit."""

    code = _abi.E_TOO_LARGE


class FullError(Error):
    """No space: the disk is full, or pinned entries fill the cache."""

    code = _abi.E_FULL


class OutOfMemoryError(Error, MemoryError):
    """The library could not allocate."""

    code = _abi.E_MEMORY


class SystemCallError(Error, OSError):  # type: ignore[misc]  # errno: int, or None
    """A system call failed; ``errno`` says how (``SHALE_E_IO``)."""

    code = _abi.E_IO


class NotFoundError(SystemCallError, FileNotFoundError):  # type: ignore[misc]
    """There is no cache to open, and ``must_exist`` or ``read_only`` keeps it from being made."""


class FormatError(Error):
    """The directory holds something that is not a cache."""

    code = _abi.E_FORMAT


class VersionError(Error):
    """The cache has the format of another version."""

    code = _abi.E_VERSION


class BusyError(Error):
    """In use elsewhere in a way that rules this call out; or ``lock_timeout`` is over; or the
    directory was removed or replaced since the cache was opened.
    """

    code = _abi.E_BUSY


class FilesystemError(Error):
    """This file system cannot share mappings (NFS and the like)."""

    code = _abi.E_FILESYSTEM


class PermissionDeniedError(Error, PermissionError):  # type: ignore[misc]
    """The files are another user's, or the cache was opened with ``read_only=True``."""

    code = _abi.E_PERMISSION


class LoadTimeoutError(Error, TimeoutError):  # type: ignore[misc]  # errno: int, or None
    """A value was not there, and not loaded, in the time that the caller gave."""

    def __init__(self, key: Key, timeout: float) -> None:
        super().__init__(f"loading {key!r} took longer than timeout={timeout:g} seconds")
        self.key = key
        self.timeout = timeout

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.timeout)


class LockTimeoutError(Error, TimeoutError):  # type: ignore[misc]  # errno: int, or None
    """Another has the lock, for longer than the caller would wait."""

    def __init__(self, key: Key, timeout: float) -> None:
        super().__init__(f"the lock of {key!r} was not free within timeout={timeout:g} seconds")
        self.key = key
        self.timeout = timeout

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.timeout)


class DeadlockError(Error, RuntimeError):
    """A load that could only wait for itself.

    ``chain`` are the keys: each one's load asked for the next, the last is the first.
    """

    def __init__(self, chain: Sequence[Key], why: str = "each load waits for the next") -> None:
        self.chain = tuple(chain)
        self._why = why
        super().__init__(f"{' -> '.join(map(repr, self.chain))}: {why}, so it would never end")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.chain, self._why)


_BY_CODE: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidError,
        TooLargeError,
        FullError,
        OutOfMemoryError,
        SystemCallError,
        FormatError,
        VersionError,
        BusyError,
        FilesystemError,
        PermissionDeniedError,
    )
}


CLOSE_OTHERS: Final = "close its other users first, or pass None"
"""The advice where others have the cache open with another capacity or max_entries."""

# What the library says to those who write C, by what Python calls it. It comes last in a text, so
# nothing in a path is taken for it.
_ADVICE: Final = {
    "close its other users first, or pass 0": CLOSE_OTHERS,
    "continue or end it, or raise lock_timeout_ms": "continue or end it, or raise lock_timeout",
    "leave them 0": "leave them None",
    "open it without SHALE_OPEN_MUST_EXIST and SHALE_OPEN_READ_ONLY to create it": (
        "open it without must_exist=True and read_only=True to create it"
    ),
    "open the cache without SHALE_OPEN_READ_ONLY to write": (
        "open it without read_only=True to write"
    ),
    "pass 0, or use another directory": "pass None, or use another directory",
    "pass none, or use another directory": "pass None, or use another directory",
    "shale_increment works on those alone": "incr works on those alone",
    "use 0 for the default, SHALE_NEVER or SHALE_NONE": (
        "use None for the default, shale.NEVER or 0"
    ),
    "use NULL for a cache in memory": "use None for a cache in memory",
}


def failure(status: int) -> Error:
    """The exception for a negative status that this thread has just been given."""
    text: bytes = _library.last_error() or _library.status_text(status)
    number = _library.last_errno()
    kind = _BY_CODE.get(status, Error)
    if kind is SystemCallError and number == errno.ENOENT:
        kind = NotFoundError
    return kind(in_python(text), number)


def in_python(text: bytes) -> str:
    """The library's text, with its advice in words of Python."""
    facts, separator, advice = text.decode("utf-8", "replace").rpartition("; ")
    return facts + separator + _ADVICE.get(advice, advice)


def check(status: int) -> int:
    """Passes answers through and raises errors."""
    if status < 0:
        raise failure(status)
    return status
