"""The fixtures of aiocache's acceptance tests, with Shale's cache for the one in memory."""

import tempfile

import pytest
from aiocache import caches
from shale.adapters.aiocache import ShaleCache


@pytest.fixture(autouse=True)
def reset_caches():
    caches._caches = {}
    caches.set_config(
        {
            "default": {
                "cache": "aiocache.SimpleMemoryCache",
                "serializer": {"class": "aiocache.serializers.NullSerializer"},
            }
        }
    )


@pytest.fixture
async def memory_cache():
    with tempfile.TemporaryDirectory() as directory:
        async with ShaleCache(directory, namespace="test") as cache:
            yield cache


@pytest.fixture
def cache(memory_cache):
    return memory_cache
