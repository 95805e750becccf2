"""dogpile.cache's tests of all backends, on Shale's."""

import tempfile

from dogpile.cache.proxy import ProxyBackend
from dogpile.testing.fixtures import _GenericBackendTestSuite, _GenericMutexTestSuite, _GenericSerializerTestSuite
from shale import PickleSerializer

ARGUMENTS = {"directory": tempfile.mkdtemp()}


class Plain:
    backend = "shale.adapters.dogpile"
    config_args = {"arguments": ARGUMENTS}


class TestShale(Plain, _GenericBackendTestSuite):
    pass


class TestShaleProxy(_GenericBackendTestSuite):
    backend = "shale.adapters.dogpile"
    config_args = {"arguments": ARGUMENTS, "wrap": [ProxyBackend]}


class TestShalePickle(_GenericBackendTestSuite):
    backend = "shale.adapters.dogpile"
    config_args = {"arguments": {"directory": tempfile.mkdtemp(), "serializer": PickleSerializer()}}


class TestShaleSerializer(_GenericSerializerTestSuite, TestShale):
    pass


class TestShaleMutex(Plain, _GenericMutexTestSuite):
    pass
