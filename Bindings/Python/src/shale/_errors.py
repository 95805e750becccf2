"""The exceptions, one for each error code of the library, and two of loading.

Where it has a code, the text is the library's own: what failed, on which path, why,
and what to do.
A miss is never one of these: only ``cache[key]`` and ``del cache[key]`` raise,
and what they raise is ``KeyError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

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


class SystemCallError(Error):
    """A system call failed; ``errno`` says how (``SHALE_E_IO``)."""

    code = _abi.E_IO


class FormatError(Error):
    """The directory holds something that is not a cache."""

    code = _abi.E_FORMAT


class VersionError(Error):
    """The cache was written by a newer release, in a newer format."""

    code = _abi.E_VERSION


class BusyError(Error):
    """The cache is open elsewhere in a way that rules this call out."""

    code = _abi.E_BUSY


class FilesystemError(Error):
    """This file system cannot share mappings (NFS and the like)."""

    code = _abi.E_FILESYSTEM


class PermissionDeniedError(Error):
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


def failure(status: int) -> Error:
    """The exception for a negative status that this thread has just been given."""
    text: bytes = _library.last_error() or _library.status_text(status)
    kind = _BY_CODE.get(status, Error)
    return kind(text.decode("utf-8", "replace"), _library.last_errno())


def check(status: int) -> int:
    """Passes answers through and raises errors."""
    if status < 0:
        raise failure(status)
    return status
