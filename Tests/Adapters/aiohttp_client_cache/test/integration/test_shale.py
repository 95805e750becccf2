"""The tests of aiohttp-client-cache for all backends, on Shale's."""

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from shale.adapters.aiohttp_client_cache import ShaleBackend, ShaleStorage
from test.conftest import CACHE_NAME
from test.integration import BaseBackendTest, BaseStorageTest

DIRECTORY = Path(tempfile.mkdtemp())


class TestShaleStorage(BaseStorageTest):
    storage_class = ShaleStorage
    picklable = True

    @asynccontextmanager
    async def init_cache(self, index=0, **kwargs):
        cache = self.storage_class(DIRECTORY / CACHE_NAME, f"table_{index}", **kwargs)
        await cache.clear()
        yield cache
        await cache.close()


class Backend(ShaleBackend):
    def __init__(self, cache_name, **kwargs):
        super().__init__(DIRECTORY / cache_name, **kwargs)


class TestShaleBackend(BaseBackendTest):
    backend_class = Backend
