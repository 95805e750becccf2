"""Any order of calls has the same results on a cache as on a dict with ages and tags."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from progress import Share, check_progress
from support import SMALL, Clock, examples, look

import shale

keys = st.sampled_from(["a", b"a", 1, ("a", 1), "b", b"b", 2, (), ""])
values = st.sampled_from([b"", b"raw", "text", 5, -1, None, 1.5, [1, "x"], (1, b"2"), "x" * 3000])
ages = st.sampled_from([None, 0, 0.5, 1, 10, 60, shale.NEVER])
tags = st.sampled_from([None, "news", b"sport"])
some_keys = st.lists(keys, max_size=6)


@dataclass
class Known:
    value: Any
    fresh_until: float
    kept_until: float
    stale: float
    tags: frozenset[str | bytes]
    pinned: bool = False


MOST_REFUSED = 0.05
"""None is refused, unless more keys change during a load than the cache records, on a busy
machine."""


@dataclass
class Loading:
    key: Any
    lease: Any
    cleared: int


def made_of(old: Any) -> Any:
    return ("made of", old)


class CacheMachine(RuleBasedStateMachine):
    refused: ClassVar[Share]

    def __init__(self) -> None:
        super().__init__()
        self.loading: list[Loading] = []
        self.loads = self.clears = 0
        self.directory = tempfile.mkdtemp()
        self.clock = Clock()
        self.open()
        self.model: dict[Any, Known] = {}
        # The versions that each key has had.
        self.versions: dict[Any, int] = {}

    def open(self) -> None:
        self.whole = shale.Cache(self.directory, capacity=SMALL, now=self.clock)
        self.cache = self.whole

    def teardown(self) -> None:
        check_progress(self.whole, refused=self.refused)
        self.whole.close()
        shutil.rmtree(self.directory)

    def fresh(self, key: Any) -> Known | None:
        known = self.model.get(key)
        return known if known and self.clock() < known.fresh_until else None

    def kept(self, key: Any) -> Known | None:
        known = self.model.get(key)
        return known if known and self.clock() < known.kept_until else None

    def store(self, key: Any, value: Any, max_age: Any, stale: Any, *named: Any) -> None:
        fresh_until = self.clock() + (math.inf if max_age is None else max_age)
        stale = stale or 0
        self.model[key] = Known(value, fresh_until, fresh_until + stale, stale, frozenset(named))

    @rule(key=keys, value=values, max_age=ages, stale=ages, tag=tags)
    def set(self, key: Any, value: Any, max_age: Any, stale: Any, tag: Any) -> None:
        self.cache.set(key, value, max_age=max_age, stale=stale, tag=tag)
        self.store(key, value, max_age, stale, tag)

    @rule(key=keys, value=values, max_age=ages, tag=tags)
    def add(self, key: Any, value: Any, max_age: Any, tag: Any) -> None:
        added = self.cache.add(key, value, max_age=max_age, tag=tag)
        assert added == (self.fresh(key) is None)
        if added:
            self.store(key, value, max_age, None, tag)

    @rule(key=keys, value=values, max_age=ages, stale=ages, tag=tags)
    def set_if_present(self, key: Any, value: Any, max_age: Any, stale: Any, tag: Any) -> None:
        done = self.cache.set(key, value, max_age=max_age, stale=stale, tag=tag, if_present=True)
        assert done == (self.fresh(key) is not None)
        if done:
            self.store(key, value, max_age, stale, tag)

    @rule(key=keys, value=values, max_age=ages, stale=ages, removes=st.booleans())
    def if_version(self, key: Any, value: Any, max_age: Any, stale: Any, removes: bool) -> None:
        """The version of the current entry, and of one that was replaced or is dead."""
        entry = self.cache.entry(key, stale=True, peek=True)
        assert (entry is not None) == (self.kept(key) is not None)
        self.versions.setdefault(key, entry.version if entry else 1)
        for version in (self.versions[key], entry.version if entry else 1):
            holds = entry is not None and version == entry.version
            if removes:
                assert self.cache.remove(key, if_version=version) == holds
            else:
                options = {"max_age": max_age, "stale": stale, "if_version": version}
                assert self.cache.set(key, value, **options) == holds
            if holds:
                if removes:
                    del self.model[key]
                else:
                    self.store(key, value, max_age, stale)
                return

    @rule(key=keys, max_age=ages, stale=ages, tag=tags)
    def update(self, key: Any, max_age: Any, stale: Any, tag: Any) -> None:
        known = self.fresh(key)
        made = made_of(known.value if known else "none")
        options = {"max_age": max_age, "stale": stale, "tag": tag}
        assert self.cache.update(key, made_of, "none", **options) == made
        self.store(key, made, max_age, stale, tag)

    @rule(key=keys, delta=st.integers(-3, 3))
    def count_what_is_there(self, key: Any, delta: int) -> None:
        known = self.fresh(key)
        if known is None:
            assert self.cache.incr(key, delta, create=False) is None
        elif type(known.value) is int:
            known.value += delta
            assert self.cache.incr(key, delta, create=False) == known.value

    @rule(keys=some_keys, value=values, max_age=ages)
    def set_many(self, keys: list[Any], value: Any, max_age: Any) -> None:
        self.cache.set_many(dict.fromkeys(keys, value), max_age=max_age)
        for key in keys:
            self.store(key, value, max_age, None)

    @rule(key=keys, delta=st.integers(-3, 3), max_age=ages)
    def incr(self, key: Any, delta: int, max_age: Any) -> None:
        known = self.fresh(key)
        if known is not None and type(known.value) is not int:
            try:
                self.cache.incr(key, delta)
            except shale.InvalidError:
                return
            raise AssertionError("counted on something else")
        number = self.cache.incr(key, delta, initial=100, max_age=max_age)
        if known is None:
            assert number == 100 + delta
            if max_age != 0:
                self.store(key, number, max_age, None)
            else:
                self.model.pop(key, None)
        else:
            assert number == known.value + delta
            known.value = number

    @rule(key=keys)
    def get(self, key: Any) -> None:
        look()
        known, kept = self.fresh(key), self.kept(key)
        missing = "there is none"
        for peek in (False, True):
            found = self.cache.get(key, missing, peek=peek)
            assert found == (known.value if known else missing)
        assert self.cache.get(key, missing, stale=True) == (kept.value if kept else missing)
        assert (key in self.cache) == (known is not None)

    @rule(keys=some_keys)
    def get_many(self, keys: list[Any]) -> None:
        wanted = {key: known.value for key in keys if (known := self.fresh(key))}
        assert self.cache.get_many(keys) == wanted

    @rule(key=keys)
    def entry(self, key: Any) -> None:
        known = self.kept(key)
        entry = self.cache.entry(key, stale=True)
        if known is None:
            assert entry is None
        else:
            assert entry is not None
            assert entry.value == known.value
            assert entry.expires == known.fresh_until
            assert entry.stale == (self.clock() >= known.fresh_until)
            assert entry.ttl == max(0, known.fresh_until - self.clock())

    @rule(key=keys)
    def pop(self, key: Any) -> None:
        known = self.fresh(key)
        assert self.cache.pop(key, "none") == (known.value if known else "none")
        self.model.pop(key, None)

    @rule(key=keys)
    def remove(self, key: Any) -> None:
        assert self.cache.remove(key) == (self.kept(key) is not None)
        self.model.pop(key, None)

    @rule(key=keys, max_age=ages)
    def touch(self, key: Any, max_age: float | None) -> None:
        known = self.kept(key)
        assert self.cache.touch(key, max_age) == (known is not None)
        if known is not None:
            known.fresh_until = self.clock() + (math.inf if max_age is None else max_age)
            known.kept_until = known.fresh_until + known.stale

    @rule(tag=tags.filter(bool))
    def invalidate(self, tag: Any) -> None:
        self.cache.invalidate(tag)
        self.model = {key: known for key, known in self.model.items() if tag not in known.tags}

    @rule(seconds=st.sampled_from([0.25, 0.5, 1, 9.5, 60, 1000]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def purge(self) -> None:
        self.cache.purge()
        self.model = {key: self.model[key] for key in self.model if self.kept(key)}
        # Invalidated entries count until a sweep or the cleaner finds them: design.md, "Set".
        assert self.cache.stats().entries >= len(self.model)

    @rule()
    def begin_load(self) -> None:
        """Of a key that only a clear changes."""
        self.loads += 1
        key = ("load", self.loads)
        lease = self.loads_from.lease(key, lease=3600)
        assert lease.granted
        self.loading.append(Loading(key, lease, self.clears))

    @property
    def loads_from(self) -> Any:
        return self.cache

    @precondition(lambda self: self.loading)
    @rule(value=values, max_age=ages, chance=st.randoms(use_true_random=False))
    def end_load(self, value: Any, max_age: Any, chance: Any) -> None:
        load = self.loading.pop(chance.randrange(len(self.loading)))
        stored = load.lease.set(value, max_age=max_age, tag="of loads")
        load.lease.release()
        if load.cleared == self.clears:
            self.refused.count(not stored)
        else:
            assert not stored
        if stored:
            self.store(load.key, value, max_age, None, "of loads")

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.model.clear()
        self.clears += 1

    @rule()
    def reopen(self) -> None:
        self.loading.clear()
        self.whole.close()
        self.open()

    @rule()
    def verify(self) -> None:
        assert self.cache.verify().corrupt_records == 0

    @invariant()
    def iteration_gives_what_is_fresh(self) -> None:
        look()
        wanted = {key: known.value for key in self.model if (known := self.fresh(key))}
        assert dict(self.cache.items()) == wanted
        assert len(self.cache) == len(wanted)
        assert bool(self.cache) == bool(wanted)


CacheMachine.refused = Share("loads of unchanged keys refused, one process", MOST_REFUSED)


class NamespaceMachine(CacheMachine):
    """The same for a namespace, with the same keys in the cache and in another namespace."""

    BESIDE: ClassVar[dict[Any, Any]] = {"a": 1, 1: "x", ("a", 1): b"", "news": None}

    def __init__(self) -> None:
        super().__init__()
        for other in (self.whole, self.other):
            other.set_many(self.BESIDE)

    def open(self) -> None:
        super().open()
        self.cache = self.whole.namespace("part")
        self.other = self.whole.namespace("other")

    @invariant()
    def what_is_beside_it_stays(self) -> None:
        assert dict(self.other.items()) == self.BESIDE
        assert self.whole.get_many(self.BESIDE) == self.BESIDE


TestModel = CacheMachine.TestCase
TestModel.settings = examples(40)
TestNamespaceModel = NamespaceMachine.TestCase
TestNamespaceModel.settings = examples(20)


def test_the_share_of_refused_loads() -> None:
    CacheMachine.refused.check()
