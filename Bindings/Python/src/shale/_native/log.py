"""The logger "shale". `logging` is imported when something is logged."""

from __future__ import annotations

from typing import Any


def warn(message: str, *arguments: Any, error: BaseException | None = None) -> None:
    import logging

    logging.getLogger("shale").warning(message, *arguments, exc_info=error)
