"""Runs the snippets of a page in order, with the functions that they call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from support import REPOSITORY

PAGES = REPOSITORY / "Documentation" / "guide" / "python"
MIGRATING = REPOSITORY / "Documentation" / "migrating"


def snippets(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


class World:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, *arguments: Any, **options: Any) -> str:
        self.asked.append((*arguments, *options.items()))
        return f"answer {len(self.asked)}"

    def ask_the_model(self, model: str, messages: list[Any], **settings: Any) -> dict[str, Any]:
        return {"text": self.ask(model), "stop": "length" if not messages else "end"}

    async def download_async(self, page: str) -> str:
        return self.ask(page)

    def fetch(self, page: str, etag: bytes | None) -> tuple[int, str | None, bytes]:
        self.ask(page, etag)
        return (304, None, b"1") if etag else (200, "body", b"1")


def run(page: Path, directory: Path, *chosen: str, **more: Any) -> tuple[World, dict[str, Any]]:
    """Runs all snippets, or those that contain one of the chosen texts. Returns their names too."""
    world = World()
    names: dict[str, Any] = {
        "__name__": "page",
        "ask_the_exchange": world.ask,
        "ask_the_model": world.ask_the_model,
        "download_async": world.download_async,
        "fetch": world.fetch,
        "render": world.ask,
        "write_the_report": world.ask,
        **more,
    }
    for number, text in enumerate(snippets(page)):
        if not chosen or any(each in text for each in chosen):
            text = re.sub(r"/var/cache|/tmp/shale-example", str(directory), text)
            exec(compile(text, f"{page}#{number}", "exec"), names)
    return world, names
