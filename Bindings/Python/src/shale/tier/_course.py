"""The way from a key to its value: near cache, remote, loader. It is written once, as a generator
that asks for what may take long; `Tier` does that in its thread, and `AsyncTier` awaits it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, TypeVar, Union

from .._cache import Cache
from .._errors import InvalidError
from .._load import Load
from .._loaded import Loaded, LoadResult, Missing
from .._options import Tag, tag_list
from .._policy import Policy
from .._turn import Turn
from .._units import LEASE, NEVER, Seconds, duration_ms
from .._values import Codec, Unreadable
from . import _format
from ._errors import RemoteError
from ._format import ABSENT, ALONE, MOST_TAGS, READ, Near
from ._listener import Listener
from ._near import EPOCH_TAG, NearCache, now
from ._redis import Fetched

if TYPE_CHECKING:
    from typing import Literal

    from .._keys import Key
    from .._serializers import Serializer

V = TypeVar("V")


class Result(NamedTuple):
    """A value, and how it was come by."""

    value: Any
    """None where it is missing."""
    source: Literal["near", "remote", "loaded"]
    """
    - ``"near"``: from the near cache, where this call or another has put it
    - ``"remote"``: read from the remote by this call
    - ``"loaded"``: this call's loader gave it
    """
    missing: bool = False
    """There is no value."""
    stale: bool = False
    """The remote could not be asked. It is what was last known; no change of it is known."""
    error: Exception | None = None
    """Why the remote could not be asked, where it is stale, or loaded in the remote's absence."""


class Pause(NamedTuple):
    """To wait for another's load: so many seconds, or until it has ended."""

    turn: Turn
    seconds: float


class Call(NamedTuple):
    """To call a function that may wait for the remote, and send what it returns."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Ask(NamedTuple):
    """To call the loader, and send what it returns."""

    loader: Callable[[], Any]


Steps = Generator[Union[Pause, Call, Ask], Any, V]


class Storing(NamedTuple):
    """How a value is stored in the remote."""

    max_age: Union[int, None]
    """Milliseconds; None: no end."""
    missing_age: Union[int, None]
    tags: list[bytes]


def storing(
    max_age: Seconds | None,
    tags: Iterable[Tag],
    missing_age: Seconds | None = None,
) -> Storing:
    named = tag_list(None, tags)
    if len(named) > MOST_TAGS:
        raise InvalidError(f"a value of a tier has up to {MOST_TAGS} tags, not {len(named)}")
    missing = max_age if missing_age is None else missing_age
    return Storing(_life("max_age", max_age), _life("missing_age", missing), named)


def _life(name: str, seconds: Seconds | None) -> Union[int, None]:
    if seconds is None or seconds == NEVER:
        return None
    milliseconds = duration_ms(name, seconds)
    if not milliseconds:
        raise InvalidError(f"{name} of 0 seconds stores nothing; remove the key instead")
    return milliseconds


class Counts:
    """Of this object; roughly, as threads count without a lock."""

    def __init__(self) -> None:
        self.near = self.remote = self.loaded = self.stale = self.failed = 0


class Course:
    """What `Tier` and `AsyncTier` share."""

    def __init__(
        self,
        directory: Union[str, os.PathLike[str], None],
        remote: Any,
        *,
        bound: Seconds,
        timeout: float,
        near_age: Seconds,
        keep_stale: Seconds,
        serializer: Serializer | None,
        options: dict[str, Any],
    ) -> None:
        bound_ms = duration_ms("bound", bound)
        if not 20 <= bound_ms <= 3_600_000:
            raise InvalidError(f"bound is between 0.02 seconds and an hour, not {bound!r}")
        self._bound = bound_ms / 1000
        self._timeout = timeout
        self._near_age = duration_ms("near_age", near_age)
        self._remote = remote
        self._codec = Codec(serializer)
        self._policy = self._make_policy(keep_stale, wait=timeout / 2, lease=max(timeout, 0.1))
        self._load_policy = self._make_policy(keep_stale, wait=NEVER, lease=LEASE)
        self.counts = Counts()
        self._cache: Cache[Any, Any] = Cache(directory, **options)
        try:
            self._near = NearCache(self._cache, bound_ms * 1_000_000, remote)
        except BaseException:
            self._cache.close()
            raise
        self._lock = threading.Lock()
        self._process = 0
        self._listener: Listener | None = None
        self._begin()

    def _make_policy(self, keep_stale: Seconds, **options: Any) -> Policy:
        policy = Policy(tag=EPOCH_TAG, stale=keep_stale, **options)
        # Stored with a stale period, and read without what is in it.
        policy.read_flags = 0
        return policy

    # The listener

    def _begin(self) -> None:
        """Starts this process's thread, in a child of fork too."""
        if self._process == os.getpid():
            return
        if self._process:
            self._lock = threading.Lock()
            self._remote.after_fork()
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._listener = Listener(self._near, self._remote, self._bound)

    def _end(self) -> None:
        if self._listener is not None and self._process == os.getpid():
            self._listener.stop()
        self._listener = None
        self._remote.close()
        self._cache.close()

    # Reading

    def _hit(self, key: Key, loads: bool = False) -> Result | None:
        """loads: that the remote has nothing is no answer."""
        entry = self._near.get(key)
        if entry is None or (loads and entry.kind == ABSENT):
            return None
        try:
            result = self._result(entry, "near")
        except Unreadable:
            return None
        self.counts.near += 1
        return result

    def _result(self, entry: Near, source: Any, **more: Any) -> Result:
        found = None if entry.kind == ABSENT else _format.decode(entry.raw)
        if found is None or found.missing:
            return Result(None, source, missing=True, **more)
        return Result(self._codec.decode(found.meta, found.data), source, **more)

    def _find(
        self,
        key: Key,
        loader: Callable[[], Any] | None,
        how: Storing | None,
        stale: bool,
        blocks: bool,
    ) -> Steps[Result]:
        """A value that the near cache does not have, or has no longer."""
        self._begin()
        policy = self._policy if loader is None else self._load_policy
        deadline = time.monotonic() + self._timeout
        while True:
            turn = Turn(self._cache, key, policy, counted=True)
            self._near.refresh(turn.place[1], loader is not None)
            # Before each look: what is heard later does not vouch for what was seen.
            heard = self._near.heard()
            found = turn.look()
            if found is None:
                with turn.waiting(blocks=blocks):
                    while found is None:
                        yield Pause(turn, turn.pause())
                        heard = self._near.heard()
                        found = turn.look()
            if isinstance(found, Load):
                return (yield from self._load(key, found, loader, how, stale, deadline))
            result = self._waited(found, heard, loader is not None)
            if result is not None:
                return result

    def _waited(self, found: LoadResult, heard: int, loads: bool) -> Result | None:
        """What another has read, if that may be served."""
        entry = _format.decode_near(found.value)
        if (loads and entry.kind == ABSENT) or not self._near.is_good(entry, heard):
            return None
        try:
            result = self._result(entry, "near")
        except Unreadable:
            return None
        self.counts.near += 1
        return result

    def _load(
        self,
        key: Key,
        load: Load,
        loader: Callable[[], Any] | None,
        how: Storing | None,
        stale: bool,
        deadline: float,
    ) -> Steps[Result]:
        with load:
            stored_key = load._place[1]
            if loader is not None:
                # Who waited for another's load has the whole time for the remote.
                deadline = time.monotonic() + self._timeout
            began = now()
            try:
                fetched, found, heard = yield Call(self._fetch, (stored_key, deadline))
            except RemoteError as error:
                self.counts.failed += 1
                return (yield from self._without(key, load, loader, stale, error))
            self.counts.remote += 1
            kind = ABSENT if found is None else READ
            if found is not None or loader is None:
                entry = Near(kind, began, b"" if found is None else fetched.raw)
                result = self._result(entry, "remote")
                if heard:
                    # What has no value here may have one at any time, and then that is told.
                    left = self._near_age if found is None else self._left(fetched.ttl, began)
                    self._keep(load, entry, left, () if found is None else found.tags)
                else:
                    # Nor does anybody store what was read before.
                    self._near.removed([stored_key])
                return result
            assert how is not None
            return (yield from self._load_new(load, stored_key, fetched, loader, how))

    def _fetch(
        self, key: bytes, deadline: float
    ) -> tuple[Fetched, Union[_format.Value, None], bool]:
        """What the remote has, the value if it counts, and whether the listener hears of its
        changes."""
        fetched = self._remote.fetch(key, deadline)
        heard = self._near.listens_to(fetched.server)
        if not heard:
            # This connection may lead to one that was the primary.
            fetched = self._remote.fetch(key, deadline, fresh=True)
            heard = self._near.listens_to(fetched.server)
        found = _format.decode(fetched.raw)
        if found is not None and found.tags:
            tags = list(found.tags)
            if self._remote.versions(tags, deadline) != [found.tags[tag] for tag in tags]:
                # One of them was invalidated since it was written.
                found = None
        return fetched, found, heard

    def _left(self, ttl: Union[int, None], began: int) -> int:
        """Milliseconds for which the near cache may keep it."""
        if ttl is None:
            return self._near_age
        return min(self._near_age, ttl - (now() - began) // 1_000_000 - 1)

    def _keep(self, load: Load, entry: Near, milliseconds: int, tags: Iterable[bytes]) -> None:
        """Stores it in the near cache, unless it was invalidated since the load began."""
        if milliseconds > 0:
            load.succeeded(Loaded(entry.encode(), milliseconds / 1000, tuple(tags)))

    def _without(
        self,
        key: Key,
        load: Load,
        loader: Callable[[], Any] | None,
        stale: bool,
        error: RemoteError,
    ) -> Steps[Result]:
        """What is served where the remote is not reached."""
        if stale:
            entry = self._near.stale(key)
            if entry is not None:
                try:
                    result = self._result(entry, "near", stale=True, error=error)
                except Unreadable:
                    pass
                else:
                    self.counts.stale += 1
                    return result
        if loader is None:
            raise error
        began = now()
        answer = yield Ask(loader)
        self.counts.loaded += 1
        value, missing, raw, _ = self._answer(answer, {})
        # Good for the bound, whatever is heard meanwhile.
        self._keep(load, Near(ALONE, began, raw), self._near_age, ())
        return Result(value, "loaded", missing=missing, error=error)

    def _load_new(
        self, load: Load, key: bytes, found: Fetched, loader: Callable[[], Any], how: Storing
    ) -> Steps[Result]:
        """Loads what the remote has not, and stores it there if nobody does meanwhile."""
        tags, token = yield Call(self._begin_load, (key, found, how.tags))
        answer = yield Ask(loader)
        self.counts.loaded += 1
        value, missing, raw, own_age = self._answer(answer, tags)
        if token is not None:
            age = how.missing_age if missing else how.max_age
            age = age if own_age is None else own_age
            began = now()
            if (yield Call(self._end_load, (key, token, raw, age))):
                entry = Near(READ, began, raw)
                self._keep(load, entry, self._left(age, began), how.tags)
        return Result(value, "loaded", missing=missing)

    def _begin_load(
        self, key: bytes, found: Fetched, tags: list[bytes]
    ) -> tuple[_format.Tags, Any]:
        """The tags' versions, before the load, and what stores it; None where it is not stored."""
        deadline = time.monotonic() + self._timeout
        try:
            versions = self._remote.make_versions(tags, deadline)
            return versions, self._remote.begin_load(key, found, deadline)
        except RemoteError:
            return {}, None

    def _end_load(self, key: bytes, token: Any, raw: bytes, age: Union[int, None]) -> bool:
        try:
            deadline = time.monotonic() + self._timeout
            return bool(self._remote.end_load(key, token, raw, age, deadline))
        except RemoteError:
            # Where it was stored all the same, it is right.
            return False

    def _answer(self, answer: Any, tags: _format.Tags) -> tuple[Any, bool, bytes, Union[int, None]]:
        """A loader's answer: value, whether there is none, the remote's bytes, its own age."""
        if isinstance(answer, Missing):
            if answer.tags:
                raise InvalidError(_TAGS_OF_ANSWER)
            return None, True, _format.encode_missing(tags), _life("max_age", answer.max_age)
        own = None
        if isinstance(answer, Loaded):
            if answer.tags or answer.meta:
                raise InvalidError(_TAGS_OF_ANSWER)
            own = _life("max_age", answer.max_age)
            answer = answer.value
        return answer, False, _format.encode(self._codec, answer, tags), own

    # Writing

    def _set(self, key: bytes, value: Any, how: Storing) -> None:
        self._begin()
        deadline = time.monotonic() + self._timeout
        plain = _format.encode(self._codec, value, {})  # TypeError comes before anything is done
        try:
            tags = self._remote.make_versions(how.tags, deadline)
            raw = _format.encode(self._codec, value, tags) if tags else plain
            # Whoever removes late what is in the journal finds the key out of it.
            self._near.forget_key(key)
            self._remote.store(key, raw, how.max_age, deadline)
        except RemoteError:
            self._near.removed([key])
            self._near.note(b"k" + key)
            raise
        # A load that has begun before stores nothing.
        self._near.removed([key])

    def _remove(self, key: bytes) -> bool:
        self._begin()
        try:
            return bool(self._remote.remove(key, time.monotonic() + self._timeout))
        except RemoteError:
            self._near.note(b"k" + key)
            raise
        finally:
            self._near.removed([key])

    def _invalidate(self, tag: bytes) -> None:
        self._begin()
        try:
            self._remote.invalidate(tag, time.monotonic() + self._timeout)
        except RemoteError:
            self._near.note(b"t" + tag)
            raise
        finally:
            self._cache.invalidate(tag)


_TAGS_OF_ANSWER: Final = (
    "a tier's loader gives no tags and no meta: the tags' versions are read before it begins, so "
    "they are options of the call"
)
