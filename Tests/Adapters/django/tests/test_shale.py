"""Django's tests of all cache backends, on Shale's."""

import os
import tempfile

from cache.tests import BaseCacheTests, caches_setting_for_tests
from django.core.cache import cache
from django.test import TestCase, override_settings

SETTINGS = caches_setting_for_tests(BACKEND="shale.adapters.django.ShaleCache", LOCATION=tempfile.mkdtemp())
if "SHALE_PICKLES" in os.environ:
    for each in SETTINGS.values():
        each["OPTIONS"] = {**each.get("OPTIONS", {}), "serializer": "shale.PickleSerializer"}


@override_settings(CACHES=SETTINGS)
class TestShale(BaseCacheTests, TestCase):
    def setUp(self):
        super().setUp()
        cache.clear()
