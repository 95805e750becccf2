"""From directories that diskcache wrote to Shale: the steps of Documentation/migrating/diskcache.md."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import diskcache
import pytest
from pages import MIGRATING, run, snippets
from shale.__main__ import main
from shale.adapters import diskcache as facade
from support import run_child

PAGE = MIGRATING / "diskcache.md"


class Runs:
    def __reduce__(self) -> Any:
        return print, ("unpickled",)


ITEMS: dict[Any, Any] = {
    "text": "ä",
    b"bytes": b"\x00",
    7: 2**70,
    1.5: 2.5,
    ("tuple", None): {"a": [1, {2}], "at": datetime(2020, 1, 2)},
    "none": None,
    "file": b"x" * 100_000,
    "long text": "ö" * 50_000,
    "long pickle": [timedelta(1)] * 50_000,
}


def converted(old: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """The exit status of both commands, which have to agree."""
    status = main(["audit", "--json", str(old)])
    said = json.loads(capsys.readouterr().out)
    assert main(["convert", "--json", str(old), str(new)]) == status
    did = json.loads(capsys.readouterr().out)
    assert (said["moves"], said["left"]) == (did["converted"], did["left"])
    return status


def double(number: int) -> list[int]:
    raise AssertionError("called again")


@pytest.mark.parametrize("protocol", range(6))
def test_cache(directory: Path, capsys: pytest.CaptureFixture[str], protocol: int) -> None:
    with diskcache.Cache(str(directory / "old"), disk_pickle_protocol=protocol) as old:
        for key, value in ITEMS.items():
            old.set(key, value, expire=1000, tag="news")
        remembered = old.memoize(name="double")(lambda number: [number, number])
        remembered(4)
        old["bad"] = Runs()
    assert converted(directory / "old", directory / "new", capsys) == 1
    with facade.Cache(directory / "new") as new:
        assert list(new)[: len(ITEMS)] == list(ITEMS)
        for key, value in ITEMS.items():
            found, expires, tag = new.get(key, expire_time=True, tag=True)
            assert (found, type(found), tag) == (value, type(value), "news")
            assert expires is not None
        assert new.memoize(name="double")(double)(4) == [4, 4]
        assert "bad" not in new


def test_fanout_deque_and_index(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with diskcache.FanoutCache(str(directory / "old" / "fanout"), shards=4) as old:
        for key, value in ITEMS.items():
            old[key] = value
        old.deque("jobs/of a day").extend([1, None, ("x", 2)])
        old.index("names")["k"] = {"v": 1}
    diskcache.Deque(["a", ["b"]], str(directory / "old" / "deque"))
    diskcache.Index(str(directory / "old" / "index"), [("a", (1,)), (("b",), 2)])
    assert converted(directory / "old", directory / "new", capsys) == 0
    fanout = facade.FanoutCache(directory / "new" / "fanout")
    assert {key: fanout[key] for key in fanout} == ITEMS
    assert list(fanout.deque("jobs/of a day")) == [1, None, ("x", 2)]
    assert dict(fanout.index("names")) == {"k": {"v": 1}}
    assert list(facade.Deque(directory=directory / "new" / "deque")) == ["a", ["b"]]
    index = facade.Index(str(directory / "new" / "index"))
    assert list(index.items()) == [("a", (1,)), (("b",), 2)]


def test_json_disk(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with diskcache.Cache(str(directory / "old"), disk=diskcache.JSONDisk) as old:
        old[{"a": 1}] = [1, None]
    assert main(["audit", str(directory / "old")]) == 0
    told = capsys.readouterr().out
    assert "written by JSONDisk" in told
    assert "zlib of JSON" in told
    assert converted(directory / "old", directory / "new", capsys) == 0
    with facade.Cache(directory / "new", disk=facade.JSONDisk) as new:
        assert new[{"a": 1}] == [1, None]


def test_one_in_use(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with diskcache.Cache(str(directory / "old")) as old:
        old["k"] = (1, 2)
        before = sorted(each.name for each in (directory / "old").iterdir())
        assert converted(directory / "old", directory / "new", capsys) == 0
        assert sorted(each.name for each in (directory / "old").iterdir()) == before
        old["l"] = 1
        assert old["k"] == (1, 2)


def test_django(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.cache import caches
    from django.test import override_settings

    _, names = run(PAGE, directory, "CACHES")
    theirs = {"BACKEND": "diskcache.DjangoCache", "LOCATION": str(directory / "old")}
    with override_settings(CACHES={**names["CACHES"], "old": theirs}):
        caches["old"].set("k", {"a": (1, 2)}, 1000)
        caches["old"].set("page", "x" * 50_000, None, version=2)
        caches["old"]._cache.close()
        assert converted(directory / "old", directory / "django", capsys) == 0
        assert caches["default"].get("k") == {"a": (1, 2)}
        assert caches["default"].get("page", version=2) == "x" * 50_000


def test_a_package_that_imports_diskcache(directory: Path) -> None:
    (step,) = [each for each in snippets(PAGE) if "sys.modules" in each]
    use = """
calls = []

@manager.cache_function
def double(number, **_options):
    calls.append(number)
    return [number, number]

assert [double(2, a=1), double(2, a=1), double(3)] == [[2, 2], [2, 2], [3, 3]]
assert calls == [2, 3], calls
assert type(manager.cache) is shale.adapters.diskcache.Cache
assert "diskcache.core" not in sys.modules
try:
    import diskcache.core
except ImportError:
    print("as the page says")
"""
    script = step.replace("/var/cache", str(directory)) + use
    assert run_child(script) == "as the page says\n"
    # Another process finds the results.
    again = script.replace("calls == [2, 3]", "calls == []")
    assert run_child(again) == "as the page says\n"
