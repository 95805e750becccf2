"""``Deque`` and ``Index`` of diskcache, on Shale."""

from __future__ import annotations

import contextlib
import operator
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Callable

from ._cache import Cache
from ._disk import ENOVAL


class Deque(Sequence[Any]):
    """A double-ended queue on disk, with the interface of ``diskcache.Deque``.

    Its items are never evicted: if there is no room, ``FullError`` is raised. Calls on its ends
    cost the same at any length; indexing and iteration cost as much as walking the whole.
    """

    def __init__(
        self, iterable: Iterable[Any] = (), directory: Any = None, maxlen: float | None = None
    ) -> None:
        """Opens it, and adds the items of ``iterable``. directory: as of ``Cache``. maxlen: above
        it, items at the other end are removed."""
        self._begin(Cache(directory, eviction_policy="none"), iterable, maxlen)

    @classmethod
    def fromcache(
        cls, cache: Cache, iterable: Iterable[Any] = (), maxlen: float | None = None
    ) -> Deque:
        """A deque in a whole cache, which should have ``eviction_policy="none"``."""
        self = cls.__new__(cls)
        self._begin(cache, iterable, maxlen)
        return self

    def _begin(self, cache: Cache, iterable: Iterable[Any], maxlen: float | None) -> None:
        self._cache = cache
        self._maxlen = float("inf") if maxlen is None else maxlen
        Deque.extend(self, iterable)

    @property
    def cache(self) -> Cache:
        """The cache that stores it."""
        return self._cache

    @property
    def directory(self) -> str:
        """The path of its directory."""
        return self._cache.directory

    @property
    def maxlen(self) -> float:
        """The longest length. Setting it removes items at the left that exceed it."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, value: float) -> None:
        self._maxlen = value
        with self.transact():
            while len(self._cache) > value:
                Deque.popleft(self)

    # Items by their position

    def _at(self, index: int, use: Callable[[Any], Any]) -> Any:
        """``use`` of the key at this position, or of the next if it was removed (KeyError)."""
        length = len(self)
        if not -length <= index < length:
            raise IndexError("deque index out of range")
        reverse = index < 0
        skip = -index - 1 if reverse else index
        for number, key in enumerate(self._cache.iterkeys(reverse=reverse)):
            if number >= skip:
                try:
                    return use(key)
                except KeyError:
                    continue
        raise IndexError("deque index out of range")

    def __getitem__(self, index: Any) -> Any:
        return self._at(index, self._cache.__getitem__)

    def __setitem__(self, index: int, value: Any) -> None:
        self._at(index, lambda key: self._cache.__setitem__(key, value))

    def __delitem__(self, index: int) -> None:
        self._at(index, self._cache.__delitem__)

    def _items(self, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        cache = self._cache
        for key in cache.iterkeys(reverse=reverse):
            try:
                yield key, cache[key]
            except KeyError:
                continue

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._items())

    def __reversed__(self) -> Iterator[Any]:
        return (value for _, value in self._items(reverse=True))

    def __len__(self) -> int:
        return len(self._cache)

    # Comparison, as of tuples

    def _compare(self, other: object, compare: Callable[[Any, Any], bool]) -> Any:
        if not isinstance(other, Sequence):
            return NotImplemented
        return compare(tuple(self), tuple(other))

    def __eq__(self, other: object) -> Any:
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, operator.ne)

    def __lt__(self, other: object) -> Any:
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compare(other, operator.le)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, operator.ge)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(directory={self.directory!r})"

    def __getstate__(self) -> Any:
        return self.directory, self.maxlen, type(self._cache.disk)

    def __setstate__(self, state: Any) -> None:
        directory, maxlen, disk = state
        self._begin(Cache(directory, disk=disk, eviction_policy="none"), (), maxlen)

    # The ends

    def append(self, value: Any) -> None:
        """Adds at the right."""
        with self.transact():
            self._cache.push(value, retry=True)
            if len(self._cache) > self._maxlen:
                Deque.popleft(self)

    def appendleft(self, value: Any) -> None:
        """Adds at the left."""
        with self.transact():
            self._cache.push(value, side="front", retry=True)
            if len(self._cache) > self._maxlen:
                Deque.pop(self)

    def extend(self, iterable: Iterable[Any]) -> None:
        """Adds each at the right."""
        for value in iterable:
            self.append(value)

    def extendleft(self, iterable: Iterable[Any]) -> None:
        """Adds each at the left, which reverses their order."""
        for value in iterable:
            self.appendleft(value)

    def __iadd__(self, iterable: Iterable[Any]) -> Deque:
        self.extend(iterable)
        return self

    def pop(self) -> Any:
        """Removes and returns the last item. IndexError if there is none."""
        return self._end("pull", "back", "pop")

    def popleft(self) -> Any:
        """Removes and returns the first item. IndexError if there is none."""
        return self._end("pull", "front", "pop")

    def peek(self) -> Any:
        """The last item. IndexError if there is none."""
        return self._end("peek", "back", "peek")

    def peekleft(self) -> Any:
        """The first item. IndexError if there is none."""
        return self._end("peek", "front", "peek")

    def _end(self, method: str, side: str, verb: str) -> Any:
        call = getattr(self._cache, method)
        _, value = call(default=(None, ENOVAL), side=side, retry=True)
        if value is ENOVAL:
            raise IndexError(f"{verb} from an empty deque")
        return value

    # The whole

    def clear(self) -> None:
        """Removes all items."""
        self._cache.clear(retry=True)

    def copy(self) -> Deque:
        """Another object for the same directory."""
        copied = type(self).__new__(type(self))
        copied.__setstate__(self.__getstate__())
        return copied

    def count(self, value: Any) -> int:
        """The number of items that equal the value."""
        return sum(each == value for each in self)

    def remove(self, value: Any) -> None:
        """Removes the first item that equals the value. ValueError if there is none."""
        for key, each in self._items():
            if each == value and self._cache_delete(key):
                return
        raise ValueError("deque.remove(value): value not in deque")

    def _cache_delete(self, key: Any) -> bool:
        try:
            del self._cache[key]
        except KeyError:
            return False
        return True

    def reverse(self) -> None:
        """Reverses it in place; all items are in memory meanwhile."""
        with self.transact():
            values = list(reversed(self))
            self.clear()
            self.extend(values)

    def rotate(self, steps: int = 1) -> None:
        """Moves items from the right to the left; if negative, from the left to the right."""
        if not isinstance(steps, int):
            raise TypeError(f"steps is an int, not {type(steps).__name__}")
        length = len(self)
        if not length:
            return
        take, give = (self.pop, self.appendleft) if steps >= 0 else (self.popleft, self.append)
        for _ in range(abs(steps) % length):
            try:
                value = take()
            except IndexError:
                return
            give(value)

    @contextlib.contextmanager
    def transact(self) -> Iterator[None]:
        """``Cache.transact``; waits without a limit."""
        with self._cache.transact(retry=True):
            yield


class Index(MutableMapping[Any, Any]):
    """A mapping on disk in the order of insertion, with the interface of ``diskcache.Index``.

    Its items are never evicted: if there is no room, ``FullError`` is raised.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Opens it. The first argument may be its directory, or None for a new one; the others are
        those of ``dict``, whose items are stored."""
        directory = None
        if args and (args[0] is None or isinstance(args[0], (str, bytes))):
            directory, *rest = args
            args = tuple(rest)
        self._cache = Cache(directory, eviction_policy="none")
        MutableMapping.update(self, *args, **kwargs)

    @classmethod
    def fromcache(cls, cache: Cache, *args: Any, **kwargs: Any) -> Index:
        """An index in a whole cache, which should have ``eviction_policy="none"``."""
        self = cls.__new__(cls)
        self._cache = cache
        MutableMapping.update(self, *args, **kwargs)
        return self

    @property
    def cache(self) -> Cache:
        """The cache that stores it."""
        return self._cache

    @property
    def directory(self) -> str:
        """The path of its directory."""
        return self._cache.directory

    def __getitem__(self, key: Any) -> Any:
        return self._cache[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cache[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._cache[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cache)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._cache)

    def __len__(self) -> int:
        return len(self._cache)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value, or ``default``, which it then stores. Atomic."""
        while True:
            value = self._cache.get(key, ENOVAL)
            if value is not ENOVAL:
                return value
            self._cache.add(key, default, retry=True)

    def peekitem(self, last: bool = True) -> tuple[Any, Any]:
        """The last (key, value), or the first. Walks all keys. KeyError if there is none."""
        key, value = self._cache.peekitem(last, retry=True)
        return key, value

    def pop(self, key: Any, default: Any = ENOVAL) -> Any:
        """Removes an item and returns its value, or ``default``. KeyError if there is neither."""
        value = self._cache.pop(key, default=default, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        """Removes and returns the last (key, value), or the first. Walks all keys. KeyError if
        there is none."""
        with self.transact():
            key, value = self.peekitem(last)
            del self._cache[key]
        return key, value

    def push(self, value: Any, prefix: str | None = None, side: str = "back") -> Any:
        """``Cache.push``; waits without a limit."""
        return self._cache.push(value, prefix, side, retry=True)

    def pull(
        self, prefix: str | None = None, default: Any = (None, None), side: str = "front"
    ) -> Any:
        """``Cache.pull``; waits without a limit."""
        return self._cache.pull(prefix, default, side, retry=True)

    def clear(self) -> None:
        """Removes all items."""
        self._cache.clear(retry=True)

    def __getstate__(self) -> Any:
        return self.directory, type(self._cache.disk)

    def __setstate__(self, state: Any) -> None:
        directory, disk = state
        self._cache = Cache(directory, disk=disk, eviction_policy="none")

    def __eq__(self, other: object) -> bool:
        """Whether it has the items of another mapping, in the same order if that is ordered."""
        if not isinstance(other, (MutableMapping, dict)):
            return NotImplemented
        if isinstance(other, (Index, OrderedDict)):
            return list(self.items()) == list(other.items())
        return dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def memoize(
        self, name: str | None = None, typed: bool = False, ignore: Container[Any] = ()
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """``Cache.memoize``."""
        return self._cache.memoize(name, typed, ignore=ignore)

    @contextlib.contextmanager
    def transact(self) -> Iterator[None]:
        """``Cache.transact``; waits without a limit."""
        with self._cache.transact(retry=True):
            yield

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory!r})"
