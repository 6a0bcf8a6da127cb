"""Senders and collectors at two HTTP gateways that come and go: `/produce`, `/consume` and `/ack` under all faults.

What `/produce` acknowledged is delivered, and not again after `/ack` confirmed it, through either gateway.
"""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any
from urllib.parse import urlencode

import msgspec

from millstream.broker.routing.gateway_doors import GatewayDoors
from millstream.config.proxy_settings import ProxySettings
from millstream.doors import Acquired, Caller, NewTopic, Place, Queues
from millstream.doors.access import AllowAll, NoQuotas
from millstream.gateway.gateway import Gateway
from millstream.http.messages import Answer, Request, Response, Stream
from millstream.http.routes import Routes
from millstream.observability.metrics import Registry
from millstream.protocol.errors import KafkaError
from millstream.testing.history import Anomaly
from millstream.testing.history.queues import QueueEvent, QueueStep, judge_queue
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.machine import Machine

TOPIC, GROUP = "http", "collectors"
_GATEWAYS = 2
_COLLECTORS = 2
_PARTITIONS = 3
_ANSWER_SECONDS = 15.0
_PAUSE_SECONDS = 0.5
_CALLER = Caller(client_id="simulated collector")


class _TimedQueues:
    """When each delivered message was requested; before that, its acknowledgement may not have been seen."""

    def __init__(self, queues: Queues, now: Any) -> None:
        self.asked: dict[tuple[int, int], float] = {}
        self._queues = queues
        self._now = now

    async def acquire(self, caller: Caller, group: str, member: str, place: Place, **wanted: Any) -> Acquired:
        start = self._now()
        acquired = await self._queues.acquire(caller, group, member, place, **wanted)
        for each in acquired.ranges:
            for offset in range(each.first_offset, each.last_offset + 1):
                self.asked[place.partition, offset] = start
        return acquired

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)


class _Gateway:
    """One life of a gateway's process, with the clients connected to it."""

    def __init__(self, cluster: SimulatedCluster, name: str, random: Random) -> None:
        self.machine = Machine(name, cluster.loop, random)
        self.process = self.machine.start()
        addresses = [f"{host}:{port}" for host, port in cluster.addresses]
        self._doors = GatewayDoors(addresses, AllowAll(), NoQuotas(), self.machine.clock)
        self.queues = _TimedQueues(self._doors.doors.queues, cluster.loop.time)
        self._loop = cluster.loop

    async def start(self) -> None:
        self._doors.start()
        doors = msgspec.structs.replace(self._doors.doors, queues=self.queues)
        self._gateway = Gateway(
            doors, ProxySettings(), registry=Registry(), clock=self.machine.clock, host=self.machine
        )
        await self._gateway.start()
        self._routes = Routes(self._gateway.routes)
        while TOPIC not in doors.metadata.image.topics:
            try:
                await doors.metadata.create_topics(_CALLER, [NewTopic(TOPIC, _PARTITIONS, 3)])
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def stop(self) -> None:
        await self._gateway.stop()
        await self._doors.stop()

    def kill(self) -> None:
        self.process.is_alive = False
        self._loop.network.process_died(self.process, silently=False)

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self._loop.create_task(work, name=self.machine.name, context=self.process.context)

    async def ask(self, method: str, path: str, body: bytes = b"", last: str = "", **query: str) -> Answer:
        """Call this gateway as a client; TimeoutError if it does not answer, as after a kill."""
        headers = {b"last-event-id": last.encode()} if last else {}
        encoded = urlencode({"topic": TOPIC, "group": GROUP, **query}).encode()
        found = self._routes.find(method, path)
        request = Request(method, path, encoded, headers, found.params, "simulated", body)

        async def answered() -> Answer:
            answer = found.route.handler(request)
            return answer if isinstance(answer, Response | Stream) else await answer

        task = self.run(answered())
        await asyncio.wait([task], timeout=_ANSWER_SECONDS)
        if not task.done():
            raise TimeoutError
        answer: Answer = task.result()
        return answer


class _Collector:
    """Reads streams one after the other and acknowledges the messages. A `http.messages.Sink`."""

    def __init__(self, clients: "HttpClients", at: _Gateway, random: Random) -> None:
        self._clients = clients
        self._at = at
        self._random = random
        self._got: asyncio.Queue[tuple[str, str, int]] = asyncio.Queue()
        self._last = ""

    async def send(self, data: bytes) -> None:
        for event in data.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines() if not line.startswith(":"))
            if "id" in fields:
                message = msgspec.json.decode(fields["data"])
                self._last = fields["id"]
                place = (message["partition"], message["offset"])
                self._clients.note(message["payload"], QueueStep.DELIVERED, self._at.queues.asked[place])
                self._got.put_nowait((self._last, message["payload"], message["partition"]))

    async def read(self) -> None:
        settling = asyncio.ensure_future(self._settle_all())
        try:
            while True:
                try:
                    stream = await self._at.ask("GET", "/consume", last=self._last, permits="10")
                except TimeoutError:
                    continue
                if isinstance(stream, Stream):
                    # The client disconnects, sometimes in the middle of a stream.
                    reading = asyncio.ensure_future(stream.run(self))
                    await asyncio.wait([reading], timeout=self._random.expovariate(0.1))
                    reading.cancel()
                await asyncio.sleep(self._random.expovariate(1 / _PAUSE_SECONDS))
        finally:
            settling.cancel()

    async def _settle_all(self) -> None:
        while True:
            message_id, value, partition = await self._got.get()
            chance = self._random.random()
            if chance < 0.1:
                continue
            kind = "/ack" if chance < 0.9 else "/nack"
            status = 0
            try:
                gateway = self._random.choice(self._clients.gateways)
                body = msgspec.json.encode({"id": message_id})
                answer = await gateway.ask("POST", kind, body, partition=str(partition))
                status = answer.status
            except TimeoutError:
                pass
            if kind == "/ack" and status != 400:
                step = QueueStep.ACKED if status == 200 else QueueStep.TRIED
                self._clients.note(value, step, self._clients.now())


class HttpClients:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.events: list[QueueEvent] = []
        self.gateways: list[_Gateway] = []
        self.now = cluster.loop.time
        self._cluster = cluster
        self._random = random
        self._lives = 0
        self._is_over = False
        self._put: set[str] = set()
        self._delivered: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def acknowledged(self) -> int:
        return sum(event.step is QueueStep.ACKED for event in self.events)

    def note(self, value: str, step: QueueStep, at: float) -> None:
        self.events.append(QueueEvent(TOPIC, value, step, at))
        if step is QueueStep.DELIVERED:
            self._delivered.add(value)

    def start(self) -> None:
        self._task = self._cluster.loop.create_task(self._run(), name="http clients")

    async def finish(self) -> None:
        """Stop the senders, and let collectors run until they have seen everything."""
        self._is_over = True
        while self._put - self._delivered:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.5)
        assert self._task is not None
        self._task.cancel()
        for gateway in self.gateways:
            gateway.kill()

    def judge(self) -> list[Anomaly]:
        return list(judge_queue(self.events))

    async def _run(self) -> None:
        while len(self.gateways) < _GATEWAYS:
            self.gateways.append(await self._new_gateway())
        while True:
            await asyncio.sleep(self._random.expovariate(0.1))
            number = self._random.randrange(_GATEWAYS)
            old = self.gateways[number]
            if self._random.random() < 0.5:
                await asyncio.wait([old.run(old.stop())], timeout=_ANSWER_SECONDS)
            old.kill()
            self.gateways[number] = await self._new_gateway()

    async def _new_gateway(self) -> _Gateway:
        self._lives += 1
        gateway = _Gateway(
            self._cluster, f"http-{self._lives}", Random(f"{self._random.getrandbits(64)} of a gateway")
        )
        await gateway.run(gateway.start())
        gateway.run(self._send(gateway, f"{self._lives}"))
        for _ in range(_COLLECTORS):
            gateway.run(_Collector(self, gateway, Random(self._random.getrandbits(64))).read())
        return gateway

    async def _send(self, gateway: _Gateway, name: str) -> None:
        random, count = gateway.machine.random, 0
        while not self._is_over:
            start, value, count = self.now(), f"{name}-{count}", count + 1
            try:
                answer = await gateway.ask("POST", "/produce", value.encode(), key=str(random.randrange(9)))
                if answer.status == 200:
                    self._put.add(value)
                    self.note(value, QueueStep.PUT, start)
            except TimeoutError:
                pass
            await asyncio.sleep(random.expovariate(1 / _PAUSE_SECONDS))
