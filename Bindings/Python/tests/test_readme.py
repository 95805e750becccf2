"""The examples here, in the repository's README and in start.md run, and do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, run, snippets
from support import PYTHON_ROOT, REPOSITORY

import shale

README = PYTHON_ROOT / "README.md"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the examples make their directories."""
    monkeypatch.chdir(tmp_path)


def test_the_index_has_every_page() -> None:
    index = README.read_text().partition("## Pages")[2].partition("\n## ")[0]
    linked = re.findall(r"^- \[[^]]+\]\(\S+?([\w-]+)\.md\): \S.*$", index, re.MULTILINE)
    assert sorted(linked) == sorted([*(page.stem for page in PAGES.glob("*.md")), "diskcache"])


def test_every_example_is_run() -> None:
    assert len(snippets(README)) == 2


def test_the_first_one(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, names = run(README, directory, "with shale.Cache(")
    assert names["cache"].closed
    out = "{'name': 'Ada', 'visits': [1, 2]} None\n<h1>hello</h1> False 1\n"
    assert capsys.readouterr().out == out


def test_the_calls(directory: Path) -> None:
    _, names = run(README, directory, "cache.evict(10)", shale=shale)
    with names["cache"] as cache:
        assert list(cache) == []
        assert cache.stats().evictions == 1


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("README.md", "{'any': ['JSON-like', 'value']}\n"),
        ("Documentation/guide/start.md", "{'any': ['JSON-like', 'value']} gone\n"),
    ],
)
def test_the_repositorys(
    directory: Path, capsys: pytest.CaptureFixture[str], name: str, printed: str
) -> None:
    page = REPOSITORY / name
    assert len(snippets(page)) == 1
    run(page, directory)
    assert capsys.readouterr().out == printed
