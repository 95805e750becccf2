"""A server on this machine for the tests' requests."""

import os

import pytest
from pytest_httpbin import serve
from httpbin import app


@pytest.fixture(scope="session", autouse=True)
def server():
    with serve.Server(application=app) as running:
        # An address is no domain for cookies.
        os.environ["HTTPBIN_URL"] = f"http://localhost:{running.port}/"
        yield
