"""``Cache.lease``: the right to load a key, for programs that load in another way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loaders import STORED, is_free, never
from support import SMALL, Clock, run_child

import shale
from shale._loading.manual import Lease
from shale._store import leases


def test_one_at_a_time_has_it(cache: shale.Cache) -> None:
    with cache.lease("k") as first:
        assert first.granted
        assert first.token
        assert first.entry is None
        assert not first.missing
        with cache.lease("k") as second:
            assert not second.granted
            assert second.token == 0
            assert second.entry is None
            assert not second.renew()
            assert not second.release()
        assert first.renew()
        assert first.set("loaded", tag="tag", meta=b"etag")
    assert not first.renew()
    assert not first.release()
    with cache.lease("k") as third:
        assert not third.granted
        assert third.entry is not None
        assert (third.entry.value, third.entry.meta) == ("loaded", b"etag")
    cache.invalidate("tag")
    assert "k" not in cache


def test_another_process_has_it_not_meanwhile(cache: shale.Cache, directory: Path) -> None:
    script = """
        import sys, shale
        with shale.Cache(sys.argv[1]) as cache:
            print(cache.lease("k").granted)
    """
    with cache.lease("k") as lease:
        assert run_child(script, directory) == "False\n"
        assert lease.renew()
    assert run_child(script, directory) == "True\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: cache.set("k", "newer"),
        lambda cache: cache.remove("k"),
        lambda cache: cache.invalidate("tag"),
        lambda cache: cache.clear(),
        lambda cache: cache.expire("k"),
    ],
)
def test_what_may_be_older_than_a_change_is_not_stored(cache: shale.Cache, change: Any) -> None:
    told: list[Any] = []
    cache.on("conflict", told.append)
    with cache.lease("k") as lease:
        change(cache)
        before = cache.get("k")
        assert not lease.set("old truth", tag="tag")
        assert cache.get("k") == before
    assert [event.key for event in told] == ["k"]
    assert cache.stats().own.conflicts == 1


def test_a_stale_value_is_given_beside_it(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "old", max_age=10, stale=100)
    assert not aging.lease("k").granted
    clock.advance(10)
    with aging.lease("k") as lease:
        assert lease.granted
        assert lease.entry is not None
        assert (lease.entry.value, lease.entry.stale) == ("old", True)
        other = aging.lease("k")
        assert not other.granted
        assert other.entry == lease.entry
        assert aging.lease("k", stale=False).entry is None
        # It was not modified.
        assert lease.touch(max_age=50)
    entry = aging.entry("k")
    assert entry is not None
    assert (entry.value, entry.ttl) == ("old", 50)


def test_a_touch_has_the_same_condition(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "old", max_age=10, stale=100)
    clock.advance(10)
    with aging.lease("k") as lease:
        aging.set("k", "new", max_age=5)
        assert not lease.touch(max_age=50)
    entry = aging.entry("k")
    assert entry is not None
    assert (entry.value, entry.ttl) == ("new", 5)


def test_a_fresh_value_may_be_loaded_ahead(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "good", max_age=1000)
    clock.advance(999.999)
    while True:
        # With a mean of a million times the time left, nearly every caller draws more.
        with aging.lease("k", refresh_ahead=1000) as lease:
            assert lease.entry is not None
            assert not lease.entry.stale
            if lease.granted:
                assert lease.set("better", max_age=1000)
                break
    assert aging["k"] == "better"


def test_one_that_was_lost_still_fences(cache: shale.Cache) -> None:
    lease = cache.lease("k")
    cache._pool.run(leases._release, STORED, lease.token)
    assert not lease.renew()
    assert lease.set("value")
    assert cache["k"] == "value"


def test_what_is_not_granted_stores_nothing(cache: shale.Cache) -> None:
    cache["k"] = 1
    lease = cache.lease("k")
    calls: list[Callable[[], object]] = [lambda: lease.set(2), lambda: lease.touch(5)]
    for call in calls:
        with pytest.raises(shale.InvalidError, match="no lease of 'k'"):
            call()
    assert repr(lease) == "<shale.Lease of 'k', not granted>"
    assert repr(cache.lease("other")) == "<shale.Lease of 'other', granted>"


def test_what_is_known_to_be_missing(aging: shale.Cache, clock: Clock) -> None:
    aging.get_or_load("k", lambda: shale.Missing(max_age=10))
    lease = aging.lease("k")
    assert (lease.granted, lease.entry, lease.missing) == (False, None, True)
    clock.advance(10)
    lease = aging.lease("k")
    assert (lease.granted, lease.entry, lease.missing) == (True, None, False)


@pytest.mark.parametrize("ahead", [0, 2**40])
def test_what_cannot_be_read_is_to_be_loaded(directory: Path, ahead: float) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as pickling:
        pickling.set("k", 1j, max_age=1000)
    with shale.Cache(directory) as cache, cache.lease("k", refresh_ahead=ahead) as lease:
        assert (lease.granted, lease.entry, lease.missing) == (True, None, False)
        assert lease.set("readable")
        assert cache["k"] == "readable"


def test_listeners_hear_of_the_look(aging: shale.Cache, clock: Clock) -> None:
    told: list[Any] = []
    for name in ("hit", "stale", "miss", "set"):
        aging.on(name, lambda event: told.append((event.name, event.reason)))
    with aging.lease("k") as lease:
        lease.set(1, max_age=10, stale=10)
    aging.lease("k")
    clock.advance(10)
    aging.lease("k").release()
    clock.advance(10)
    aging.lease("k").release()
    assert told == [
        ("miss", "absent"), ("set", None), ("hit", None), ("stale", None), ("miss", "expired"),
    ]  # fmt: skip
    aging.get_or_load("none", shale.Missing)
    told.clear()
    aging.lease("none")
    assert told == [("miss", "missing")]


def test_in_a_namespace_and_for_coroutines(aging: shale.Cache) -> None:
    users = aging.namespace("users", max_age=20)
    with users.lease(7) as lease:
        assert aging.lease(7).granted
        assert not aging.lease(("users", 7)).granted
        assert lease.set("Ada")
    entry = users.entry(7)
    assert entry is not None
    assert entry.ttl == 20
    users.clear()
    assert len(aging) == 0

    async def main() -> None:
        with await shale.AsyncCache(aging).lease("a") as lease:
            assert lease.set(await asyncio.sleep(0, "awaited"))

    asyncio.run(main())
    assert aging["a"] == "awaited"


def test_it_keeps_loaders_away(cache: shale.Cache) -> None:
    cache.set("k", "old", max_age=0, stale=600)
    with cache.lease("k"):
        assert cache.get_or_load("k", never) == "old"


def test_its_options(cache: shale.Cache, directory: Path) -> None:
    wrongs: list[dict[str, Any]] = [{"lease": 0}, {"lease": 3601}, {"refresh_ahead": -1}]
    for wrong in wrongs:
        with pytest.raises(shale.InvalidError):
            cache.lease("k", **wrong)
    assert is_free(cache)
    assert isinstance(cache.lease("k"), Lease)
    with (
        shale.Cache(directory, read_only=True) as reader,
        pytest.raises(shale.PermissionDeniedError),
    ):
        reader.lease("other")
