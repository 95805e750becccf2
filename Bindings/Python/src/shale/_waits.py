"""Logs that a call has waited for a second for a lock that another process holds.

The library tells so in the waiting thread, in the middle of the call. No Python may run there: a
signal handler would run first, and what it raises would be lost, as ctypes cannot hand it on. So
C alone takes the sentence, and starts a thread that logs it: to look up what a defaultdict does
not have calls its factory, and puts it in.
"""

from __future__ import annotations

import _thread
import operator
import time
from collections import defaultdict
from functools import partial
from typing import Any, Final

from . import _abi, _log
from ._errors import in_python


def _log_told() -> None:
    # The factory has started this thread before the sentence is in; or another one took it.
    for _ in range(1000):
        if _told:
            break
        time.sleep(0.001)
    while _told:
        try:
            sentence, _thread_number = _told.popitem()
        except KeyError:
            return
        _log.warn("%s", in_python(sentence))


_told: Final[defaultdict[bytes, int]] = defaultdict(
    partial(_thread.start_new_thread, _log_told, ())
)

LISTENER: Final[Any] = _abi.Listener(operator.getitem)
CONTEXT: Final = id(_told)
