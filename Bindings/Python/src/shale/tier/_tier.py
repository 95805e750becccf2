"""`Tier`: a near cache in front of a remote."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Union

from .._data.options import Tag
from .._loading.in_flight import ThreadBell
from .._native.units import Seconds
from ._io import Steps, run
from ._remotes import remote_of
from ._steps import Result, TierSteps, V, stored_key, stored_tag, storing

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._data.serializers import Serializer
    from .._typing import Key


class Tier(TierSteps):
    """A near cache that the processes of a machine share, in front of Redis, Valkey or memcached.

        import redis
        from shale.tier import Tier

        with Tier("/var/cache/near", redis.Redis(host="cache"), prefix="app:") as tier:
            tier.set("user:7", {"name": "Ada"}, max_age=3600, tags=["users"])
            tier.get("user:7")

    The remote is the truth; the near cache keeps what this machine reads of it. Any number of
    threads and processes use a tier, each process through its own or, after ``fork``, through the
    one it inherited. Documentation/guide/python/tier.md has the promises and limits.

    Keys and values are those of ``shale.Cache``. A value that another program stores in the remote
    under ``<prefix>k:<key>`` is read as bytes.
    """

    def __init__(
        self,
        directory: Union[str, os.PathLike[str]],
        client: Any,
        *,
        prefix: Union[str, bytes] = b"shale:",
        bound: Seconds = 1.0,
        timeout: Seconds = 0.5,
        near_age: Seconds = 300.0,
        keep_stale: Seconds = 3600.0,
        serializer: Serializer | None = None,
        **options: Any,
    ) -> None:
        """Opens the near cache in ``directory``, and listens to the remote.

        directory: only for this tier, on a disk of this machine. Processes that open it share its
            entries, so they give the same client, prefix and bound.
        client: a ``redis.Redis`` or ``valkey.Valkey`` (7.0 and 7.2 or later; also of a sentinel,
            with TLS or a Unix socket), or a ``pymemcache`` ``Client``. The tier makes its own
            connections, with the options of the client.
        prefix: of all keys in the remote.
        bound: seconds after a change anywhere, after which no process of this machine reads the old
            value. With memcached, which does not announce changes: how long the near cache serves
            a value.
        timeout: seconds that the remote may take; after that it counts as unreachable.
        near_age: the longest time that the near cache keeps a value, seconds.
        keep_stale: seconds that it keeps a value after that, for ``stale=True``.
        serializer: for values of other types, such as ``shale.PickleSerializer()``.
        options: those of ``shale.Cache``, such as ``capacity``.

        Raises InvalidError for a client of another type, and for a directory of another database or
        prefix; the remote need not be reachable.
        """
        name = prefix.encode() if isinstance(prefix, str) else bytes(prefix)
        remote = remote_of(client, name, timeout, bound)
        super().__init__(
            directory,
            remote,
            bound=bound,
            timeout=remote.timeout,
            near_age=near_age,
            keep_stale=keep_stale,
            serializer=serializer,
            options=options,
        )

    def close(self) -> None:
        """Ends the listener of this process and closes the near cache. May be called again."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shale.tier.{type(self).__name__} {self._cache.directory}>"

    @property
    def listens(self) -> bool:
        """Whether this process is the one of its machine that receives changes."""
        listener = self._listener
        return listener is not None and listener.listens

    # Reading

    def get(self, key: Key, default: Any = None, *, stale: bool = False) -> Any:
        """The value, or ``default``. Arguments and errors as in ``lookup``."""
        result = self.lookup(key, stale=stale)
        return default if result.missing else result.value

    def lookup(self, key: Key, *, stale: bool = False) -> Result:
        """The value, and where it comes from.

        stale: if the remote cannot be reached, return the last known value, if no change of it is
        known; ``Result.stale`` is True then. Otherwise raises RemoteError.
        """
        return self._hit(key) or self._run(self._find(key, None, None, stale, ThreadBell()))

    def get_or_load(
        self,
        key: Key,
        load: Callable[[], V],
        *,
        default: Any = None,
        **options: Any,
    ) -> Any:
        """The value, or the result of ``load()``, which it then stores. Arguments and errors as in
        ``lookup_or_load``; ``default`` is for ``shale.Missing()``."""
        result = self.lookup_or_load(key, load, **options)
        return default if result.missing else result.value

    def lookup_or_load(
        self,
        key: Key,
        load: Callable[[], Any],
        *,
        max_age: Seconds | None = None,
        missing_age: Seconds | None = None,
        tags: Iterable[Tag] = (),
        stale: bool = False,
    ) -> Result:
        """The value, which it loads if the remote has none, and where it comes from.

        One process of this machine loads a key at a time. The loaded value is stored in the remote,
        unless the key was written or removed, or one of the tags invalidated, after the load began.
        ``load`` may return ``shale.Loaded`` with its own age, or ``shale.Missing()``.

        max_age, missing_age: seconds that the remote keeps a value, or that there is none. None: no
        limit; for missing_age: max_age. tags: up to seven, for ``invalidate``.
        stale: as in ``lookup``. If that returns no value and the remote cannot be reached, the
        loader's value is the result, and the near cache keeps it for the bound.
        """
        how = storing(max_age, tags, missing_age)
        return self._hit(key, True) or self._run(
            self._find(key, partial(_load, load), how, stale, ThreadBell())
        )

    def _run(self, steps: Steps[V]) -> V:
        return run(steps, self._remote.wire)

    # Writing

    def set(
        self,
        key: Key,
        value: Any,
        *,
        max_age: Seconds | None = None,
        tags: Iterable[Tag] = (),
    ) -> None:
        """Stores a value in the remote. After this call every process of this machine reads it, and
        those of others do within the bound.

        max_age: seconds that the remote keeps it. None: no limit. tags: up to seven.

        Raises RemoteError if the remote refuses it, which changes nothing, or does not answer in
        time. It was stored before then, or never will be; the key is removed from the remote when
        that can be reached again, unless a set has stored a newer value.
        """
        self._run(self._set(stored_key(key), value, storing(max_age, tags)))

    def remove(self, key: Key) -> bool:
        """Removes a value. Whether there was one. Raises RemoteError; it is then removed later."""
        return self._run(self._remove(stored_key(key)))

    def invalidate(self, tag: Tag) -> None:
        """Removes every value with the tag, on all machines. Costs the same for any number of
        values. Raises RemoteError; they are then removed later."""
        self._run(self._invalidate(stored_tag(tag)))


def _load(loader: Callable[[], Any]) -> Any:
    answer = loader()
    if isinstance(answer, Awaitable):
        if isinstance(answer, Coroutine):
            # Without this Python warns that it was never awaited.
            answer.close()
        raise TypeError("the loader is async: AsyncTier awaits it")
    return answer
