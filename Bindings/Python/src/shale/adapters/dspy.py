"""A cache for DSPy: ``pip install shale-cache[dspy]``.

import dspy
from shale.adapters.dspy import ShaleCache

dspy.cache = ShaleCache("/var/cache/app", capacity="4GiB", max_age=30 * 86400)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dspy.clients.cache import Cache

from ._answers import Answers
from ._models import Models
from ._opening import CacheOrPath


class ShaleCache(Cache):
    """``dspy.clients.cache.Cache``, with a namespace of a ``shale.Cache`` as its cache on disk.

    Any number of threads and processes use it. Responses come back as they were: plain data, and
    models of LiteLLM and OpenAI. Nothing is pickled. A response with other objects is not stored,
    and logged.
    """

    def __init__(
        self,
        directory: CacheOrPath,
        *,
        safe_types: Iterable[type[Any]] = (),
        enable_memory_cache: bool = False,
        memory_max_entries: int = 1_000_000,
        **options: Any,
    ) -> None:
        """directory: of the cache, in which the namespace is "dspy"; or an open ``shale.Cache``, or
        a namespace of one. safe_types: further models of pydantic. enable_memory_cache,
        memory_max_entries: of DSPy, a copy of responses in each process. options: those of
        ``shale.Cache``."""
        super().__init__(
            enable_disk_cache=False,
            enable_memory_cache=enable_memory_cache,
            disk_cache_dir=None,
            memory_max_entries=memory_max_entries,
        )
        models = Models("litellm.types.", "openai.types.", types=safe_types)
        self.disk_cache: Any = _Disk(Answers(directory, "dspy", **options), models)
        self.enable_disk_cache = True

    def clear(self) -> None:
        """Removes all responses, and nothing else that is in the cache."""
        self.reset_memory_cache()
        self.disk_cache.clear()


class _Disk:
    """The methods that DSPy calls."""

    def __init__(self, answers: Answers, models: Models) -> None:
        self._answers = answers
        self._models = models

    def __contains__(self, key: str) -> bool:
        return key in self._answers.cache

    def get(self, key: str) -> Any:
        return self._answers.get(key, self._models.unpack)

    def set(self, key: str, value: Any) -> None:
        self._answers.keep(key, value, self._models.pack)

    def clear(self) -> None:
        self._answers.cache.clear()
