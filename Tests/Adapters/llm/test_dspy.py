"""The cache for DSPy, with a server of our own."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import litellm
import pytest
import shale
from fake_model import Model
from pydantic import BaseModel
from shale.adapters.dspy import ShaleCache

pytest_plugins = ["fake_model"]


class Thing:
    """A type that Shale cannot store."""


class Answer(BaseModel):  # type: ignore[misc]
    text: str
    parts: tuple[int, ...] = ()


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    dspy.cache = None
    yield
    dspy.cache = None


def use(directory: Any, **options: Any) -> ShaleCache:
    cache = ShaleCache(directory, **options)
    dspy.cache = cache
    return cache


def lm(model: Model, **options: Any) -> dspy.LM:
    return dspy.LM("openai/small-1", **model.options, **options)


def test_a_program_is_asked_once_and_nothing_is_pickled(
    directory: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(directory)

    def refuse(*_: Any) -> None:
        raise AssertionError("pickle")

    for name in ("dumps", "loads", "dump", "load"):
        monkeypatch.setattr(pickle, name, refuse)
    first, second = (lm(model, logprobs=True)("What is slate?") for _ in range(2))
    assert len(model.asked) == 1
    assert first == second
    assert second[0]["text"] == "answer 1"
    assert second[0]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"n": 1}'}
    assert second[0]["logprobs"]


def test_coroutines_are_asked_once(directory: Path, model: Model) -> None:
    use(directory)

    async def main() -> None:
        one = lm(model)
        assert await one.acall("What is slate?") == await one.acall("What is slate?")

    asyncio.run(main())
    assert len(model.asked) == 1


def test_settings_are_apart(directory: Path, model: Model) -> None:
    use(directory)
    for _ in range(2):
        lm(model)("q")
        lm(model, temperature=0.5)("q")
        lm(model)("q" * 100_000)
        dspy.LM("openai/small-2", **model.options)("q")
    assert len(model.asked) == 4


def test_responses_of_litellm_come_back_equal(directory: Path, model: Model) -> None:
    cache = use(directory)
    response = litellm.completion(
        "openai/small-1", messages=[{"role": "user", "content": "q"}], logprobs=True, **model.options
    )
    cache.put({"q": 1}, response)
    found = cache.disk_cache.get(cache.cache_key({"q": 1}))
    assert type(found) is type(response)
    assert found.model_dump() == response.model_dump()
    assert found.choices == response.choices
    assert found.choices[0].message.tool_calls[0].function.name == "find"
    assert found._hidden_params["response_cost"] == response._hidden_params["response_cost"]
    hit = cache.get({"q": 1})
    assert (hit.usage, hit.cache_hit) == ({}, True)
    assert cache.get({"q": 2}) is None


def test_embeddings(directory: Path, model: Model) -> None:
    use(directory)
    embed = dspy.Embedder("openai/small-e", **model.options)
    assert [[list(each) for each in embed(["a", "bcd"])] for _ in range(2)] == [[[1.0, 0.5], [3.0, 0.5]]] * 2
    assert len(model.asked) == 1


def test_another_process_sees_it_and_a_restart_keeps_it(directory: Path, model: Model) -> None:
    script = (
        "import sys, dspy; from shale.adapters.dspy import ShaleCache\n"
        "dspy.cache = ShaleCache(sys.argv[1])\n"
        "found = dspy.LM('openai/small-1', api_base=sys.argv[2], api_key='none')('What is slate?')\n"
        "print(found[0]['text'])\n"
    )
    command = [sys.executable, "-c", script, str(directory), model.options["api_base"]]
    found = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert found == ["answer 1\n"] * 2
    use(directory)
    assert lm(model)("What is slate?")[0]["text"] == "answer 1"
    assert len(model.asked) == 1


def test_what_cannot_be_stored_is_logged_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = use(directory)
    for value in (Thing(), {"a": [Answer(text="a")]}, [Thing()]):
        cache.put({"q": 1}, value)
        assert cache.get({"q": 1}) is None
    assert [each.name for each in caplog.records] == ["shale"]
    assert "dspy: an answer is not cached: " in caplog.text


def test_safe_types(directory: Path) -> None:
    cache = use(directory, safe_types=[Answer])
    value = {"a": [Answer(text="a", parts=(1, 2)), (Answer(text="b"), None)]}
    cache.put({"q": 1}, value)
    assert cache.get({"q": 1}) == value
    # The same entry without the type.
    assert use(directory).get({"q": 1}) is None
    with pytest.raises(TypeError, match="a model of pydantic is expected"):
        use(directory, safe_types=[Thing])


def test_the_memory_of_dspy_is_optional(directory: Path) -> None:
    cache = use(directory)
    cache.put({"q": 1}, "a")
    assert len(cache.memory_cache) == 0
    cache = use(directory, enable_memory_cache=True)
    assert cache.get({"q": 1}) == "a"
    assert list(cache.memory_cache.values()) == ["a"]
    cache.clear()
    assert len(cache.memory_cache) == 0
    assert cache.get({"q": 1}) is None


def test_ages_and_clear(directory: Path) -> None:
    now = [1e9]
    with shale.Cache(directory, max_age=60, now=lambda: now[0]) as whole:
        whole["k"] = 1
        cache = use(whole)
        cache.put({"q": 1}, "a")
        key = cache.cache_key({"q": 1})
        now[0] += 59
        assert cache.get({"q": 1}) == "a"
        assert key in cache
        now[0] += 2
        assert cache.get({"q": 1}) is None
        assert key not in cache
        whole["k"] = 1
        cache.put({"q": 1}, "a")
        cache.clear()
        assert cache.get({"q": 1}) is None
        assert whole["k"] == 1
