"""The sentinels of a client, which name the primary.

The client libraries ask for the list of primaries, which names a new primary only when the last
replica follows it, and wait for each sentinel as long as its own client does.
"""

from __future__ import annotations

import time
from typing import Any, Union

from ._errors import RemoteError
from ._resp import Connector
from ._wire import Wire

Address = tuple[str, int]


def sentinels_of(client: Any, timeout: float, retry: float) -> Union[Sentinels, None]:
    """The sentinels that name the primary to which a client connects, if it has any."""
    pool = client.connection_pool
    manager = getattr(pool, "sentinel_manager", None)
    if manager is None or not pool.is_master:
        return None
    return Sentinels(manager, pool.service_name, timeout, retry)


class Sentinels:
    def __init__(self, manager: Any, name: str, timeout: float, retry: float) -> None:
        self._name = name
        self._host: Union[str, None] = getattr(manager, "_force_master_ip", None)
        self._wires = [Wire(Connector(each), timeout, retry) for each in manager.sentinels]
        """The one that answered last comes first."""

    def primary(self, deadline: float) -> Address:
        """The address of the primary, as the first sentinel that answers names it. RemoteError if
        none does by half of the time that is left: the rest is for connecting."""
        wires = self._wires
        end = (time.monotonic() + deadline) / 2
        why = "none is known"
        for number, wire in enumerate(wires):
            now = time.monotonic()
            share = min((end - now) / (len(wires) - number), wire.timeout)
            try:
                found = self._ask(wire, now + share)
            except RemoteError as error:
                why = str(error)
                continue
            if isinstance(found, list):
                if number:
                    self._wires = [wire, *wires[:number], *wires[number + 1 :]]
                host, port = found
                return self._host or host.decode(), int(port)
            why = f"none knows {self._name}" if found is None else str(found)
        raise RemoteError(f"no sentinel names the primary: {why}")

    def _ask(self, wire: Wire, deadline: float) -> Any:
        command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name]
        with wire.connection(deadline) as connection:
            return connection.call([command], deadline)[0]

    def after_fork(self) -> None:
        for each in self._wires:
            each.after_fork()

    def close(self) -> None:
        for each in self._wires:
            each.idle.close()
