"""Flask-Caching with the settings of the guide."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import shale
from damaged_forms import check_damaged
from flask import Flask, Response, abort, jsonify, make_response, redirect, render_template_string, request
from flask_caching import Cache
from markupsafe import Markup
from pages import PAGES, run
from shale.adapters.flask_caching import FlaskSerializer
from werkzeug.exceptions import HTTPException, default_exceptions

calls: Counter[str] = Counter()


class Site(NamedTuple):
    app: Flask
    cache: Cache


@pytest.fixture
def site(directory: Path) -> Site:
    calls.clear()
    _, names = run(PAGES / "web-framework.md", directory, "flask_caching")
    return Site(names["app"], names["pages"])


def view(site: Site, answer: Callable[[], Any], **options: Any) -> Callable[[], Any]:
    """Two answers of a cached view."""

    def page() -> Any:
        calls["page"] += 1
        return answer()

    site.app.add_url_rule("/page", "page", site.cache.cached(**{"timeout": 60, **options})(page))
    client = site.app.test_client()
    return lambda: client.get("/page")


def with_everything() -> Response:
    response = make_response("body \N{SNOWMAN}", 418)
    response.headers["X-One"] = "1"
    response.headers.add("Vary", "Accept")
    response.headers.add("Vary", "Cookie")
    response.set_cookie("a", "1", max_age=60, httponly=True, samesite="Lax")
    response.set_cookie("b", "2; 3", secure=True)
    response.mimetype = "text/x-own"
    response.last_modified = datetime(2020, 1, 1, tzinfo=UTC)
    return response


ANSWERS: dict[str, Callable[[], Any]] = {
    "text": lambda: "text",
    "bytes": lambda: b"bytes",
    "a dict": lambda: {"key": [1, None]},
    "a list": lambda: ["a", 1],
    "a tuple": lambda: ("text", 201, {"X-One": "1"}),
    "a tuple with a response": lambda: (jsonify(a=1), 202),
    "a tuple with headers": lambda: ("text", make_response("").headers),
    "markup": lambda: Markup("<b>"),
    "a template": lambda: render_template_string("<b>{{ 1 + 1 }}</b>"),
    "a generator": lambda: (part for part in ("a", "b")),
    "jsonify": lambda: jsonify(a=[1, 2]),
    "everything": with_everything,
    "own status": lambda: Response("text", status="299 Own"),
    "no type": lambda: Response("text", content_type=""),
    "parts": lambda: Response(["a", "b"]),
    "no content": lambda: ("", 204),
    "redirect": lambda: redirect("/other"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_view(site: Site, name: str) -> None:
    get = view(site, ANSWERS[name])
    first, second = get(), get()
    assert calls["page"] == 1
    assert (second.status, second.data) == (first.status, first.data)
    assert list(second.headers) == list(first.headers)


def test_a_hit_is_a_response(site: Site) -> None:
    with site.app.test_request_context():
        site.cache.set("k", jsonify(a=1))
        response = site.cache.get("k")
    assert type(response) is Response
    assert response.json == {"a": 1}
    response.set_cookie("own", "1")  # changes only this one
    with site.app.app_context():
        assert "Set-Cookie" not in site.cache.get("k").headers


@pytest.mark.parametrize(
    "stop",
    [
        lambda: abort(404, "nothing here"),
        lambda: abort(404, Markup("<b>nothing here")),
        lambda: abort(503, "nothing here"),
        lambda: abort(Response("nothing here")),
    ],
)
def test_abort(site: Site, stop: Callable[[], Any]) -> None:
    get = view(site, stop)
    first, second = get(), get()
    assert calls["page"] == 1
    assert (second.status, second.data) == (first.status, first.data)
    assert b"nothing here" in second.data


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "shale"]


class Thing:
    """Has no form."""


def stream() -> Response:
    return Response(part for part in ("a", "b"))


@pytest.mark.parametrize(
    ("answer", "kind"), [(stream, "flask.wrappers.Response"), (lambda: (stream(), 200), "builtins.tuple")]
)
def test_a_stream_is_not_cached(
    site: Site, answer: Callable[[], Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    get = view(site, answer)
    assert [get().data for _ in range(3)] == [b"ab"] * 3
    assert calls["page"] == 3
    (message,) = refused(caplog)
    for part in (kind, "'view//page'", "the view 'page'", "the response is a stream", "Do not cache it"):
        assert part in message


class Teapot(HTTPException):
    code = 799
    description = "own"


def teapot() -> None:
    raise Teapot


@pytest.mark.parametrize(
    ("stop", "name"), [(lambda: abort(405, valid_methods=["PUT"]), "MethodNotAllowed"), (teapot, "Teapot")]
)
def test_other_exceptions_are_not_cached(
    site: Site, stop: Callable[[], Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    get = view(site, stop)
    first = get()
    assert [list(get().headers) for _ in range(2)] == [list(first.headers)] * 2
    assert calls["page"] == 3
    assert name in refused(caplog)[0]
    assert len(refused(caplog)) == 1


def test_a_function_with_a_value_that_has_no_form(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    @site.cache.memoize(60)
    def make(number: int) -> Thing:
        calls["make"] += 1
        return Thing()

    with site.app.app_context():
        assert [type(make(number)) for number in (1, 1, 2)] == [Thing] * 3
        assert calls["make"] == 3
        site.cache.set("k", 1)
        assert not site.cache.set("k", Thing())
        assert site.cache.get("k") is None  # and no older value
        assert not site.cache.add("k", Thing())
        assert site.cache.set_many({"a": 1, "b": Thing()}) == ["a"]
        assert site.cache.get_many("a", "b") == [1, None]
    messages = refused(caplog)
    assert all("test_flask_caching.Thing" in each for each in messages)
    assert [each for each in messages if "the key 'k'" in each][1:] == []


def test_a_fragment(site: Site) -> None:
    def body() -> str:
        calls["body"] += 1
        return "<i>&amp;</i>"

    template = "{% cache 60, 'name', kind %}<b>{{ body()|safe }}</b>{% endcache %}"
    with site.app.test_request_context():
        texts = [render_template_string(template, kind=kind, body=body) for kind in ("a", "a", "b")]
    assert texts == ["<b><i>&amp;</i></b>"] * 3
    assert calls["body"] == 2


def test_a_query_string(site: Site) -> None:
    @site.app.route("/search")
    @site.cache.cached(timeout=60, query_string=True)
    def search() -> Any:
        calls["search"] += 1
        return jsonify(request.args)

    client = site.app.test_client()
    asked = [client.get(f"/search?{query}").json for query in ("a=1&b=2", "b=2&a=1", "a=2")]
    assert asked == [{"a": "1", "b": "2"}] * 2 + [{"a": "2"}]
    assert calls["search"] == 2


def test_memoize_and_forget(site: Site) -> None:
    @site.cache.memoize(60)
    def double(number: int) -> int:
        calls[f"double {number}"] += 1
        return 2 * number

    class Adder:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return self.name

        @site.cache.memoize(60)
        def add(self, number: int) -> int:
            calls[f"{self.name} {number}"] += 1
            return number + 1

    def called(name: str) -> int:
        double(4), double(5), first.add(1), second.add(1)
        return calls[name]

    first, second = Adder("first"), Adder("second")
    with site.app.app_context():
        assert (double(4), double(4), first.add(1)) == (8, 8, 2)
        assert (called("double 4"), called("first 1"), called("second 1")) == (1, 1, 1)
        site.cache.delete_memoized(double, 4)
        assert (called("double 4"), called("double 5")) == (2, 1)
        site.cache.delete_memoized(double)
        assert (called("double 4"), called("double 5")) == (3, 2)
        site.cache.delete_memoized_verhash(double)
        assert (called("double 4"), called("double 5")) == (4, 3)
        site.cache.delete_memoized(first.add)
        assert (called("first 1"), called("second 1")) == (2, 1)
        site.cache.delete_memoized(Adder.add)
        assert (called("first 1"), called("second 1")) == (3, 2)
        site.cache.delete_memoized_verhash(double)  # there is one now
        site.cache.clear()
        assert (called("double 4"), called("first 1")) == (5, 4)


def test_delete_many_has_and_dict(site: Site) -> None:
    with site.app.app_context():
        site.cache.set_many({"a": 1, "b": 2, "c": 3})
        site.cache.delete_many("a", "b")
        assert site.cache.get_dict("a", "b", "c") == {"a": None, "b": None, "c": 3}
        assert (site.cache.has("a"), site.cache.has("c")) == (False, True)
        assert site.cache.unlink("c") == ["c"]
        assert site.cache.add("c", 4)
        assert not site.cache.add("c", 5)
        assert site.cache.delete("c")


@pytest.mark.parametrize(("cache_none", "count"), [(False, 2), (True, 1)])
def test_none(site: Site, cache_none: bool, count: int) -> None:
    @site.cache.memoize(60, cache_none=cache_none)
    def nothing() -> None:
        calls["nothing"] += 1

    with site.app.app_context():
        nothing(), nothing()
    assert calls["nothing"] == count


def test_what_cannot_be_read_is_no_none(site: Site) -> None:
    get = view(site, lambda: "text", cache_none=True)
    get()
    with site.app.app_context():
        inner: Any = site.cache.cache
        with shale.Cache(inner._cache.directory, serializer=Broken()) as writer:
            writer.set("view//page", Thing())
        assert not site.cache.has("view//page")
    assert [get().data for _ in range(2)] == [b"text"] * 2
    assert calls["page"] == 2


class Broken(FlaskSerializer):
    def dumps(self, value: Any, /) -> bytes:
        return b"?"


def test_what_is_too_large_is_not_cached(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = Flask("app")
    config = {"CACHE_TYPE": "shale.adapters.flask_caching.shale_cache", "CACHE_DIR": directory}
    cache = Cache(app, config={**config, "CACHE_OPTIONS": {"capacity": "16MiB"}})
    with app.app_context():
        cache.set("k", 1)
        for _ in range(2):
            assert not cache.set("k", bytes(5_000_000))
        assert cache.get("k") is None
        assert not cache.add("k", bytes(5_000_000))
    assert len(refused(caplog)) == 1


def test_timeouts(directory: Path) -> None:
    app = Flask("app")
    config = {
        "CACHE_TYPE": "shale.adapters.flask_caching.shale_cache",
        "CACHE_DIR": directory,
        "CACHE_DEFAULT_TIMEOUT": 1000,
        "CACHE_OPTIONS": {"capacity": "16MiB"},
    }
    cache = Cache()
    cache.init_app(app, config)
    with app.app_context():
        cache.set("default", 1)
        cache.set("own", 1, timeout=500)
        cache.set("delta", 1, timeout=timedelta(seconds=200))
        cache.set("none", 1, timeout=0)
        inner: Any = cache.cache
        ages = {name: inner._cache.entry(name).ttl for name in ("default", "own", "delta", "none")}
    assert 900 < ages["default"] <= 1000
    assert 400 < ages["own"] <= 500
    assert 100 < ages["delta"] <= 200
    assert ages["none"] == shale.NEVER


def test_no_directory() -> None:
    with pytest.raises(ValueError, match="CACHE_DIR is not set"):
        Cache(Flask("app"), config={"CACHE_TYPE": "shale.adapters.flask_caching.shale_cache"})


WORKER = """
import sys
from flask import Flask, jsonify
from flask_caching import Cache
app = Flask("site")
app.config["CACHE_TYPE"] = "shale.adapters.flask_caching.shale_cache"
app.config["CACHE_DIR"] = sys.argv[1]
pages = Cache(app)

@pages.memoize(60)
def made(): return sys.argv[2]

@app.route("/")
@pages.cached(timeout=60)
def front(): return jsonify(by=sys.argv[2], made=made())

if "forget" in sys.argv:
    with app.app_context():
        pages.delete_memoized(made)
        pages.delete("view//")
print(app.test_client().get("/").text.strip())
"""


def test_workers_share_one_cache(directory: Path) -> None:
    def worker(*arguments: str) -> str:
        command = [sys.executable, "-c", WORKER, str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    first = worker("first")
    assert '"made":"first"' in first
    assert worker("second") == first
    third = worker("third", "forget")
    assert '"by":"third","made":"third"' in third
    assert worker("fourth") == third


def not_found() -> Any:
    return default_exceptions[404]("why")


@pytest.mark.parametrize("make", [with_everything, lambda: Markup("a"), not_found])
def test_bytes_are_checked(make: Callable[[], Any]) -> None:
    serializer = FlaskSerializer()
    with Flask("app").test_request_context():
        data = serializer.dumps(make())
        check_damaged(serializer, data)


FORMS = [
    ("response", 200, [], b""), ("response", "200 OK", [], "text"), ("response", "200 OK", [["a"]], b""),
    ("response", "200 OK", [["a", 1]], b""), ("response", "200 OK", [["a", "b\r\nc: d"]], b""), ("markup", b"a"),
    ("markup",), ("error", 1000, None, None), ("error", 404, None, ("unknown",)),
    ("error", 404, None, ("markup", "a")), ("unknown",), (1,), ([],),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_wrong_parts_are_a_miss(site: Site, form: Any, caplog: pytest.LogCaptureFixture) -> None:
    get = view(site, lambda: jsonify(a=1))
    get()

    class Writer(FlaskSerializer):
        def form(self, value: Any) -> Any:
            return form if type(value) is Thing else None

    with site.app.app_context():
        inner: Any = site.cache.cache
        with shale.Cache(inner._cache.directory, serializer=Writer()) as writer:
            writer.set("view//page", Thing())
    assert (get().json, get().json) == ({"a": 1}, {"a": 1})
    assert calls["page"] == 2
    assert "cannot be read, and is a miss" in refused(caplog)[0]
