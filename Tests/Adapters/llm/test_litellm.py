"""The cache for LiteLLM, with a server of our own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litellm
import pytest
import shale
from fake_model import Model
from shale.adapters.litellm import ShaleCache

ASK = [{"role": "user", "content": "What is slate?"}]

pytest_plugins = ["fake_model"]


class Thing:
    """A type that Shale cannot store."""


def use(directory: Any, **options: Any) -> ShaleCache:
    backend = ShaleCache(directory, **options)
    litellm.cache = litellm.Cache(type="local", max_messages=None)
    litellm.cache.cache = backend
    return backend


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    yield
    litellm.cache = None


def complete(model: Model, **options: Any) -> Any:
    return litellm.completion("openai/small-1", **{"messages": ASK, **model.options, **options})


def content(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.model_dump()
    return found


def test_a_hit_is_that_of_litellms_own_cache(directory: Path, model: Model) -> None:
    found = []
    for own in (True, False):
        model.asked.clear()
        use(directory)
        if own:
            litellm.cache = litellm.Cache(type="local")
        first, second = (complete(model, logprobs=True) for _ in range(2))
        assert len(model.asked) == 1
        assert type(second) is type(first)
        assert second.choices == first.choices
        found.append(content(second))
    assert found[0] == found[1]
    (choice,) = second.choices
    assert choice.message.content == "answer 1"
    assert choice.message.tool_calls[0].function.arguments == '{"n": 1}'
    assert choice.logprobs.content[0].logprob == -0.25
    assert second.usage.prompt_tokens_details.cached_tokens == 1


def test_settings_are_apart(directory: Path, model: Model) -> None:
    use(directory)
    for _ in range(2):
        complete(model)
        complete(model, temperature=0.5)
        complete(model, messages=[*ASK, *ASK])
        complete(model, messages=ASK * 9)
        litellm.completion("openai/small-2", messages=ASK, **model.options)
    assert len(model.asked) == 5


def test_an_async_model_is_asked_once(directory: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        backend = use(directory)
        stored = asyncio.Event()
        store = backend.async_set_cache

        async def storing(*arguments: Any, **options: Any) -> None:
            await store(*arguments, **options)
            stored.set()

        # LiteLLM stores in a task of its own.
        monkeypatch.setattr(backend, "async_set_cache", storing)
        first = await litellm.acompletion("openai/small-1", messages=ASK, **model.options)
        await stored.wait()
        second = await litellm.acompletion("openai/small-1", messages=ASK, **model.options)
        assert first.choices == second.choices

    asyncio.run(main())
    assert len(model.asked) == 1


def test_embeddings(directory: Path, model: Model) -> None:
    use(directory)
    for _ in range(2):
        found = litellm.embedding("openai/small-e", input=["a", "bcd"], **model.options)
        assert [each["embedding"] for each in found.data] == [[1.0, 0.5], [3.0, 0.5]]
    assert len(model.asked) == 1


def test_another_process_sees_it_and_a_restart_keeps_it(directory: Path, model: Model) -> None:
    script = (
        "import sys, litellm\n"
        "from shale.adapters.litellm import ShaleCache\n"
        "litellm.suppress_debug_info = True\n"
        "litellm.cache = litellm.Cache(type='local')\n"
        "litellm.cache.cache = ShaleCache(sys.argv[1])\n"
        "ask = [{'role': 'user', 'content': 'What is slate?'}]\n"
        "found = litellm.completion('openai/small-1', messages=ask, api_base=sys.argv[2], api_key='none')\n"
        "print(found.choices[0].message.content)\n"
    )
    command = [sys.executable, "-c", script, str(directory), model.options["api_base"]]
    found = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert found == ["answer 1\n"] * 2
    use(directory)
    assert complete(model).choices[0].message.content == "answer 1"
    assert len(model.asked) == 1


def test_what_cannot_be_stored_is_logged_once(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = use(directory)
    for _ in range(3):
        backend.set_cache("k", {"response": Thing()})
    assert backend.get_cache("k") is None
    assert [each.name for each in caplog.records] == ["shale"]
    assert "litellm: an answer is not cached: " in caplog.text


def test_ages(directory: Path, model: Model) -> None:
    now = [1e9]
    use(directory, max_age=60, now=lambda: now[0])
    complete(model)
    complete(model, temperature=0.5, cache={"ttl": 10})
    now[0] += 11
    complete(model)
    complete(model, temperature=0.5, cache={"ttl": 10})
    assert len(model.asked) == 3
    now[0] += 50
    complete(model)
    assert len(model.asked) == 4


def test_keys_of_any_length(directory: Path) -> None:
    backend = use(directory)
    keys = ["k", "k" * 100_000, "k" * 100_001, "\udc80"]
    for number, key in enumerate(keys):
        backend.set_cache(key, number)
    assert backend.batch_get_cache(keys) == [0, 1, 2, 3]
    backend.delete_cache("k")
    assert backend.get_cache("k") is None


def test_the_methods_for_coroutines(directory: Path) -> None:
    async def main() -> None:
        backend = use(directory)
        assert await backend.async_get_cache("a") is None
        await backend.async_set_cache("a", {"n": 1}, ttl=None)
        await backend.async_set_cache_pipeline([("b", 2), ("c", 3)], ttl=60)
        await backend.batch_cache_write("d", 4)
        assert await backend.async_batch_get_cache("abcde") == [{"n": 1}, 2, 3, 4, None]
        assert litellm.cache is not None
        await litellm.cache.delete_cache_keys(["a", "b"])
        assert await backend.async_batch_get_cache("abc") == [None, None, 3]
        assert (await backend.test_connection())["status"] == "success"
        await litellm.cache.disconnect()
        assert await backend.async_get_cache("c") == 3

    asyncio.run(main())


def test_clear_removes_only_responses(directory: Path, model: Model) -> None:
    with shale.Cache(directory) as whole:
        whole["k"] = 1
        backend = use(whole)
        complete(model)
        backend.flush_cache()
        complete(model)
        assert len(model.asked) == 2
        assert whole["k"] == 1
