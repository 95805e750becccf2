"""The tests of requests-cache for all backends, on Shale's."""

from shale.adapters.requests_cache import ShaleCache, ShaleDict
from tests.integration.base_cache_test import BaseCacheTest
from tests.integration.base_storage_test import BaseStorageTest


class TestShaleDict(BaseStorageTest):
    storage_class = ShaleDict
    init_kwargs = {"use_temp": True}


class TestShaleCache(BaseCacheTest):
    backend_class = ShaleCache
    init_kwargs = {"use_temp": True}


class TestShaleCachePickle(TestShaleCache):
    init_kwargs = {"use_temp": True, "serializer": "pickle"}
