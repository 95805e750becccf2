"""The interface of diskcache, beyond its own tests (Scripts/test-adapters runs those)."""

from __future__ import annotations

import ctypes
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from old_diskcache import make
from support import child_environment, run_child, start_child

import shale
from shale.__main__ import main
from shale._data.keys import encode_key
from shale._data.options import set_options
from shale._data.values import INT, join_meta
from shale.adapters.diskcache import (
    Cache,
    Deque,
    Disk,
    FanoutCache,
    Index,
    JSONDisk,
    PickleDisk,
    Timeout,
)

HOLD = """
    import sys
    from shale.adapters.diskcache import Cache
    cache = Cache(sys.argv[1])
    with cache.transact():
        cache["k"] = "of the transaction"
        print("held", flush=True)
        sys.stdin.readline()
"""


class Thing:
    """A type that Shale cannot store."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    def __hash__(self) -> int:
        return 1


@pytest.fixture
def cache(directory: Path) -> Iterator[Cache]:
    with Cache(directory, size_limit=32 << 20) as opened:
        yield opened


class TestPickle:
    def test_nothing_is_pickled_unless_asked_for(self, cache: Cache) -> None:
        with pytest.raises(TypeError, match="PickleDisk"):
            cache["k"] = Thing()
        with pytest.raises(TypeError, match="PickleDisk"):
            cache[Thing()] = 1
        assert len(cache) == 0

    def test_no_pickle_is_read_unless_asked_for(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Cache(directory, disk=PickleDisk) as pickling:
            pickling["k"] = Thing()
            pickling[(Thing(),)] = 1

        def refuse(*_arguments: Any) -> None:
            raise AssertionError("unpickled")

        with Cache(directory) as plain:
            monkeypatch.setattr(pickle, "loads", refuse)
            assert plain.get("k") is None
            monkeypatch.undo()
        with Cache(directory, disk=PickleDisk) as pickling:
            assert pickling["k"] == Thing()
            assert pickling[(Thing(),)] == 1
            assert (Thing(),) in list(pickling)


class TestKeys:
    @pytest.mark.parametrize(
        "key", ["k", b"k", 7, -1, 2**70, 1.5, None, True, ("a", 1.5, None), ["a"], {"a": {1}}, ()]
    )
    def test_every_key_comes_back(self, cache: Cache, key: Any) -> None:
        cache[key] = "value"
        assert cache[key] == "value"
        (found,) = cache
        assert (found, type(found)) == (key, type(key))

    def test_a_whole_float_is_the_int(self, cache: Cache) -> None:
        cache[1] = "one"
        assert cache[1.0] == "one"
        assert True not in cache

    def test_plain_keys_and_values_are_those_of_shale(self, cache: Cache, directory: Path) -> None:
        cache["k"] = {"a": (1,)}
        with shale.Cache(directory / "entries") as plain:
            assert plain["k"] == {"a": (1,)}

    def test_no_key_is_taken_for_the_form_of_another(self, cache: Cache) -> None:
        cache[1.5] = 1
        (form,) = shale_of(cache)
        cache[form] = 2
        assert (cache[1.5], cache[form], len(cache)) == (1, 2, 2)
        assert set(cache) == {1.5, form}


def shale_of(cache: Cache) -> shale.Cache[Any, Any]:
    return cache._shale()


class TestOrder:
    def test_a_set_leaves_the_place(self, cache: Cache) -> None:
        for key in "abc":
            cache[key] = 1
        cache["a"] = 2
        assert list(cache) == ["a", "b", "c"]
        assert list(reversed(cache)) == ["c", "b", "a"]
        del cache["a"]
        cache["a"] = 3
        assert list(cache) == ["b", "c", "a"]

    def test_iterkeys_sorts_as_sqlite_does(self, cache: Cache) -> None:
        for key in (b"b", "b", 10, 2.5, "a", (1,)):
            cache[key] = 1
        assert list(cache.iterkeys()) == [2.5, 10, "a", "b", b"b", (1,)]


class TestTransactions:
    def test_an_exception_undoes_it(self, cache: Cache) -> None:
        cache.set("a", 1, expire=1000, tag="t")
        cache["b"] = 1
        order = list(cache)
        with pytest.raises(ZeroDivisionError), cache.transact():
            cache["a"] = 2
            with cache.transact():
                cache["new"] = 3
            del cache["b"]
            cache.clear()
            raise ZeroDivisionError
        value, expires, tag = cache.get("a", expire_time=True, tag=True)
        assert (value, tag, expires is None) == (1, "t", False)
        assert list(cache) == order

    def test_others_wait_and_see_what_is_done(self, cache: Cache, directory: Path) -> None:
        child = start_child(HOLD, directory)
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert cache["k"] == "of the transaction"
        other = Cache(directory, timeout=0.01)
        for write in (
            lambda: other.set("k", 1),
            lambda: other.add("l", 1),
            lambda: other.incr("n"),
            lambda: other.pop("k"),
            lambda: other.delete("k"),
            lambda: other.touch("k"),
            lambda: other.push(1),
            lambda: other.clear(),
            lambda: other.expire(),
            lambda: other.evict("t"),
        ):
            with pytest.raises(Timeout):
                write()
        fanout = FanoutCache(directory, timeout=0.01)
        assert fanout.set("k", 1) is False
        assert fanout.incr("n") is None
        child.kill()
        child.communicate()
        # The kernel has released the lock of a killed process.
        assert other.set("k", 2)

    def test_threads_of_a_process_wait_too(self, cache: Cache) -> None:
        seen: list[object] = []

        def write() -> None:
            cache.set("k", "of the thread", retry=True)
            seen.append(1)

        with cache.transact():
            thread = threading.Thread(target=write)
            thread.start()
            cache["k"] = "of the transaction"
            assert not seen and cache["k"] == "of the transaction"
        thread.join()
        assert cache["k"] == "of the thread"

    def test_a_child_of_fork_has_a_turn_of_its_own(self, directory: Path) -> None:
        script = """
            import os, sys
            from shale.adapters.diskcache import Cache, Timeout
            cache = Cache(sys.argv[1], timeout=0.01)
            with cache.transact():
                child = os.fork()
                if not child:
                    try:
                        cache.set("k", 1)
                    except Timeout:
                        os._exit(3)
                    os._exit(0)
                status = os.waitpid(child, 0)[1]
            print(os.waitstatus_to_exitcode(status))
        """
        assert run_child(script, directory) == "3\n"


class TestQueues:
    def test_processes_share_a_queue(self, directory: Path) -> None:
        script = """
            import sys
            from shale.adapters.diskcache import Cache
            cache = Cache(sys.argv[1])
            for number in range(100):
                cache.push((sys.argv[2], number), prefix="q", retry=True)
        """
        children = [start_child(script, directory, name) for name in "ab"]
        for child in children:
            child.communicate()
            assert child.returncode == 0
        cache = Cache(directory)
        found = []
        while (item := cache.pull(prefix="q")) != (None, None):
            found.append(item[1])
        for name in "ab":
            assert [number for each, number in found if each == name] == list(range(100))

    def test_what_the_state_has_forgotten_is_looked_for(self, cache: Cache) -> None:
        keys = [cache.push(number) for number in range(3)]
        cache.push(-1, side="front")
        cache.push("x", prefix="other")
        cache._state().clear()
        assert cache.push(3) == keys[-1] + 1
        assert [cache.pull()[1] for _ in range(5)] == [-1, 0, 1, 2, 3]
        assert cache.pull() == (None, None)

    def test_holes_are_stepped_over(self, cache: Cache) -> None:
        keys = [cache.push(number) for number in range(5)]
        del cache[keys[0]], cache[keys[2]]
        assert cache.peek() == (keys[1], 1)
        assert [cache.pull()[1] for _ in range(3)] == [1, 3, 4]


class TestReads:
    @pytest.mark.parametrize(
        "value",
        [b"", b"\xffP1", "", "x", 7, 2**70, 1.5, None, True, [], {"a": [1.5, None]}, (1,), {1}],
    )
    def test_every_value_comes_back_by_every_way(self, cache: Cache, value: Any) -> None:
        cache.set("k", value, tag="t")
        plain = shale_of(cache)["k"]
        fanout = FanoutCache(cache.directory)
        for found in (cache.get("k"), cache.get("k", tag=True)[0], fanout.get("k"), plain):
            assert (found, type(found)) == (value, type(value))

    def test_a_setting_takes_effect_at_once(self, cache: Cache) -> None:
        cache["k"] = 1
        cache.stats(enable=True)
        assert (cache.get("k"), cache.get("none")) == (1, None)
        assert cache.stats(enable=False) == (1, 1)
        assert cache.get("k") == 1
        assert cache.stats() == (1, 1)

    def test_a_damaged_value_is_a_miss(self, cache: Cache) -> None:
        shale = cache._shale()
        meta = join_meta(INT, bytes(9))
        options = ctypes.byref(set_options(meta))
        shale._pool.run(lambda context: context.set(encode_key("k"), b"short", options))
        assert cache.get("k", "missed") == "missed"
        assert shale.stats().own.undecodable == 1


class TestEviction:
    def test_the_limit_holds_without_a_look_at_each_set(self, directory: Path) -> None:
        with Cache(directory, size_limit=1_000_000) as cache:
            for number in range(1000):
                cache[number] = b"x" * 10_000
                assert cache.volume() < 1_050_000
            assert len(cache) > 80
            cache.reset("size_limit", 500_000)
            for number in range(60):
                cache[f"more {number}"] = 1
            assert cache.volume() < 550_000

    @pytest.mark.parametrize("size", [8, 1000])
    def test_keys_count_for_the_limit(self, directory: str, size: int) -> None:
        with Cache(directory, size_limit=200_000) as cache:
            for number in range(4000):
                cache[f"{number:0{size}}"] = None
                assert cache.volume() < 220_000

    def test_none_refuses_what_has_no_room(self, directory: Path) -> None:
        deque = Deque.fromcache(Cache(directory, eviction_policy="none", capacity="8MiB"))
        with pytest.raises(shale.FullError):
            deque.extend([b"x" * 100_000] * 200)
        assert len(deque) > 10
        assert deque[0] == b"x" * 100_000

    def test_a_get_is_no_use_of_what_was_stored_first(self, directory: Path) -> None:
        for policy, first in (("least-recently-stored", False), ("least-recently-used", True)):
            path = directory / policy
            with Cache(path, size_limit=1_000_000, eviction_policy=policy, cull_limit=1) as cache:
                for number in range(9):
                    cache[number] = b"x" * 100_000
                assert cache[0]
                for number in range(9, 14):
                    cache[number] = b"x" * 100_000
                assert (0 in cache) is first

    def test_settings_are_kept(self, directory: Path) -> None:
        with Cache(directory, size_limit=123, cull_limit=4) as cache:
            cache.reset("cull_limit", 5)
        with Cache(directory) as cache:
            assert (cache.size_limit, cache.cull_limit) == (123, 5)
        with pytest.raises(shale.InvalidError, match="eviction_policy is one of"):
            Cache(directory, eviction_policy="random")


class TestHandles:
    def test_a_closed_one_opens_again(self, cache: Cache) -> None:
        cache["k"] = 1
        cache.close()
        assert cache["k"] == 1

    def test_one_that_is_closed_in_the_middle_of_a_call(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache["k"] = 1
        handles = [shale_of(cache)]
        cache.close()
        monkeypatch.setattr(
            cache, "_shale", lambda: handles.pop() if handles else Cache._shale(cache)
        )
        assert cache["k"] == 1

    def test_closing_in_one_thread_harms_no_other(self, cache: Cache) -> None:
        cache["k"] = 1
        errors: list[BaseException] = []
        stop = threading.Event()

        def work() -> None:
            try:
                while not stop.is_set():
                    assert cache["k"] == 1
                    cache.set("l", 1)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            cache.close()
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []

    def test_a_file_of_a_large_value(self, cache: Cache) -> None:
        value = bytes(range(256)) * 1000
        cache["k"] = value
        with cache.read("k") as file:
            assert (file.read(3), file.seek(0), file.read()) == (value[:3], 0, value)
            assert file.fileno() >= 0

    def test_pickled_handles_open_the_same(self, cache: Cache) -> None:
        cache["k"] = 1
        for each in (cache, FanoutCache(cache.directory)):
            assert pickle.loads(pickle.dumps(each))["k"] == 1
        index = Index(str(cache.directory))
        assert pickle.loads(pickle.dumps(index)) == index

    def test_a_custom_disk(self, directory: Path) -> None:
        class Reversed(Disk):
            def store(self, value: Any, read: bool, key: Any = None) -> Any:
                return super().store(value[::-1], read, key)

            def fetch(self, mode: int, filename: None, value: Any, read: bool) -> Any:
                return super().fetch(mode, filename, value, read)[::-1]

        with Cache(directory, disk=Reversed) as cache:
            cache["k"] = "abc"
            assert (cache["k"], shale_of(cache)["k"]) == ("abc", "cba")


class Evil:
    def __reduce__(self) -> Any:
        return print, ("unpickled",)


class TestConvert:
    def test_every_form(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        old = make(
            tmp_path / "old",
            ("s", 1, None, "tag", 1, None, "text"),
            (b"b", 1, 4e9, None, 1, None, b"bytes"),
            (1.5, 1, None, 7, 1, None, 2.5),
            (500_000_000_000_000, 1, None, None, 1, None, 3),
            ("file", 1, None, None, 2, "aa/bb/1.val", None),
            ("text", 1, None, None, 3, "aa/bb/2.val", None),
            ("over", 1, 5.0, None, 1, None, 1),
            ("gone", 1, None, None, 2, "aa/bb/3.val", None),
            ("out", 1, None, None, 2, "../secret", None),
            (pickle.dumps(("f", 1, None)), 0, None, None, 4, None, pickle.dumps([1, {"a"}])),
            ("evil", 1, None, None, 4, None, pickle.dumps(Evil())),
        )
        (tmp_path / "secret").write_bytes(b"of another program")
        (old / "aa" / "bb").mkdir(parents=True)
        (old / "aa" / "bb" / "1.val").write_bytes(b"x" * 100_000)
        (old / "aa" / "bb" / "2.val").write_text("ä" * 50_000)
        command = ["convert", str(old), str(tmp_path / "new")]
        assert main(command) == 1
        told = capsys.readouterr()
        assert told.out.splitlines() == [
            "7 entries converted",
            "1 left out, as their age is over",
            "1 left out, as they are pickled objects of classes, which only unpickling can make "
            "(--unpickle any runs their code)",
            "  'evil'",
            "2 left out, as their file is missing or unreadable",
            "  'gone'",
            "  'out'",
        ]
        assert told.err.endswith("11 of 11 entries (100 %)\n")
        with Cache(tmp_path / "new") as new:
            pickled = ("f", 1, None)
            assert list(new) == ["s", b"b", 1.5, 500_000_000_000_000, "file", "text", pickled]
            assert new[pickled] == [1, {"a"}]
            assert new.get("s", tag=True) == ("text", "tag")
            assert new.get(b"b", expire_time=True) == (b"bytes", pytest.approx(4e9))
            assert new.get(1.5, tag=True) == (2.5, 7)
            assert (new["file"], new["text"]) == (b"x" * 100_000, "ä" * 50_000)
            with new.read("file") as file:
                assert file.read(1) == b"x"
            assert new.push("next") == 500_000_000_000_001
            assert (new.size_limit, new.cull_limit) == (5_000_000, 7)
            assert new.eviction_policy == "least-recently-used"

        command = ["convert", "--unpickle", "any", str(old), str(tmp_path / "any")]
        assert main(command) == 1
        assert capsys.readouterr().out.startswith("unpickled\n8 entries converted")

    def test_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        evil = pickle.dumps(Evil())
        rows = [(f"evil {number}", 1, None, None, 4, None, evil) for number in range(5)]
        old = make(tmp_path / "old", ("k", 1, None, None, 1, None, 1), *rows)
        command = ["convert", "--json", "--examples", "2", str(old), str(tmp_path / "new")]
        assert main(command) == 1
        assert json.loads(capsys.readouterr().out) == {
            "converted": 1,
            "left": [
                {"reason": "classes", "entries": 5, "examples": ["'evil 0'", "'evil 1'"]},
            ],
            "damaged": {},
            "complete": False,
        }

    def test_what_diskcache_never_evicts_finds_room(self, tmp_path: Path) -> None:
        rows = [(number, 1, None, None, 1, None, b"x" * 30_000) for number in range(200)]
        limits = {"size_limit": 1000, "eviction_policy": "none"}
        make(tmp_path / "old", *rows, settings=limits)
        assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
        assert list(Index(str(tmp_path / "new"))) == list(range(200))

    def test_evictions_are_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = [(number, 1, None, None, 1, None, b"x" * 30_000) for number in range(200)]
        make(tmp_path / "old", *rows, settings={"size_limit": 1_000_000})
        assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 1
        with Cache(tmp_path / "new") as new:
            first, second = capsys.readouterr().out.splitlines()
            assert first == f"{len(new)} entries converted"
            assert second.startswith(f"{200 - len(new)} left out, as NEW is full")

    def test_shards_become_one(self, tmp_path: Path) -> None:
        old = tmp_path / "old"
        for number in range(3):
            row = (number, 1, None, None, 1, None, number)
            make(old / f"{number:03d}", row)
        make(old / "index" / "name", ("k", 1, None, None, 1, None, "v"))
        command = [sys.executable, "-m", "shale", "convert", str(old), str(tmp_path / "new")]
        done = subprocess.run(
            command, capture_output=True, env=child_environment(), text=True, check=True
        )
        assert done.stdout == "4 entries converted\n"
        with FanoutCache(tmp_path / "new") as new:
            assert sorted(new) == [0, 1, 2]
            assert dict(new.index("name")) == {"k": "v"}
            assert new.reset("size_limit") == 15_000_000 // 8

    def test_json(self, tmp_path: Path) -> None:
        disk = JSONDisk(str(tmp_path))
        (_, _, _, value), (key, _) = disk.store([1], False), disk.put({"a": 1})
        make(tmp_path / "old", (key, 1, None, None, 1, None, value))
        assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
        with Cache(tmp_path / "new", disk=JSONDisk) as new:
            assert new[{"a": 1}] == [1]

    def test_wrong_directories(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["convert", str(tmp_path), str(tmp_path / "new")]) == 2
        assert "is no directory of diskcache" in capsys.readouterr().err
        old = make(tmp_path / "old")
        assert main(["convert", str(old), str(old)]) == 2
        assert "is not empty" in capsys.readouterr().err
        (old / "cache.db").write_bytes(b"something else" * 100)
        assert main(["convert", str(old), str(tmp_path / "new")]) == 2
        assert "not a database" in capsys.readouterr().err
