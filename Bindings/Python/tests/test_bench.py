"""``python -m shale bench`` measures what is installed, and names what is missing or fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support import REPOSITORY

from shale.__main__ import main
from shale._bench import chart, report
from shale._bench.data import SIZES
from shale._bench.stores import STORES, Function, PickledDict, Store
from shale._bench.workloads import WORKS
from shale._commands import bench

PAGE = REPOSITORY / "Documentation" / "guide" / "python" / "benchmarks.md"
PAGE_WORKS = ("get", "set", "call")
RESULTS = REPOSITORY / "Benchmarks" / "results" / "python-peers.json"


def run(tmp_path: Path, *more: str, status: int = 0) -> dict[str, Any]:
    work = tmp_path / "work"
    work.mkdir()
    files = ["--json", str(tmp_path / "json"), "--chart", str(tmp_path / "svg")]
    arguments = ["bench", "--quick", "--entries", "40", "--directory", str(work), *files, *more]
    assert main(arguments) == status
    assert list(work.iterdir()) == []
    results: dict[str, Any] = json.loads((tmp_path / "json").read_text())
    return results


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_every_installed_store_has_a_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(tmp_path)
    printed = capsys.readouterr().out.splitlines()
    names = [store.name for store in STORES]
    assert sorted([*results["peers"], *results["missing"]]) == sorted(names)
    assert results["failures"] == {}
    for name, why in results["missing"].items():
        assert f"- {name}: not measured, {why}" in printed
    assert {"shale", "functools.lru_cache", "dict with pickle"} <= results["peers"].keys()
    for name in results["peers"]:
        rows = [line for line in printed if line.startswith(f"| {name} ")]
        assert len(rows) == len(SIZES)
    rated = {(line["peer"], line["work"]) for line in results["results"]}
    assert {(name, work) for name, work in rated if name == "shale"} == {
        ("shale", work) for work in WORKS
    }
    assert {work for name, work in rated if name == "functools.lru_cache"} == {"call"}
    assert all(0 < line["low"] <= line["median"] <= line["high"] for line in results["results"])
    assert {line["data"] for line in results["results"]} == SIZES.keys()
    shown = texts((tmp_path / "svg").read_text())
    assert all(name in shown for name in results["peers"])


def test_the_machine_and_the_date_are_named(tmp_path: Path) -> None:
    results = run(tmp_path, "--only", "dict with pickle")
    machine = results["machine"]
    assert all(machine[name] for name in ("processor", "kernel", "file_system", "python", "load"))
    assert machine["begun"][:10] in report.where(results)
    assert list(results["peers"]) == ["dict with pickle"]


class Missing(PickledDict):
    name = "missing"
    package = "no-such-package"
    module = "no_such_module"


class Failing(PickledDict):
    name = "failing"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        raise OSError("no room")


class Forgetful(PickledDict):
    name = "forgetful"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        super().__init__(directory, room, entries)
        self.set = lambda key, value: None


class Recomputing(PickledDict):
    name = "recomputing"

    def memoize(self, function: Function) -> Function:
        return function


def test_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stores: list[type[Store]] = [Missing, Failing, Forgetful, Recomputing, PickledDict]
    monkeypatch.setattr(bench, "STORES", stores)
    results = run(tmp_path, status=1)
    assert results["missing"] == {"missing": "pip install no-such-package"}
    assert results["failures"] == {
        "failing": "100 B: OSError: no room",
        "forgetful": "100 B: WrongAnswer: a value differs from the one that was stored",
        "recomputing": "100 B: WrongAnswer: a result was computed again",
    }
    assert {line["peer"] for line in results["results"]} == {"dict with pickle"}
    assert "- failing: failed, 100 B: OSError: no room" in capsys.readouterr().out


def test_the_page_shows_the_results() -> None:
    results = json.loads(RESULTS.read_text())
    page = PAGE.read_text()
    assert report.where(results) in page
    lines = [line for line in page.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    measured = report.medians(results, "1 KiB")
    promises = {name: about["promises"] for name, about in results["peers"].items()}
    assert [row[0] for row in rows[2:]] == [
        name for name in measured if set(promises[name]) & set("PS")
    ]
    for name, *rates, promised in rows[2:]:
        shown = [report.thousands(measured[name].get(work)) for work in PAGE_WORKS]
        assert rates == shown
        assert promised == promises[name]
    svg = RESULTS.with_suffix(".svg").read_text()
    assert svg == chart.svg(results, "1 KiB")
    assert all(name in texts(svg) for name in results["peers"])
