"""The errors of a tier."""

from __future__ import annotations

from .._native.errors import Error


class RemoteError(Error, ConnectionError):  # type: ignore[misc]  # errno: int, or None
    """The remote could not be reached within the time limit, or refused the call.

    A write that raises it was executed before, or never will be. A set that the remote refused
    changes nothing. Otherwise the key goes into a journal: the near cache does not serve it, and
    the remote loses it as soon as that can be reached, unless a set has stored a newer value.
    """


class RefusedError(RemoteError):
    """The remote answered, and did not execute the call."""


class NoTimeError(RemoteError):
    """The call has used up its time before it could connect: the remote is not to blame."""

    def __init__(self) -> None:
        super().__init__("no time is left to connect")
