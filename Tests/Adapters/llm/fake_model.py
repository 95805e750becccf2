"""A server with the interface of a language model (Scripts/test-adapters llm)."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "Bindings" / "Python" / "tests"))

# Otherwise LiteLLM downloads prices when it is imported, and DSPy opens a cache of its own.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Model:
    """A server with OpenAI's interface, which counts."""

    def __init__(self, url: str) -> None:
        self.options = {"api_base": url, "api_key": "none"}
        self.asked: list[dict[str, Any]] = []

    def reply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        usage: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        if path.endswith("/embeddings"):
            data = [
                {"object": "embedding", "index": index, "embedding": [float(len(text)), 0.5]}
                for index, text in enumerate(body["input"])
            ]
            return {"object": "list", "model": body["model"], "data": data, "usage": usage}
        call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"n": 1}'}}
        token = {"token": "a", "logprob": -0.25, "bytes": [97], "top_logprobs": []}
        choice = {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": f"answer {len(self.asked)}", "tool_calls": [call]},
            "logprobs": {"content": [token]},
        }
        usage |= {"prompt_tokens_details": {"cached_tokens": 1}}
        return {
            "id": f"id-{len(self.asked)}",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }


@pytest.fixture
def model() -> Iterator[Model]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(found.reply(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found = Model(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()
