"""A cache for LangChain: ``pip install shale-cache[langchain]``.

from langchain_core.globals import set_llm_cache
from shale.adapters.langchain import ShaleCache

set_llm_cache(ShaleCache("/var/cache/app", capacity="4GiB", max_age=30 * 86400))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation
from pydantic import BaseModel

from ._answers import Answers, key_of
from ._models import Models
from ._opening import CacheOrPath

_MODELS = Models("langchain_core.messages.", "langchain_core.outputs.")


class ShaleCache(BaseCache):
    """The methods of ``langchain_core.caches.BaseCache``, on a namespace of a ``shale.Cache``.

    Any number of threads and processes use it. Generations and their messages come back equal, and
    reading runs no stored code. An answer that contains objects of other classes is not stored, and
    logged; only ``additional_kwargs["parsed"]`` is stored as a dict, as LangChain does. Calls take
    microseconds, and are made on the event loop.
    """

    def __init__(self, directory: CacheOrPath, **options: Any) -> None:
        """directory: of the cache, in which the namespace is "langchain"; or an open
        ``shale.Cache``, or a namespace of one. options: those of ``shale.Cache``."""
        self._answers = Answers(directory, "langchain", **options)

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """The answer to a prompt by a model with these settings, or None."""
        found: list[Generation] | None = self._answers.get(key_of(prompt, llm_string), _read)
        return found

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Stores an answer."""
        self._answers.keep(key_of(prompt, llm_string), return_val, _write)

    def clear(self, **kwargs: Any) -> None:
        """Removes all answers, and nothing else that is in the cache."""
        self._answers.cache.clear()

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """``lookup``."""
        return self.lookup(prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """``update``."""
        self.update(prompt, llm_string, return_val)

    async def aclear(self, **kwargs: Any) -> None:
        """``clear``."""
        self.clear()


def _read(stored: Any) -> list[Generation]:
    found = _MODELS.unpack(stored)
    if type(found) is not list or not all(isinstance(each, Generation) for each in found):
        raise ValueError("it is no list of generations")
    return found


def _write(generations: Sequence[Generation]) -> Any:
    return _MODELS.pack([_plain(each) for each in generations])


def _plain(generation: Generation) -> Generation:
    # Partner packages accept a dict for the caller's own model.
    if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
        extra = generation.message.additional_kwargs
        parsed = extra.get("parsed")
        if isinstance(parsed, BaseModel):
            more = {"additional_kwargs": {**extra, "parsed": parsed.model_dump()}}
            message = generation.message.model_copy(update=more)
            return generation.model_copy(update={"message": message})
    return generation
