"""The cache for LangChain, with its models that need no network."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import shale
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk
from pydantic import BaseModel, field_serializer
from shale.adapters.langchain import ShaleCache


class Thing:
    """A type that Shale cannot store."""


class Answer(BaseModel):
    text: str


class Unwritable(BaseModel):
    text: str

    @field_serializer("text")
    def write(self, text: str) -> str:
        raise RuntimeError(text)


class Pair(NamedTuple):
    first: str | None
    second: int


FULL = AIMessage(
    content=[
        {"type": "text", "text": "a \udc80 slate", "annotations": []},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        {"type": "reasoning", "reasoning": "why", "extras": {"signature": b"\x00\xff"}},
    ],
    additional_kwargs={"function_call": None, "lc": 1, "type": "constructor"},
    response_metadata={
        "logprobs": {"content": [{"token": "a", "bytes": [97], "logprob": -0.25, "top_logprobs": []}]},
        "finish_reason": "stop",
    },
    name="model",
    id="run-1",
    tool_calls=[{"name": "find", "args": {"n": 1, "x": [0.5, None]}, "id": "c1", "type": "tool_call"}],
    invalid_tool_calls=[
        {"name": "find", "args": "{", "id": "c2", "error": "no JSON", "type": "invalid_tool_call"},
    ],
    usage_metadata={
        "input_tokens": 3,
        "output_tokens": 4,
        "total_tokens": 7,
        "input_token_details": {"cache_read": 1},
        "output_token_details": {"reasoning": 2},
    },
)

ANSWERS: dict[str, list[Generation]] = {
    "text": [Generation(text="one", generation_info={"logprobs": {"tokens": ["one"]}}), Generation(text="")],
    "chunk of text": [GenerationChunk(text="one")],
    "chat": [ChatGeneration(message=FULL, generation_info={"finish_reason": "stop"})],
    "chunk of chat": [
        ChatGenerationChunk(
            message=AIMessageChunk(
                content="a",
                tool_call_chunks=[{"name": "f", "args": "{", "id": "1", "index": 0, "type": "tool_call_chunk"}],
                chunk_position="last",
            )
        )
    ],
    "other messages": [
        ChatGeneration(message=ChatMessage(role="critic", content="no")),
        ChatGeneration(message=ToolMessage(content="3", tool_call_id="c1", artifact={"raw": b"3"})),
    ],
    "further fields": [ChatGeneration(message=AIMessage(content="a", example=True))],
    "none": [],
}


@pytest.fixture
def cache(directory: Path) -> ShaleCache:
    return ShaleCache(directory, capacity="16MiB")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_comes_back_equal_and_without_pickle(
    cache: ShaleCache, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("pickle")

    monkeypatch.setattr(pickle, "dumps", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    assert cache.lookup("p", "m") is None
    cache.update("p", "m", ANSWERS[name])
    found = cache.lookup("p", "m")
    assert isinstance(found, list)
    assert found == ANSWERS[name]
    assert [type(each) for each in found] == [type(each) for each in ANSWERS[name]]
    for each, stored in zip(found, ANSWERS[name]):
        assert each.model_dump() == stored.model_dump()
        assert each.model_fields_set == stored.model_fields_set
        if isinstance(stored, ChatGeneration):
            assert isinstance(each, ChatGeneration)
            assert type(each.message) is type(stored.message)
            assert each.message.model_dump() == stored.message.model_dump()
            assert each.message.content_blocks == stored.message.content_blocks


def test_callers_do_not_share_an_answer(cache: ShaleCache) -> None:
    cache.update("p", "m", [Generation(text="one")])
    first = cache.lookup("p", "m")
    assert first is not None
    first[0].text = "changed"
    assert cache.lookup("p", "m") == [Generation(text="one")]


def test_prompts_and_settings_are_apart(cache: ShaleCache) -> None:
    pairs = [("p", "m"), ("p", "n"), ("q", "m"), ("pm", ""), ("", "pm"), ("p" * 100_000, "m"), ("\udc80", "m")]
    pairs += [("\N{GRINNING FACE}", "m"), ("\ud83d\ude00", "m")]
    for number, pair in enumerate(pairs):
        cache.update(*pair, [Generation(text=str(number))])
    for number, pair in enumerate(pairs):
        assert cache.lookup(*pair) == [Generation(text=str(number))]


def models(cache: ShaleCache, replies: Iterator[Any]) -> Any:
    return GenericFakeChatModel(messages=replies, cache=cache)


def test_a_chat_model_is_asked_once(cache: ShaleCache) -> None:
    model = models(cache, iter(["first", "second", "third"]))
    assert [model.invoke("q").content for _ in range(3)] == ["first"] * 3
    assert model.invoke("q", stop=["x"]).content == "second"
    assert model.invoke("other").content == "third"


def test_an_async_chat_model_is_asked_once(cache: ShaleCache) -> None:
    async def main() -> None:
        model = models(cache, iter(["first"]))
        assert [(await model.ainvoke("q")).content for _ in range(3)] == ["first"] * 3
        await cache.aclear()
        assert await cache.alookup("q", "m") is None
        await cache.aupdate("q", "m", [Generation(text="a")])
        assert await cache.alookup("q", "m") == [Generation(text="a")]

    asyncio.run(main())


def test_a_language_model_is_asked_once(cache: ShaleCache) -> None:
    model = FakeListLLM(responses=["first", "second"], cache=cache)
    assert [model.invoke("q") for _ in range(3)] == ["first"] * 3
    assert model.invoke("other") == "second"


def test_another_process_sees_it_and_a_restart_keeps_it(directory: Path) -> None:
    script = (
        "import sys; from shale.adapters.langchain import ShaleCache\n"
        "found = ShaleCache(sys.argv[1]).lookup('p', 'm')\n"
        "print(found[0].model_dump_json())\n"
    )
    command = [sys.executable, "-c", script, str(directory)]
    answer = ChatGeneration(message=AIMessage(content="a", usage_metadata=FULL.usage_metadata))
    cache = ShaleCache(directory)
    cache.update("p", "m", [answer])
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == json.loads(answer.model_dump_json())
        cache._answers.cache._cache.close()  # type: ignore[attr-defined]
    assert ShaleCache(directory).lookup("p", "m") == [answer]


@pytest.mark.parametrize(
    "answer",
    [
        Generation(text="a", generation_info={"raw": Thing()}),
        ChatGeneration(message=AIMessage(content="a", additional_kwargs={"raw": Answer(text="a")})),
        ChatGeneration(message=AIMessage(content="a", additional_kwargs={"parsed": Unwritable(text="a")})),
        type("Own", (Generation,), {})(text="a"),
        Generation(text="a", generation_info={"pair": Pair(None, 1)}),
    ],
    ids=["an object", "a model", "a model without a form", "a subclass", "a named tuple"],
)
def test_what_cannot_be_stored_is_logged_once(
    cache: ShaleCache, answer: Generation, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "shale"):
        for _ in range(3):
            cache.update("p", "m", [answer])
    assert len(caplog.records) == 1
    assert "langchain: an answer is not cached: " in caplog.text
    assert cache.lookup("p", "m") is None


def test_an_answer_that_is_too_large_is_not_lost(cache: ShaleCache, caplog: pytest.LogCaptureFixture) -> None:
    model = models(cache, iter(["x" * 5_000_000, "second"]))
    assert len(model.invoke("q").content) == 5_000_000
    assert "not cached" in caplog.text
    assert model.invoke("q").content == "second"


def test_a_parsed_answer_is_stored_as_a_dict(cache: ShaleCache) -> None:
    message = AIMessage(content="a", additional_kwargs={"parsed": Answer(text="a"), "more": 1})
    cache.update("p", "m", [ChatGeneration(message=message)])
    found = cache.lookup("p", "m")
    assert found is not None
    assert found[0].message.additional_kwargs == {"parsed": {"text": "a"}, "more": 1}
    assert message.additional_kwargs["parsed"] == Answer(text="a")


def stored(cache: ShaleCache) -> tuple[Any, Any]:
    """The key and value of the only entry."""
    (key,) = cache._answers.cache
    return key, cache._answers.cache[key]


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "langchain_core.prompts.chat:ChatPromptTemplate",
        "langchain_core.messages.utils:deepcopy",
        "langchain_core.messages.ai:AIMessage.pretty_print",
        "langchain_core.messages.ai:no",
        "langchain_core.messages.no:AIMessage",
        "langchain_core.outputs:Generation",
        "langchain_core.outputs.generation:Serializable",
        "pydantic.main:BaseModel",
    ],
)
def test_no_other_class_is_read(cache: ShaleCache, name: str, caplog: pytest.LogCaptureFixture) -> None:
    cache.update("p", "m", [Generation(text="a")])
    key, [(own, *rest)] = stored(cache)
    assert own == "langchain_core.outputs.generation:Generation"
    cache._answers.cache[key] = [(name, *rest)]
    assert cache.lookup("p", "m") is None
    assert cache.lookup("p", "m") is None
    assert [each.message for each in caplog.records if name in each.message] == [caplog.records[0].message]


DEEP = "langchain_core.messages." + "a." * 2000 + ":AIMessage"


@pytest.mark.parametrize(
    "value", [b"a", "a", 1, [1], [{}], [("x",)], [(1, 2, 3)], [(b"a", {}, [])], [(DEEP, {}, [])], ()]
)
def test_damaged_answers_are_misses(cache: ShaleCache, value: Any) -> None:
    cache.update("p", "m", [Generation(text="a")])
    key, _ = stored(cache)
    cache._answers.cache[key] = value
    assert cache.lookup("p", "m") is None


def test_a_field_of_a_newer_release_gets_its_default(cache: ShaleCache) -> None:
    cache.update("p", "m", [Generation(text="a", generation_info={"b": 1})])
    key, [(name, state, deleted)] = stored(cache)
    del state["__dict__"]["generation_info"]
    cache._answers.cache[key] = [(name, state, deleted)]
    assert cache.lookup("p", "m") == [Generation(text="a")]
    del state["__dict__"]["text"]
    cache._answers.cache[key] = [(name, state, deleted)]
    assert cache.lookup("p", "m") is None


def test_ages(directory: Path) -> None:
    now = [1e9]
    cache = ShaleCache(directory, max_age=60, now=lambda: now[0])
    cache.update("p", "m", [Generation(text="a")])
    now[0] += 59
    assert cache.lookup("p", "m") is not None
    now[0] += 2
    assert cache.lookup("p", "m") is None


def test_clear_removes_only_answers(directory: Path) -> None:
    with shale.Cache(directory) as whole:
        whole["k"] = 1
        cache, own = ShaleCache(whole), ShaleCache(whole.namespace("own", max_age=60))
        for each in (cache, own):
            each.update("p", "m", [Generation(text="a")])
        cache.clear()
        assert cache.lookup("p", "m") is None
        assert own.lookup("p", "m") is not None
        assert whole["k"] == 1
