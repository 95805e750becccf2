"""Logs that a call has waited for a second for a lock that another process holds.

The library reports it in the waiting thread, during the call. No Python code may run there: a
signal handler would run first, and ctypes would lose its exception. So only C code runs, which
stores the message and starts a thread that logs it: looking up a key that a defaultdict does not
have calls its factory, which starts the thread, and stores the key.
"""

from __future__ import annotations

import _thread
import operator
import time
from collections import defaultdict
from functools import partial
from typing import Any, Final

from . import abi, log
from .errors import in_python


def _log_messages() -> None:
    # The factory starts this thread before the message is stored; or another thread took it.
    for _ in range(1000):
        if _messages:
            break
        time.sleep(0.001)
    while _messages:
        try:
            message, _thread_number = _messages.popitem()
        except KeyError:
            return
        log.warn("%s", in_python(message))


_messages: Final[defaultdict[bytes, int]] = defaultdict(
    partial(_thread.start_new_thread, _log_messages, ())
)

LISTENER: Final[Any] = abi.Listener(operator.getitem)
CONTEXT: Final = id(_messages)
