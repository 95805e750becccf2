"""What a tier raises."""

from __future__ import annotations

from .._errors import Error


class RemoteError(Error, ConnectionError):  # type: ignore[misc]  # errno: int, or None
    """The remote was not reached within the time limit, or refused the call.

    A write that raises it was executed before, or will never be. Its key is noted: the near cache
    does not serve it, and it is removed from the remote as soon as that can be reached.
    """


class RefusedError(RemoteError):
    """The remote has answered, and not done it."""
