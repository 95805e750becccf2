"""The snippets of the guides that need other libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, run


@pytest.fixture
def url() -> Iterator[str]:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Cache-Control", "max-age=60")
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"body")

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_django(directory: Path) -> None:
    from django.core.cache import cache
    from django.test import override_settings

    page = PAGES / "web-framework.md"
    _, names = run(page, directory, "CACHES")
    with override_settings(CACHES=names["CACHES"]):
        run(page, directory, "from django")
        assert cache.get("greeting") == {"text": "hello"}
        assert cache.get("visitors") == 1
        backend: Any = cache
        assert re.search("ShaleCache", repr(type(backend._connections["default"])))


def test_flask(directory: Path) -> None:
    world, names = run(PAGES / "web-framework.md", directory, "flask_caching")
    client = names["app"].test_client()
    assert [client.get("/").text for _ in range(2)] == ["answer 1"] * 2
    assert world.asked == [("front",)]


def test_requests(directory: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, names = run(PAGES / "http-cache.md", directory, "requests_cache", URL=url)
    assert capsys.readouterr().out == "True\n"
    assert names["second"].content == b"body"


def test_aiohttp(directory: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(PAGES / "http-cache.md", directory, "aiohttp_client_cache", URL=url)
    assert capsys.readouterr().out == "True\n"


def test_langchain(directory: Path) -> None:
    from langchain_core.globals import get_llm_cache, set_llm_cache
    from langchain_core.language_models.fake import FakeListLLM

    run(PAGES / "llm-responses.md", directory, "langchain_core")
    try:
        model = FakeListLLM(responses=["first", "second"])
        assert [model.invoke("q") for _ in range(2)] == ["first"] * 2
        cache: Any = get_llm_cache()
        assert cache._answers.cache.stats().capacity == 4 << 30
    finally:
        set_llm_cache(None)
