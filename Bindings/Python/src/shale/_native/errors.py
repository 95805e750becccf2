"""The exceptions: one for each error code of the library, three of loads, one of locks.

The text of an exception with a code is the library's: what failed, the path, the cause, and what to
do, the latter in words of Python. A miss is not an error: only ``cache[key]``, ``del cache[key]``
and ``popitem()`` raise, ``KeyError``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from . import abi, library

if TYPE_CHECKING:
    from .._typing import Key


class Error(Exception):
    """The base class of Shale's errors.

    ``code`` is the number in ``shale.h`` (``SHALE_E_...``). ``errno`` and ``strerror`` are the
    error of the failed system call; 0 and None if there was none. ``filename`` is the cache's
    directory if the call that failed opens it, else None.
    """

    code: ClassVar[int] = 0

    def __init__(self, message: str, errno: int = 0, filename: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.errno = errno
        self.strerror = os.strerror(errno) if errno else None
        self.filename = filename

    def __str__(self) -> str:
        return self.message  # an OSError would compose a shorter text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.errno, self.filename)


class InvalidError(Error, ValueError):
    """An argument is out of range, or the cache is closed."""

    code = abi.E_INVALID


class TooLargeError(Error, ValueError):
    """The key has more than 65,535 bytes, or the value exceeds the cache's limit."""

    code = abi.E_TOO_LARGE


class FullError(Error):
    """No space: the disk is full, or pinned entries fill the cache."""

    code = abi.E_FULL


class OutOfMemoryError(Error, MemoryError):
    """The library could not allocate memory."""

    code = abi.E_MEMORY


class SystemCallError(Error, OSError):  # type: ignore[misc]  # errno: int, or None
    """A system call failed; ``errno`` is its error (``SHALE_E_IO``)."""

    code = abi.E_IO


class NotFoundError(SystemCallError, FileNotFoundError):  # type: ignore[misc]
    """There is no cache to open, and ``must_exist`` or ``read_only`` forbids creating it."""


class NotDirectoryError(SystemCallError, NotADirectoryError):  # type: ignore[misc]
    """The path, or a part of it, is a file."""


class FormatError(Error):
    """The directory contains files that are not a cache."""

    code = abi.E_FORMAT


class VersionError(Error):
    """The cache has the format of another version."""

    code = abi.E_VERSION


class BusyError(Error):
    """Another use of the cache excludes this call; or ``lock_timeout`` is over; or the directory
    was removed or replaced after the cache was opened.
    """

    code = abi.E_BUSY


class FilesystemError(Error):
    """The file system cannot share memory mappings (NFS and the like)."""

    code = abi.E_FILESYSTEM


class PermissionDeniedError(Error, PermissionError):  # type: ignore[misc]
    """The files belong to another user, or the cache was opened with ``read_only=True``.

    ``errno`` is EACCES if no system call failed.
    """

    code = abi.E_PERMISSION


class LoadTimeoutError(Error, TimeoutError):  # type: ignore[misc]  # errno: int, or None
    """A value was neither found nor loaded within the caller's ``timeout``."""

    def __init__(self, key: Key, timeout: float, why: str = "") -> None:
        super().__init__(f"loading {key!r} took longer than timeout={timeout:g} seconds{why}")
        self.key = key
        self.timeout = timeout
        self._why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.timeout, self._why)


class LoadFailed(Error):
    """Another process loaded the value for which this call waited, and its loader raised.

    Callers of that process get the exception itself.
    """

    def __init__(self, key: Key, type: str, message: str) -> None:
        super().__init__(f"loading {key!r} failed in another process: {type}: {message}")
        self.key = key
        self.type = type
        """The module and name of the exception's type."""
        self.message = message
        """The text of the exception, cut off after 1,000 characters."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.type, self.message)


class LockTimeoutError(Error, TimeoutError):  # type: ignore[misc]  # errno: int, or None
    """Another caller held the lock for longer than the caller's ``timeout``."""

    def __init__(self, key: Key, timeout: float) -> None:
        super().__init__(f"the lock of {key!r} was not free within timeout={timeout:g} seconds")
        self.key = key
        self.timeout = timeout

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.timeout)


class DeadlockError(Error, RuntimeError):
    """A load that waits for itself.

    ``chain`` are the keys: the load of each asked for the next; the last key is the first.
    """

    def __init__(
        self,
        chain: Sequence[Key],
        why: str = "each load waits for the next",
        *,
        mutual: bool = False,
    ) -> None:
        """mutual: loads of several callers wait for each other; without this call, the others would
        go on."""
        self.chain = tuple(chain)
        self._why = why
        self._mutual = mutual
        super().__init__(f"{' -> '.join(map(repr, self.chain))}: {why}, which would never end")

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


_BY_ERRNO: Final = {errno.ENOENT: NotFoundError, errno.ENOTDIR: NotDirectoryError}


CLOSE_OTHERS: Final = "close its other users first, or pass None"
"""The advice if others have the cache open with another capacity or max_entries."""

# The library's advice for C programs, and the same for Python. It ends a text, so a path is never
# mistaken for it.
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


def failure(status: int, filename: str | None = None) -> Error:
    """The exception for a negative status that this thread has just received. filename: of a cache
    that was to be opened."""
    text: bytes = library.last_error() or library.status_text(status)
    number = library.last_errno()
    kind = _BY_CODE.get(status, Error)
    if kind is SystemCallError:
        kind = _BY_ERRNO.get(number, kind)
    elif kind is PermissionDeniedError:
        number = number or errno.EACCES
    return kind(in_python(text), number, filename)


def in_python(text: bytes) -> str:
    """The library's text, with the advice for Python."""
    facts, separator, advice = text.decode("utf-8", "replace").rpartition("; ")
    return facts + separator + _ADVICE.get(advice, advice)


def check(status: int) -> int:
    """Returns the status, or raises its error."""
    if status < 0:
        raise failure(status)
    return status
