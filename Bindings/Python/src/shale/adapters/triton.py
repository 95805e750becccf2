"""A remote cache for Triton: ``pip install shale-cache[triton]``, and in the environment:

TRITON_CACHE_MANAGER=triton.runtime.cache:RemoteCacheManager
TRITON_REMOTE_CACHE_BACKEND=shale.adapters.triton:ShaleBackend
SHALE_TRITON_DIRECTORY=/var/cache/app
SHALE_TRITON_CAPACITY=4GiB
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from triton.runtime.cache import RemoteCacheBackend

from .._native.errors import InvalidError
from ._answers import Answers

DIRECTORY = "SHALE_TRITON_DIRECTORY"
CAPACITY = "SHALE_TRITON_CAPACITY"


class ShaleBackend(RemoteCacheBackend):
    """The files of a compiled kernel, in the namespace "triton" of a ``shale.Cache``.

    Triton writes each file that it gets into TRITON_CACHE_DIR and uses it there. So an eviction
    takes no file away from a process, and that directory may be temporary: only the cache has to
    stay. The files are programs: all who can write to the cache can run code as its readers.
    """

    def __init__(self, key: str) -> None:
        directory = os.environ.get(DIRECTORY)
        if not directory:
            raise InvalidError(f"set {DIRECTORY} to the directory of the cache")
        self._answers = _open(directory, os.environ.get(CAPACITY))
        self._key = key

    def get(self, filenames: Iterable[str]) -> dict[str, bytes]:
        """The contents of those that are stored."""
        names = {(self._key, name): name for name in filenames}
        found = self._answers.cache.get_many(names)
        return {names[key]: data for key, data in found.items() if type(data) is bytes}

    def put(self, filename: str, data: bytes) -> None:
        """Stores a file."""
        self._answers.keep((self._key, filename), data)


@lru_cache
def _open(directory: str, capacity: str | None) -> Answers:
    # Open until the process ends: Triton makes a backend for each kernel.
    options: dict[str, Any] = {"capacity": capacity} if capacity else {}
    return Answers(directory, "triton", **options)
