"""`Tier`: a near cache in front of a remote."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Callable, Union

from .._keys import encode_key
from .._options import Tag, tag_bytes
from .._units import Seconds
from ._course import Ask, Call, Course, Pause, Result, Steps, V, storing
from ._remotes import remote_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._keys import Key
    from .._serializers import Serializer


class Tier(Course):
    """A near cache that the processes of a machine share, in front of Redis, Valkey or memcached.

        import redis
        from shale.tier import Tier

        with Tier("/var/cache/near", redis.Redis(host="cache"), prefix="app:") as tier:
            tier.set("user:7", {"name": "Ada"}, max_age=3600, tags=["users"])
            tier.get("user:7")

    The remote is the truth; the near cache keeps what this machine reads of it. Any number of
    threads and processes use a tier, each process through its own or, after ``fork``, through the
    one it inherited. Documentation/tier.md says what is promised, and what is stored where.

    Keys and values are those of ``shale.Cache``. A value that another program stores in the remote
    under ``<prefix>k:<key>`` is bytes here.
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

        directory: of this tier alone, on a disk of this machine. Processes that open it share what
            is in it, so they give the same client, prefix and bound.
        client: a ``redis.Redis`` or ``valkey.Valkey`` (7.0 and 7.2 or later; also of a sentinel,
            with TLS or a Unix socket), or a ``pymemcache`` ``Client``. Its options say how the
            remote is reached. The tier makes connections of its own by them.
        prefix: of all keys in the remote.
        bound: seconds after which no process of this machine is served what was changed anywhere.
            With memcached, which does not tell of changes: how long a value is served near.
        timeout: seconds that the remote may take; then it counts as out of reach.
        near_age: seconds that a value is kept near at most.
        keep_stale: seconds for which it is kept beyond that, for ``stale=True``.
        serializer: for values of other types, such as ``shale.PickleSerializer()``.
        options: those of ``shale.Cache``, such as ``capacity``.

        Raises InvalidError for a client that is none of these, and for a directory of another
        prefix; the remote need not be there.
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
        """Ends the listening of this process and closes the near cache; again is allowed."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<shale.tier.{type(self).__name__} {self._cache.directory}>"

    @property
    def listens(self) -> bool:
        """Whether this process is the one of its machine that hears what changes."""
        listener = self._listener
        return listener is not None and listener.listens

    # Reading

    def get(self, key: Key, default: Any = None, *, stale: bool = False) -> Any:
        """The value, or ``default``. The arguments and errors are those of ``lookup``."""
        result = self.lookup(key, stale=stale)
        return default if result.missing else result.value

    def lookup(self, key: Key, *, stale: bool = False) -> Result:
        """The value, and how it was come by.

        stale: where the remote is not reached, give what was last known of the key, if no change of
        it is known; the result says so. Otherwise RemoteError is raised then.
        """
        return self._hit(key) or self._run(self._find(key, None, None, stale, True))

    def get_or_load(
        self,
        key: Key,
        load: Callable[[], V],
        *,
        default: Any = None,
        **options: Any,
    ) -> Any:
        """The value, or what ``load()`` gives, which is then stored. The arguments and errors are
        those of ``lookup_or_load``; ``default`` is for ``shale.Missing()``."""
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
        """The value, loaded where the remote has none, and how it was come by.

        Of this machine's processes one loads at a time. What is loaded is stored in the remote,
        unless the key was written or removed, or one of the tags invalidated, since the load began.
        ``load`` may return ``shale.Loaded`` with an age of its own, or ``shale.Missing()``.

        max_age, missing_age: seconds that the remote keeps a value, or that there is none. None: no
        end; for missing_age: max_age. tags: up to seven, for ``invalidate``.
        stale: as in ``lookup``. Where nothing is given so, and the remote is not reached, the
        loader's value is the answer, and is kept near for the bound.
        """
        how = storing(max_age, tags, missing_age)
        return self._hit(key, True) or self._run(self._find(key, load, how, stale, True))

    def _run(self, steps: Steps[Result]) -> Result:
        """Does in this thread what the steps ask for."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = error = None
            try:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                elif isinstance(step, Call):
                    answer = step.function(*step.arguments)
                elif isinstance(step, Ask):
                    answer = step.loader()
                    if isinstance(answer, Awaitable):
                        if isinstance(answer, Coroutine):
                            # Nobody is to be warned that it was never awaited.
                            answer.close()
                        raise TypeError("the loader is async: AsyncTier awaits it")
            except BaseException as raised:
                error = raised

    # Writing

    def set(
        self,
        key: Key,
        value: Any,
        *,
        max_age: Seconds | None = None,
        tags: Iterable[Tag] = (),
    ) -> None:
        """Stores a value in the remote. When this returns, every process of this machine reads it,
        and others do so within the bound.

        max_age: seconds that the remote keeps it. None: no end. tags: up to seven.

        Raises RemoteError where the remote does not store it in time. It was stored before then, or
        will never be; the key is removed from the remote when that is reached again.
        """
        self._set(encode_key(key), value, storing(max_age, tags))

    def remove(self, key: Key) -> bool:
        """Removes a value. Whether there was one. Raises RemoteError; then it is done later."""
        return self._remove(encode_key(key))

    def invalidate(self, tag: Tag) -> None:
        """Removes every value that carries the tag, on all machines. Costs the same however many
        there are. Raises RemoteError; then it is done later."""
        self._invalidate(tag_bytes(tag))
