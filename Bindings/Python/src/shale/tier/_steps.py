"""The steps of a call: near cache, remote, loader."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, TypeVar, Union

from .._cache import Cache
from .._data.keys import encode_key
from .._data.options import Tag, tag_bytes, tag_list
from .._data.values import Codec, Unreadable
from .._loading.attempts import LoadAttempt
from .._loading.load import Load
from .._loading.policy import Policy
from .._loading.results import Loaded, LoadResult, Missing
from .._native.errors import InvalidError, TooLargeError
from .._native.units import LEASE, NEVER, Seconds, duration_ms
from . import _format
from ._errors import RefusedError, RemoteError
from ._format import ABSENT, ALONE, LONGEST_NAME, MOST_TAGS, OWN, READ, Near
from ._io import Ask, Pause, Sleep, Steps
from ._listener import Listener
from ._near import EPOCH_TAG, NearCache, now
from ._redis import Fetched
from ._wire import Causes

if TYPE_CHECKING:
    from typing import Literal

    from .._data.serializers import Serializer
    from .._typing import Key

V = TypeVar("V")


class Result(NamedTuple):
    """A value, and where it comes from."""

    value: Any
    """None if it is missing."""
    source: Literal["near", "remote", "loaded"]
    """
    - ``"near"``: from the near cache, where this call or another has put it
    - ``"remote"``: this call read it from the remote
    - ``"loaded"``: this call's loader returned it
    """
    missing: bool = False
    """There is no value."""
    stale: bool = False
    """The remote could not be reached. The value is the last known one; no change of it is
    known."""
    error: Exception | None = None
    """Why the remote could not be reached, if the value is stale or was loaded without it."""


class Storing(NamedTuple):
    """How a value is stored in the remote."""

    max_age: Union[int, None]
    """Milliseconds; None: no limit."""
    missing_age: Union[int, None]
    tags: list[bytes]


class _Answer(NamedTuple):
    """A loader's answer."""

    value: Any
    missing: bool
    raw: bytes
    """For the remote."""
    own_age: Union[int, None]
    """Milliseconds; None: the caller's."""


def storing(
    max_age: Seconds | None,
    tags: Iterable[Tag],
    missing_age: Seconds | None = None,
) -> Storing:
    if isinstance(tags, (str, bytes)):
        raise TypeError("tags is a list of tags; for a single one write tags=[tag]")
    named = [stored_tag(tag) for tag in tag_list(None, tags)]
    if len(named) > MOST_TAGS:
        raise InvalidError(f"a value of a tier has at most {MOST_TAGS} tags, not {len(named)}")
    missing = max_age if missing_age is None else missing_age
    return Storing(_life("max_age", max_age), _life("missing_age", missing), named)


def stored_key(key: Key) -> bytes:
    """The stored form of a key that is written."""
    stored = encode_key(key)
    if len(stored) > LONGEST_NAME:
        raise TooLargeError(f"the key has {len(stored)} bytes; a key has at most 65,535")
    _check_name(stored)
    return stored


def stored_tag(tag: Tag) -> bytes:
    stored = tag_bytes(tag)
    if not 0 < len(stored) <= LONGEST_NAME:
        raise InvalidError(f"the tag has {len(stored)} bytes; a tag has 1 to 65,535")
    _check_name(stored)
    return stored


def _check_name(name: bytes) -> None:
    if name.startswith(OWN):
        raise InvalidError(
            "the key or tag begins with FF 'P' '1' 'T', as those of the tier itself: choose another"
        )


def _life(name: str, seconds: Seconds | None) -> Union[int, None]:
    if seconds is None or seconds == NEVER:
        return None
    milliseconds = duration_ms(name, seconds)
    if not milliseconds:
        raise InvalidError(f"{name} of 0 seconds stores nothing; remove the key instead")
    return milliseconds


class Counts:
    """Counts of this object. Approximate: threads count without a lock."""

    def __init__(self) -> None:
        self.near = self.remote = self.loaded = self.stale = self.failed = self.refused = 0


class TierSteps:
    """The part of a tier that `Tier` and `AsyncTier` share."""

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
        # While it reads the remote: so nothing waits for a process that was stopped by then.
        read_lease = max(timeout / 2, 0.1)
        self._load_policy = self._make_policy(keep_stale, wait=NEVER, lease=read_lease)
        self._causes = Causes()
        self.counts = Counts()
        self._cache: Cache[Any, Any] = Cache(directory, **options)
        try:
            self._near = NearCache(self._cache, bound_ms * 1_000_000, remote)
        except BaseException:
            self._cache.close()
            raise
        remote.machine = self._near.machine
        remote.near = self._near
        self._lock = threading.Lock()
        self._process = 0
        self._listener: Listener | None = None
        self._begin()

    def _make_policy(self, keep_stale: Seconds, **options: Any) -> Policy:
        policy = Policy(tag=EPOCH_TAG, stale=keep_stale, **options)
        # Values are stored with a stale period, and reads do not return stale values.
        policy.read_flags = 0
        policy.logs_keys = False
        return policy

    # The listener

    def _begin(self) -> None:
        """Starts this process's listener thread, also in a child of fork."""
        if self._process == os.getpid():
            return
        if self._process:
            self._lock = threading.Lock()
            self._causes = Causes()
            self._remote.after_fork()
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._listener = Listener(self._near, self._remote, self._bound, self._causes)

    def _end(self) -> None:
        if self._listener is not None and self._process == os.getpid():
            self._listener.stop(self._timeout)
        self._listener = None
        self._remote.close()
        self._cache.close()

    # Reading

    def _hit(self, key: Key, loads: bool = False) -> Result | None:
        """loads: the caller has a loader, so that the remote has no value is no result."""
        if isinstance(key, bytes):
            _check_name(key)
        entry = self._near.get(key)
        if entry is None or (loads and entry.kind == ABSENT):
            return None
        return self._near_result(entry, loads)

    def _near_result(self, entry: Near, loads: bool) -> Result | None:
        """Counts the hit."""
        result = self._readable(entry, "near", loads)
        if result is not None:
            self.counts.near += 1
        return result

    def _readable(self, entry: Near, source: Any, loads: bool) -> Result | None:
        """A value that this process cannot decode is none, and no result for a caller that loads.
        Other processes may have its serializer."""
        try:
            return self._result(entry, source)
        except Unreadable:
            return None if loads else Result(None, source, missing=True)

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
        bell: Any,
    ) -> Steps[Result]:
        """Looks up a value that the near cache does not have, or no longer has."""
        self._begin()
        policy = self._policy if loader is None else self._load_policy
        asked = now()
        deadline = time.monotonic() + self._timeout
        while True:
            attempt = LoadAttempt(self._cache, key, policy, bell, counted=True)
            try:
                attempt.enter()
                self._near.refresh(attempt.load_key[1], loader is not None)
                # Before each lookup: a later PING proves nothing about a value that was read before
                # it, and so nothing about one that another load hands on.
                heard = self._near.heard()
                found = attempt.look()
                if found is None:
                    with attempt.waiting():
                        while found is None:
                            yield Pause(bell, attempt.pause())
                            heard = self._near.heard()
                            found = attempt.look()
                if isinstance(found, Load):
                    return (yield from self._load(key, found, loader, how, stale, deadline))
                heard = 0 if attempt.was_handed else heard
                result = self._waited(found, heard, asked, attempt.load_key[1], loader is not None)
                if result is not None:
                    return result
            finally:
                attempt.leave()

    def _waited(
        self, found: LoadResult, heard: int, asked: int, stored_key: bytes, loads: bool
    ) -> Result | None:
        """The value that another call has read, if it was valid when this call began: however long
        that load took."""
        entry = _format.decode_near(found.value)
        if (loads and entry.kind == ABSENT) or not self._near.is_good(entry, heard, asked):
            return None
        result = self._near_result(entry, loads)
        if result is None:
            self._near.end(stored_key)
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
        try:
            with load:
                return (yield from self._read(key, load, loader, how, stale, deadline))
        finally:
            load.end()

    def _read(
        self,
        key: Key,
        load: Load,
        loader: Callable[[], Any] | None,
        how: Storing | None,
        stale: bool,
        deadline: float,
    ) -> Steps[Result]:
        stored_key = load.load_key[1]
        if loader is not None:
            # After a long wait for another's load, half of the time limit is left.
            deadline = max(deadline, time.monotonic() + self._timeout / 2)
        began = now()
        try:
            fetched, found = yield from self._fetch(stored_key, deadline)
        except RemoteError as error:
            self.counts.failed += 1
            return (yield from self._without(key, load, loader, how, stale, error))
        self.counts.remote += 1
        if found is not None or loader is None:
            kind = ABSENT if found is None else READ
            entry = Near(kind, began, b"" if found is None else fetched.raw or b"")
            result = self._readable(entry, "remote", loader is not None)
            if result is not None:
                # A key without a value may get one at any time; the remote announces that.
                left = self._near_age if found is None else self._left(fetched.ttl, began)
                self._keep(load, entry, left, () if found is None else found.tags)
                return result
        assert loader is not None
        assert how is not None
        return (yield from self._load_new(load, stored_key, fetched, loader, how, deadline))

    def _fetch(
        self, key: bytes, deadline: float
    ) -> Steps[tuple[Fetched, Union[_format.Value, None]]]:
        """The reply of the remote, and the valid value in it."""
        fetched = yield from self._remote.fetch(key, deadline)
        found = _format.decode(fetched.raw)
        if found is not None and found.tags:
            tags = list(found.tags)
            versions = yield from self._remote.versions(tags, deadline)
            if versions != [found.tags[tag] for tag in tags]:
                # A tag was invalidated after the value was written.
                found = None
        return fetched, found

    def _left(self, ttl: Union[int, None], began: int) -> int:
        """The milliseconds for which the near cache may keep a value."""
        if ttl is None:
            return self._near_age
        return min(self._near_age, ttl - (now() - began) // 1_000_000 - 1)

    def _keep(self, load: Load, entry: Near, milliseconds: int, tags: Iterable[bytes]) -> None:
        """Stores an entry in the near cache, unless its key was invalidated or an epoch has begun
        since the load began."""
        if milliseconds > 0:
            load.succeeded(Loaded(entry.encode(), milliseconds / 1000, tuple(tags)))

    def _without(
        self,
        key: Key,
        load: Load,
        loader: Callable[[], Any] | None,
        how: Storing | None,
        stale: bool,
        error: RemoteError,
    ) -> Steps[Result]:
        """The result without the remote."""
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
        assert how is not None
        value, missing, raw, _ = yield from self._ask(load, loader, {})
        self._keep_alone(load, began, raw, how.tags)
        return Result(value, "loaded", missing=missing, error=error)

    def _keep_alone(self, load: Load, began: int, raw: bytes, tags: list[bytes]) -> None:
        """Keeps a loaded value that the remote does not have: for the bound, unless this machine
        invalidates it or hears that another does."""
        self._keep(load, Near(ALONE, began, raw), self._near_age, tags)

    def _ask(self, load: Load, loader: Callable[[], Any], tags: _format.Tags) -> Steps[_Answer]:
        """The loader's answer. All callers of the machine that wait get its exception."""
        load.extend(LEASE)
        try:
            answer = self._result_of((yield Ask(loader)), tags)
        except Exception as error:
            load.failed(error)
            raise
        finally:
            # The remote follows, for which no other waits long.
            load.extend(self._load_policy.lease)
        self.counts.loaded += 1
        return answer

    def _load_new(
        self,
        load: Load,
        key: bytes,
        found: Fetched,
        loader: Callable[[], Any],
        how: Storing,
        deadline: float,
    ) -> Steps[Result]:
        """Loads a value that the remote does not have, and stores it there unless another writer
        has stored one meanwhile. deadline: of the call, without the time of its loader."""
        began = now()
        marker = _format.loading(self._near.machine)
        stores = None
        left = deadline - time.monotonic()
        try:
            tags, stores, error = yield from self._begin_load(
                key, marker, found, how.tags, deadline
            )
            left = deadline - time.monotonic()
            value, missing, raw, own_age = yield from self._ask(load, loader, tags)
            age = how.missing_age if missing else how.max_age
            age = age if own_age is None else own_age
            stored = False
            if stores:
                deadline = time.monotonic() + left
                stored, error = yield from self._end_load(key, marker, raw, age, deadline)
        except GeneratorExit:
            raise
        except BaseException:
            if stores is not False:
                yield from self._cancel_load(key, marker, time.monotonic() + left)
            raise
        if stored:
            self._keep(load, Near(READ, began, raw), self._left(age, began), how.tags)
            if not self._near.has_value(key):
                # Another call has read meanwhile that there is none.
                self._near.removed([key])
        elif not stores and error is None:
            # Another machine is loading it. A change of the key or of a tag is announced.
            left = min(self._left(age, began), self._left(found.ttl, began))
            self._keep(load, Near(READ, began, raw), left, how.tags)
        if error is not None:
            self._refused(error)
            self._keep_alone(load, began, raw, how.tags)
        return Result(value, "loaded", missing=missing, error=error)

    def _begin_load(
        self, key: bytes, marker: bytes, found: Fetched, tags: list[bytes], deadline: float
    ) -> Steps[tuple[_format.Tags, bool, Union[RemoteError, None]]]:
        """The tags' versions before the load, and whether the value will be stored: not if another
        machine is loading it, or because of the error."""
        try:
            versions = yield from self._remote.make_versions(tags, deadline)
            stores = yield from self._remote.begin_load(key, marker, found, deadline)
            return versions, stores, None
        except RemoteError as error:
            return {}, False, error

    def _cancel_load(self, key: bytes, marker: bytes, deadline: float) -> Steps[None]:
        """Lets other machines load it."""
        with suppress(RemoteError):
            yield from self._remote.cancel_load(key, marker, deadline)

    def _end_load(
        self, key: bytes, marker: bytes, raw: bytes, age: Union[int, None], deadline: float
    ) -> Steps[tuple[bool, Union[RemoteError, None]]]:
        try:
            stored = yield from self._remote.end_load(key, marker, raw, age, deadline)
            self._causes.end("loads")
            return stored, None
        except RemoteError as error:
            # The remote may have stored it all the same, which is correct.
            return False, error

    def _refused(self, error: RemoteError) -> None:
        self._causes.begin("loads", error, "the remote does not store loaded values")
        self.counts.refused += 1

    def _result_of(self, answer: Any, tags: _format.Tags) -> _Answer:
        if isinstance(answer, Missing):
            if answer.tags:
                raise InvalidError(_TAGS_OF_LOADER)
            return _Answer(
                None, True, _format.encode_missing(tags), _life("max_age", answer.max_age)
            )
        own = None
        if isinstance(answer, Loaded):
            if answer.tags or answer.meta:
                raise InvalidError(_TAGS_OF_LOADER)
            own = _life("max_age", answer.max_age)
            answer = answer.value
        return _Answer(answer, False, _format.encode(self._codec, answer, tags), own)

    # Writing

    def _set(self, key: bytes, value: Any, how: Storing) -> Steps[None]:
        self._begin()
        began = now()
        deadline = time.monotonic() + self._timeout
        raw = _format.encode(self._codec, value, {})  # raises TypeError before anything changes
        journal, name, taken = self._near.journal, b"k" + key, None
        sent = False
        try:
            deadline = yield from self._after_interrupted(name, deadline)
            tags = yield from self._remote.make_versions(how.tags, deadline)
            raw = _format.encode(self._codec, value, tags) if tags else raw
            # A process that removes the keys in the journal late finds this key no longer there.
            taken = journal.take(name, now())
            sent = True
            yield from self._remote.store(key, raw, how.max_age, deadline)
        except RefusedError:
            # Nothing was executed.
            journal.put_back(name, taken)
            raise
        except BaseException as error:
            self._near.removed([key])
            # The write that was noted before may have failed after this one began.
            when = began if taken is None else now()
            if sent and not isinstance(error, RemoteError):
                # After Ctrl-C, or if the coroutine is cancelled: it may be executed until then.
                when = now() + max(0, int((deadline - time.monotonic()) * 1e9))
            journal.note(name, when, raw)
            raise
        # A load that began before stores nothing.
        self._near.removed([key])

    def _after_interrupted(self, name: bytes, deadline: float) -> Steps[float]:
        """Waits while an interrupted set of the key may still be executed: it would replace a newer
        value. Returns the deadline of the call, with at least half of its time left."""
        waits = False
        while True:
            pending = self._near.journal.pending_write(name, now())
            current = time.monotonic()
            if not pending:
                return max(deadline, current + self._timeout / 2) if waits else deadline
            if current >= deadline:
                raise RemoteError("the remote may still execute an interrupted set of the key")
            waits = True
            yield Sleep(min(pending / 1e9, deadline - current))

    def _remove(self, key: bytes) -> Steps[bool]:
        self._begin()
        began = now()
        name, deadline = b"k" + key, time.monotonic() + self._timeout
        try:
            deadline = yield from self._after_interrupted(name, deadline)
            removed = yield from self._remote.remove(key, deadline)
            return bool(removed)
        except BaseException:
            self._near.journal.note(name, began)
            raise
        finally:
            self._near.removed([key])

    def _invalidate(self, tag: bytes) -> Steps[None]:
        self._begin()
        began = now()
        try:
            yield from self._remote.invalidate(tag, time.monotonic() + self._timeout)
        except BaseException:
            self._near.journal.note(b"t" + tag, began)
            raise
        finally:
            self._cache.invalidate(tag)


_TAGS_OF_LOADER: Final = (
    "a tier's loader returns no tags and no meta: give tags= to the call, as the versions of the "
    "tags are read before the loader runs"
)
