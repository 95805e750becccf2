"""The snippets of the guide, and that a page's Triton variables are those of its test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dspy
import litellm
import pytest
from fake_model import Model
from pages import PAGES, run
from test_triton import environment

pytest_plugins = ["fake_model"]

PAGE = PAGES / "llm-responses.md"


def test_litellm(directory: Path, model: Model) -> None:
    run(PAGE, directory, "import litellm")
    assert litellm.cache is not None
    backend: Any = litellm.cache.cache
    try:
        ask = [{"role": "user", "content": "q"}] * 9
        for _ in range(2):
            found = litellm.completion("openai/small-1", messages=ask, **model.options)
            assert found.choices[0].message.content == "answer 1"
        assert backend._answers.cache.stats().capacity == 4 << 30
    finally:
        litellm.cache = None


def test_dspy(directory: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dspy, "cache", None, raising=False)
    run(PAGE, directory, "import dspy")
    one = dspy.LM("openai/small-1", **model.options)
    assert [one("q")[0]["text"] for _ in range(2)] == ["answer 1"] * 2
    assert dspy.cache.disk_cache._answers.cache.stats().capacity == 4 << 30


def test_triton(directory: Path) -> None:
    page = dict(re.findall(r"(\w*TRITON\w*)=(\S+)", PAGE.read_text()))
    tested = environment(directory, directory)
    own = {"SHALE_TRITON_DIRECTORY": "/var/cache/app", "SHALE_TRITON_CAPACITY": "4GiB"}
    assert page == {name: own.get(name, tested[name]) for name in page}
    assert len(page) == 4
