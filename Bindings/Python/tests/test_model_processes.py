"""Two processes on one cache have the results of one dict, and one of them may be killed."""

from __future__ import annotations

import random
import shutil
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from progress import CHANGES, LOADS, Share, check_progress
from support import examples, look, tolerated
from test_model import MOST_REFUSED, CacheMachine, ages, keys, some_keys, values
from worker import Worker, spin

import shale

some_tags = st.sets(st.sampled_from(["news", b"sport", "weather", "tags" * 100]), max_size=4)
sizes = st.sampled_from([10_000, 40_000, 300_000, 1_500_000])


class _There:
    """The cache of the worker, with the methods of a cache."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self._worker.call(name, *arguments, **named)

    def __contains__(self, key: Any) -> bool:
        found: bool = self._worker.call("__contains__", key)
        return found

    def __len__(self) -> int:
        length: int = self._worker.call("__len__")
        return length


class ProcessesMachine(CacheMachine):
    """Makes each call of `cache` in this process or in the worker, as `turns` says."""

    def __init__(self) -> None:
        self.turns = random.Random(0)
        self.here: Any = None
        super().__init__()
        self.worker = Worker(self.directory, self.clock)
        self.there = _There(self.worker)
        self.bursts = 0

    @property
    def cache(self) -> Any:
        return self.turns.choice((self.here, self.there))

    @cache.setter
    def cache(self, opened: shale.Cache) -> None:
        self.here = opened

    @initialize(seed=st.integers(0, 1 << 30))
    def take_turns(self, seed: int) -> None:
        self.turns = random.Random(seed)

    def teardown(self) -> None:
        self.worker.close()
        check_progress(self.here, refused=self.refused)
        self.turns = random.Random(0)
        self.here.close()
        shutil.rmtree(self.directory)

    @rule(key=keys, value=values, tags=some_tags, pinned=st.booleans(), max_age=ages, stale=ages)
    def set_with_all(
        self, key: Any, value: Any, tags: set[Any], pinned: bool, max_age: Any, stale: Any
    ) -> None:
        self.cache.set(key, value, tags=list(tags), pinned=pinned, max_age=max_age, stale=stale)
        self.store(key, value, max_age, stale, *tags)
        self.model[key].pinned = pinned

    @rule(size=sizes, max_age=ages)
    def set_large(self, size: int, max_age: Any) -> None:
        value = random.Random(size).randbytes(size)
        self.cache.set("large", value, max_age=max_age)
        self.store("large", value, max_age, None)

    @rule()
    def get_large(self) -> None:
        self.get("large")

    @rule(keys=some_keys)
    def remove_many(self, keys: list[Any]) -> None:
        known = sum(self.kept(key) is not None for key in set(keys))
        assert self.cache.remove_many(keys) == known
        for key in keys:
            self.model.pop(key, None)

    @rule(count=st.integers(0, 3))
    def evict(self, count: int) -> None:
        self.evicted(count)

    def evicted(self, count: int) -> int:
        before = {key: known for key in self.model if (known := self.kept(key))}
        evicted: int = self.cache.evict(count)
        self.model = {key: before[key] for key in self.cache.keys(stale=True)}
        # The model does not know which entries: a dict has no order of use (design.md,
        # "Eviction", has).
        lost = [known for key, known in before.items() if key not in self.model]
        look()
        # Expired entries may still count: limits.md, "Order, counts and eviction".
        assert len(lost) == evicted <= count or (
            len(lost) < evicted <= count and tolerated("evicted, as had expired before")
        )
        assert not any(known.pinned for known in lost)
        return evicted

    @property
    def loads_from(self) -> Any:
        return self.here

    @rule()
    def reopen(self) -> None:
        self.loading.clear()
        self.here.close()
        self.here = shale.Cache(self.directory, now=self.clock)

    @rule()
    def reopen_there(self) -> None:
        self.worker.close()

    @rule()
    def kill(self) -> None:
        self.worker.kill()
        self.go_on()

    def go_on(self) -> None:
        """After a kill. The model evicts, as it has to know which entries."""
        check_progress(self.here, (*CHANGES, *LOADS), refused=self.refused)
        self.here.set("progress", b"x")
        self.store("progress", b"x", None, None)
        assert self.evicted(1) == 1

    @rule(
        keys=st.lists(keys | st.just("large"), min_size=1, max_size=6, unique=True),
        size=sizes | st.integers(0, 200),
        seconds=st.floats(0, 0.003),
    )
    def kill_in_a_burst(self, keys: list[Any], size: int, seconds: float) -> None:
        """Each key has its old or its new value: recovery.md, "A process is killed". Nothing else
        may differ; `kill` happens between calls and allows no such choice."""
        self.bursts += 1
        value = f"burst {self.bursts} " + "b" * (size if keys == ["large"] else min(size, 10_000))
        self.worker.begin("set_many", [(key, value) for key in keys])
        spin(seconds)
        self.worker.kill()
        for key in keys:
            entry = self.here.entry(key, stale=True)
            look()
            if entry is not None and entry.value == value and tolerated("set by who was killed"):
                self.store(key, value, None, None)
            else:
                self.entry(key)
        self.go_on()


ProcessesMachine.refused = Share("loads of unchanged keys refused, two processes", MOST_REFUSED)
TestProcesses = ProcessesMachine.TestCase
TestProcesses.settings = examples(25)


def test_the_share_of_refused_loads() -> None:
    ProcessesMachine.refused.check()
