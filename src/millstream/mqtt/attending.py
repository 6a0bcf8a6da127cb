"""Keeps the sessions of this node's clients alive, and learns which ones were taken over elsewhere.

One request waits at each coordinator that keeps such sessions, however many there are.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from millstream.doors import CoordinatorKind, Coordinators
from millstream.doors.caller import Caller
from millstream.doors.mqtt_sessions import Attend, Confirm
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError

_PAUSE_SECONDS = 0.5
_TIMEOUT_SECONDS = 8.0


class Attended(Protocol):
    client_id: str
    epoch: int
    ended: "asyncio.Future[None]"
    """Set when the coordinator knows that the connection ended."""

    def taken_over(self) -> None: ...


class Attending:
    """`clients` by id: those connected here, and those whose session is being opened."""

    def __init__(self, coordinators: Coordinators, caller: Caller, node: str) -> None:
        self._coordinators = coordinators
        self._caller = caller
        self._node = node
        self.clients: dict[str, Attended] = {}
        self.waiting: dict[str, Attended] = {}
        """By id, the newest client that waits for an earlier connection of that id to end."""
        self._shards: dict[int, dict[str, None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(self, client: Attended, shard: int) -> None:
        """Keep the opened session alive."""
        self.clients[client.client_id] = client
        self._shards.setdefault(shard, {})[client.client_id] = None
        if shard not in self._tasks:
            work = keep_going(partial(self._run, shard))
            task = asyncio.get_running_loop().create_task(work, name=f"mqtt attend {shard}")
            self._tasks[shard] = task

    def remove(self, client: Attended, shard: int) -> None:
        if self.clients.get(client.client_id) is client:
            self.forget(client)
            self._shards[shard].pop(client.client_id, None)

    def forget(self, client: Attended) -> None:
        """For a client whose session was not opened."""
        del self.clients[client.client_id]

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, shard: int) -> None:
        after, incarnation = 0, None
        clients = self._shards[shard]
        while clients:
            # Any client of the shard leads to its coordinator.
            key = next(iter(clients))
            try:
                attended = await self._coordinators.ask(
                    self._caller,
                    CoordinatorKind.MQTT_SESSION,
                    key,
                    Attend(self._node, after),
                    timeout_s=_TIMEOUT_SECONDS,
                )
                if incarnation is not None and attended.incarnation != incarnation:
                    await self._confirm(key, clients)
                incarnation, after = attended.incarnation, attended.last_event
                self._displace(attended.displaced)
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)
        del self._tasks[shard]

    async def _confirm(self, key: str, clients: Iterable[str]) -> None:
        sessions = tuple((client_id, self.clients[client_id].epoch) for client_id in clients)
        confirmed = await self._coordinators.ask(
            self._caller, CoordinatorKind.MQTT_SESSION, key, Confirm(self._node, sessions)
        )
        self._displace(confirmed.displaced)

    def _displace(self, displaced: tuple[tuple[str, int], ...]) -> None:
        for client_id, epoch in displaced:
            client = self.clients.get(client_id)
            if client is not None and client.epoch == epoch:
                client.taken_over()
