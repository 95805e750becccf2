"""A server on this machine for the tests' requests, of which some come at once."""

import os
import threading

import pytest
from httpbin import app
from werkzeug.serving import make_server


@pytest.fixture(scope="session", autouse=True)
def server():
    running = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    # An address is no domain for cookies.
    os.environ["HTTPBIN_URL"] = f"http://localhost:{running.server_port}/"
    yield
    running.shutdown()
    thread.join()
