"""The guarantees of one cache in one process."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import keys, value_shape, values
from support import SMALL

import shale


def test_the_example_of_the_readme(directory: Path) -> None:
    with shale.Cache(directory, capacity="8MiB", max_age=3600) as cache:
        cache["k"] = {"any": ["JSON-like", "value"]}
        assert cache.get("k", default=None) == {"any": ["JSON-like", "value"]}
        cache.set("k", b"bytes", max_age=60, tag="news")
        assert not cache.add("k", 1)
        assert cache.incr("n") == 1
        assert cache.touch("k", max_age=10)
        assert cache.pop("k") == b"bytes"
        cache.set_many({"a": 1, "b": 2}, tags=["news"])
        assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": 2}
        cache.invalidate("news")
        assert list(cache) == ["n"]


@given(key=keys, value=values)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(cache: shale.Cache, key: Any, value: Any) -> None:
    cache[key] = value
    assert value_shape(cache[key]) == value_shape(value)
    assert value_shape(cache.get_many([key])[key]) == value_shape(value)
    assert value_shape(cache.pop(key)) == value_shape(value)
    assert key not in cache


def test_a_miss_is_not_an_error(cache: shale.Cache) -> None:
    assert cache.get("none") is None
    assert cache.get("none", 3) == 3
    assert cache.pop("none") is None
    assert cache.pop("none", 3) == 3
    assert cache.entry("none") is None
    assert cache.get_many(["none"]) == {}
    assert "none" not in cache
    assert not cache.remove("none")
    assert not cache.touch("none")
    assert cache.remove_many(["none"]) == 0
    assert list(cache) == []


def test_a_miss_is_a_key_error_where_python_expects_one(cache: shale.Cache) -> None:
    with pytest.raises(KeyError) as raised:
        cache["none"]
    assert raised.value.args == ("none",)
    with pytest.raises(KeyError):
        del cache["none"]


def test_set_replaces_value_and_type(cache: shale.Cache) -> None:
    for value in (b"bytes", "text", 1, [1], None, b"bytes"):
        cache["k"] = value
        assert cache["k"] == value
        assert type(cache["k"]) is type(value)
    assert len(cache) == 1


def test_none_is_a_value(cache: shale.Cache) -> None:
    cache["k"] = None
    assert "k" in cache
    assert cache.get("k", 1) is None
    assert cache.pop("k", 1) is None


def test_remove(cache: shale.Cache) -> None:
    cache["k"] = 1
    assert cache.remove("k")
    assert not cache.remove("k")
    cache["k"] = 1
    del cache["k"]
    assert "k" not in cache


def test_add_stores_where_there_is_none(cache: shale.Cache) -> None:
    assert cache.add("k", 1)
    assert not cache.add("k", 2)
    assert cache["k"] == 1
    del cache["k"]
    assert cache.add("k", 3)
    assert cache["k"] == 3


def test_large_values(cache: shale.Cache) -> None:
    for size in (1 << 14, 1 << 17, (1 << 20) + 1, 1 << 20, 3):
        value = os.urandom(size)
        cache["large"] = value
        assert cache["large"] == value
        assert cache.get_many(["large", "none"]) == {"large": value}
        assert cache["large"] == value


def test_values_between_many_sizes_do_not_mix(cache: shale.Cache) -> None:
    stored = {size: os.urandom(size) for size in (0, 1, 7, 300, 5000, 1, 70000, 2)}
    cache.set_many(stored)
    for size in (70000, 0, 1, 5000, 300, 2, 7, 70000):
        assert cache[size] == stored[size]
        cache[("text", size)] = "x" * size
        assert cache[("text", size)] == "x" * size


def test_entry_says_what_is_known(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, now=lambda: 1_800_000_000.5) as cache:
        cache.set("k", "v", max_age=10, pinned=True)
        entry = cache.entry("k")
        assert entry is not None
        assert entry.value == "v"
        assert entry.created == 1_800_000_000.5
        assert entry.expires == 1_800_000_010.5
        assert entry.pinned
        assert not entry.stale
        assert entry.stored_size == 1
        assert entry.meta == b"\xffP1s"
        first = entry.version
        cache.set("k", b"v")
        entry = cache.entry("k")
        assert entry is not None
        assert entry.version != first
        assert entry.expires == shale.NEVER
        assert entry.meta == b""
        assert not entry.pinned


def test_large_entry_keeps_its_version_and_times(cache: shale.Cache) -> None:
    cache.set("k", bytes(1 << 21), max_age=100)
    entry = cache.entry("k")
    assert entry is not None
    assert len(entry.value) == 1 << 21
    assert entry.version > 0
    assert entry.expires - entry.created == pytest.approx(100)
    assert cache.pop("k") == bytes(1 << 21)


def test_contains_and_iteration_leave_the_counters_alone(cache: shale.Cache) -> None:
    cache["k"] = 1
    before = cache.stats()
    assert "k" in cache
    assert "none" not in cache
    list(cache)
    list(cache.items())
    after = cache.stats()
    assert (before.hits, before.misses) == (after.hits, after.misses)


def test_stats_count(cache: shale.Cache) -> None:
    cache["k"] = "x" * 1000
    cache.get("k")
    cache.get("none")
    cache.remove("k")
    stats = cache.stats()
    assert (stats.sets, stats.hits, stats.misses, stats.removes) == (1, 1, 1, 1)
    assert stats.hit_ratio == 0.5
    assert stats.entries == 0
    assert stats.capacity == 8 << 20
    assert stats.shards >= 1
    assert stats.compression_ratio >= 1.0


def test_volume_is_what_is_on_disk(cache: shale.Cache, directory: Path) -> None:
    for number in range(100):
        cache[number] = os.urandom(1000)
    on_disk = sum(each.stat().st_blocks * 512 for each in directory.iterdir())
    assert 100_000 < cache.volume() <= 8 << 20
    assert on_disk <= 8 << 20


def test_verify_reads_every_record(cache: shale.Cache) -> None:
    cache.set_many(dict.fromkeys(range(50), b"x" * 100))
    report = cache.verify()
    assert report.records >= 50
    assert report.bytes > 0
    assert report.corrupt_records == 0


def test_clear_evict_and_pins(cache: shale.Cache) -> None:
    for number in range(10):
        cache.set(number, number, pinned=number == 0)
    cache.get(1)
    assert cache.evict(3) == 3
    assert sorted(cache) == [0, 1, 5, 6, 7, 8, 9]
    assert cache.evict(100) == 6
    assert list(cache) == [0]
    cache.clear()
    assert len(cache) == 0


def test_max_entries_drops_the_least_recently_used(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, max_entries=3) as cache:
        cache["a"], cache["b"], cache["c"] = 1, 2, 3
        cache.get("a")
        cache["d"] = 4
        assert set(cache) == {"a", "c", "d"}
        assert cache.stats().max_entries == 3


def test_contents_outlive_the_handle(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        stored: dict[shale.Key, Any] = {"text": "é", 1: (1, b"2"), b"raw": b"\x00"}
        cache.set_many({**stored, ("a", 1): {"k": None}})
        cache.sync()
    with shale.Cache(directory) as cache:
        assert dict(cache.items()) == {"text": "é", 1: (1, b"2"), b"raw": b"\x00",
                                       ("a", 1): {"k": None}}  # fmt: skip
        assert cache.stats().capacity == 8 << 20


def test_two_handles_on_one_directory(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as one, shale.Cache(directory) as other:
        one["k"] = 1
        assert other["k"] == 1
        del other["k"]
        assert "k" not in one


def test_in_memory() -> None:
    with shale.Cache(None, capacity=SMALL) as one, shale.Cache(None, capacity=SMALL) as other:
        one["k"] = 1
        assert one["k"] == 1
        assert "k" not in other
        assert one.directory is None
        with pytest.raises(TypeError):
            pickle.dumps(one)


def test_read_only(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        cache["k"] = "v"
    with shale.Cache(directory, read_only=True) as cache:
        assert cache["k"] == "v"
        assert "k" in cache
        assert list(cache) == ["k"]
        assert len(cache) == 1
        with pytest.raises(shale.PermissionDeniedError):
            cache["k"] = 1
        with pytest.raises(shale.PermissionDeniedError):
            cache.incr("n")
        assert cache["k"] == "v"


def test_paths_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "p", str(tmp_path / "s"), os.fsencode(tmp_path / "b"), "relative",
                 tmp_path / "new" / "parents", tmp_path / "ünïcode \udcff"):  # fmt: skip
        with shale.Cache(path, capacity=SMALL) as cache:
            cache["k"] = 1
            assert cache.directory == os.path.abspath(os.fsdecode(path))
            assert os.path.isdir(path)


@pytest.mark.parametrize("path", ["~/c", b"~/c", Path("~/c"), "~"])
def test_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    with shale.Cache(path, capacity=SMALL) as cache:
        assert cache.directory == str(home / "c" if path != "~" else home)
    # Elsewhere in a path it is an ordinary name.
    with shale.Cache("./~", capacity=SMALL) as cache:
        assert cache.directory == str(here / "~")
    assert sorted(each.name for each in here.iterdir()) == ["~"]


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(shale.InvalidError):
        shale.Cache(path)


def test_a_directory_is_a_path() -> None:
    wrong: Any = 5
    with pytest.raises(TypeError):
        shale.Cache(wrong)


def test_options_are_checked(directory: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"capacity": "lots"}, {"capacity": 0}, {"capacity": 1000}, {"max_entries": 0},
        {"max_age": -1}, {"stale": -1}, {"shards": 0}, {"shards": 2**32}, {"mode": 0},
        {"segment_size": "8GiB"}, {"segment_size": 1000}, {"compression": "zstd"},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(shale.InvalidError):
            shale.Cache(directory, **options)
    with pytest.raises(TypeError):
        shale.Cache(directory, now=5)  # type: ignore[arg-type]


def test_address_space_can_be_saved(directory: Path) -> None:
    def mapped() -> int:
        lines = Path("/proc/self/maps").read_text().splitlines()
        ranges = [
            line.split("-") for line in (line.split()[0] for line in lines if "shale." in line)
        ]
        return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)

    for reserve, least, most in (("64MiB", 1, 1.7), ("160MiB", 2.5, 4.25), (None, 4, 6.8)):
        with shale.Cache(directory / str(reserve), capacity="64MiB", reserve_capacity=reserve):
            assert least * 0.9 <= mapped() / (64 << 20) <= most
    with pytest.raises(shale.InvalidError):
        shale.Cache(directory, reserve_capacity="lots")


def test_small_values_share_dictionaries(directory: Path) -> None:
    def stored(compression: str) -> tuple[int, int]:
        with shale.Cache(
            directory / compression, capacity="16MiB", compression=compression
        ) as cache:
            for i in range(20000):
                cache[i] = (
                    f'{{"id": {i * 7919}, "street": "{i % 97} Main Street", "city": "Somewhere"}}'
                )
            stats = cache.stats()
            return stats.stored_bytes, stats.dictionaries

    (shared, made), (alone, none) = stored("dictionary"), stored("lz4")
    assert made > 0 and none == 0
    assert shared < alone * 2 / 3


def test_compression_can_be_chosen(tmp_path: Path) -> None:
    for name in ("dictionary", "lz4", "none"):
        with shale.Cache(tmp_path / name, capacity=SMALL, compression=name) as cache:
            cache["k"] = "abc" * 1000
            entry = cache.entry("k")
            assert entry is not None
            assert entry.value == "abc" * 1000
            assert (entry.stored_size == 3000) == (name == "none")


def test_a_closed_cache_says_so(directory: Path) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    cache["k"] = 1
    iterator = iter(cache)
    next(iterator)
    cache.close()
    cache.close()
    assert cache.closed
    assert "closed" in repr(cache)
    calls: list[Any] = [
        lambda: cache.get("k"), lambda: cache.set("k", 1), lambda: cache["k"], lambda: len(cache),
        lambda: "k" in cache, lambda: list(cache), lambda: cache.get_many(["k"]),
        lambda: cache.set_many({"k": 1}), lambda: cache.incr("n"), lambda: cache.pop("k"),
        lambda: cache.remove("k"), lambda: cache.touch("k"), lambda: cache.clear(),
        lambda: cache.sync(), lambda: cache.verify(), lambda: cache.stats(), lambda: next(iterator),
        lambda: cache.entry("k"), lambda: cache.remove_many(["k"]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(shale.InvalidError, match="closed"):
            call()


def test_a_forgotten_cache_closes_itself(directory: Path) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    cache["k"] = 1
    del cache
    gc.collect()
    # Another capacity is refused while a writer has it open.
    with shale.Cache(directory, capacity="4MiB") as cache:
        assert cache.stats().capacity == 4 << 20


def test_failures_keep_the_old_value(cache: shale.Cache) -> None:
    cache["k"] = "old"
    with pytest.raises(TypeError):
        cache["k"] = object()
    with pytest.raises(shale.TooLargeError):
        cache["k"] = bytes(4 << 20)
    with pytest.raises(shale.InvalidError):
        cache.set("k", "new", max_age=-1)
    with pytest.raises(shale.InvalidError):
        cache.set("k", "new", tags=[str(number) for number in range(9)])
    assert cache["k"] == "old"


def test_bad_keys_are_refused_everywhere(cache: shale.Cache) -> None:
    bad: Any = 1.5
    calls: list[Any] = [
        lambda: cache.get(bad), lambda: cache.set(bad, 1), lambda: bad in cache,
        lambda: cache.pop(bad), lambda: cache.remove(bad), lambda: cache.incr(bad),
        lambda: cache.touch(bad), lambda: cache.get_many([bad]), lambda: cache.set_many({bad: 1}),
        lambda: cache.entry(bad), lambda: cache.remove_many([bad]), lambda: cache.add(bad, 1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match="a key is"):
            call()


def test_dense_compression_stores_less() -> None:
    sizes = {}
    for compression in ("dictionary", "dense"):
        with shale.Cache(None, capacity="16MiB", compression=compression) as cache:
            for i in range(4000):
                words = [f"{i * k % 97}-{k}" for k in range(60)]
                cache[i] = {"id": i, "words": words, "seen": [i % 7, i % 11]}
            assert all(cache[i]["id"] == i for i in range(4000))
            sizes[compression] = cache.stats().stored_bytes
    assert sizes["dense"] < 0.95 * sizes["dictionary"]
