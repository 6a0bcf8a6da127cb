"""Assembles the gateway: parts, routes, start and stop."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from millstream.config.proxy_settings import ProxySettings
from millstream.config.settings import Settings
from millstream.doors import Caller, Doors, SettlementKind
from millstream.gateway.acknowledgements import Acknowledgements
from millstream.gateway.admin import Admin
from millstream.gateway.admin_groups import AdminGroups
from millstream.gateway.admin_queues import AdminQueues
from millstream.gateway.brokers import Brokers
from millstream.gateway.consume import Consume
from millstream.gateway.hubs import Hubs
from millstream.gateway.metrics import GatewayMetrics
from millstream.gateway.places import Turns
from millstream.gateway.problems import HttpQuotas, problem_of, rendered
from millstream.gateway.produce import Produce
from millstream.gateway.reading import Reading
from millstream.gateway.redrive import Redrive
from millstream.gateway.ring import cluster_virtual_nodes
from millstream.gateway.topics import Topics
from millstream.http.messages import Answer, Handler, Problem, Request, Response, json_response
from millstream.http.pages import docs_routes
from millstream.http.routes import Route
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Registry
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError
from millstream.runtime.clock import Clock
from millstream.runtime.host import Host, SystemHost

_log = get_logger("millstream.gateway")

_ADMIN_BODY_BYTES = 4 << 20
_ASK_AGAIN_S = 5.0

Served = Callable[[Request, Caller], Awaitable[Answer]]


class Gateway:
    """`routes` go to an `HttpServer`. Call `start` once there is a cluster, `stop` after the server has stopped."""

    def __init__(
        self, doors: Doors, settings: ProxySettings, *, registry: Registry, clock: Clock, host: Host
    ) -> None:
        metrics = self._metrics = GatewayMetrics.create(registry)
        self._settings = settings
        self._clock = clock
        self._metadata = doors.metadata
        self._comparing: asyncio.Task[None] | None = None
        quotas = HttpQuotas(doors.quotas, clock.monotonic)
        self._topics = Topics(doors.metadata, doors.authoriser, settings)
        self._brokers = Brokers(doors, settings, metrics)
        member = f"http-{host.new_id().hex[:16]}"
        self._hubs = Hubs(doors.queues, member, settings.release_delay / 1000, clock.monotonic)
        turns = Turns(asyncio.get_running_loop().call_soon)
        self._produce = Produce(doors.messages, self._topics, self._brokers, turns, quotas, settings, metrics)
        self._consume = Consume(self._hubs, self._topics, doors.metadata, quotas, settings, metrics)
        self._acknowledgements = Acknowledgements(
            doors.queues, self._hubs, metrics, is_legacy=settings.legacy
        )
        self._reading = Reading(doors.partitions, self._topics, quotas)
        self._admin_groups = AdminGroups(doors.coordinators, doors.metadata, doors.authoriser)
        redrive = Redrive(doors.queues, doors.messages, self._topics, member, turns)
        self._admin_queues = AdminQueues(
            doors.queues, doors.metadata, doors.authoriser, self._topics, redrive, clock.now_ms
        )
        self._admin = Admin(doors.metadata, doors.view, doors.authoriser, self._topics, settings)

    async def start(self) -> None:
        self._brokers.start()
        self._consume.start()
        self._comparing = asyncio.get_running_loop().create_task(
            keep_going(self._compare_ring), name="compare ring"
        )

    async def _compare_ring(self) -> None:
        """Compare the ring settings once a controller answers."""
        own = self._settings.virtual_nodes
        while True:
            placed_by = await cluster_virtual_nodes(self._metadata)
            if placed_by is not None:
                break
            await asyncio.sleep(_ASK_AGAIN_S)
        if placed_by != own:
            _log.warning(
                "ring preview differs from cluster", proxy_virtual_nodes=own,
                replication_virtual_nodes=placed_by,
            )  # fmt: skip

    async def stop(self) -> None:
        if self._comparing is not None:
            self._comparing.cancel()
        self._consume.stop()
        await self._hubs.stop()
        await self._brokers.stop()

    def health(self) -> dict[str, Any]:
        """Fields of /health beside the node's own."""
        return {
            "brokers_total": self._brokers.total,
            "brokers_healthy": self._brokers.healthy,
            "timestamp": self._now(),
        }

    @cached_property
    def _document(self) -> Response:
        # Few read it, and it takes 0.4 MB.
        from millstream.gateway.openapi import openapi_document

        return json_response(openapi_document(self._settings))

    @property
    def routes(self) -> dict[str, Handler | Route]:
        body = self._settings.max_body_size
        routes: dict[str, Handler | Route] = {
            "POST /produce": Route(self._served("produce", self._produce.handle), body),
            # Consuming takes messages from others, so pages of other sites may not do it.
            "GET /consume": Route(self._served("consume", self._consume.handle), changes=True),
            "GET /topics": self._served("topics", self._list_topics),
            "GET /topics/{topic}/partitions/{partition}/records": self._served(
                "records", self._reading.handle
            ),
            "GET /status": self._served("status", self._status),
            "GET /stats": self._served("stats", self._stats),
            "GET /openapi.json": lambda _request: self._document,
            **docs_routes(),
        }
        for path, kind in (
            ("/ack", SettlementKind.ACCEPT),
            ("/nack", SettlementKind.RELEASE),
            ("/reject", SettlementKind.REJECT),
        ):
            routes[f"POST {path}"] = Route(self._served(path[1:], self._settle(kind)), 1 << 20)
        admin = {**self._admin.routes(), **self._admin_groups.routes(), **self._admin_queues.routes()}
        for name, served in admin.items():
            routes[name] = Route(
                self._served("admin", served), _ADMIN_BODY_BYTES, changes=not name.startswith("GET ")
            )
        return routes

    def _settle(self, kind: SettlementKind) -> Served:
        async def handle(request: Request, caller: Caller) -> Answer:
            return await self._acknowledgements.handle(request, caller, kind)

        return handle

    def _served(self, endpoint: str, served: Served) -> Handler:
        """Counts a call, and turns exceptions into the contract's answers."""
        requests, duration = self._metrics.requests, self._metrics.duration.labels(endpoint)
        now = self._clock.monotonic

        async def handle(request: Request) -> Answer:
            started = now()
            answer: Answer
            try:
                answer = await served(request, caller_of(request))
            except Problem as problem:
                answer = rendered(problem, request)
            except KafkaError as error:
                answer = rendered(problem_of(error), request)
            except RecursionError:
                answer = rendered(Problem(400, "bad body: its JSON is nested too deeply"), request)
            requests.labels(endpoint, str(answer.status)).value += 1
            duration.observe(now() - started)
            return answer

        return handle

    async def _list_topics(self, _request: Request, caller: Caller) -> Response:
        def listed() -> Response:
            topics = self._topics.visible(caller)
            return json_response({name: [*range(len(topic.partitions))] for name, topic in topics.items()})

        return await asyncio.to_thread(listed)

    async def _status(self, _request: Request, caller: Caller) -> Response:
        visible = self._topics.visible(caller)
        settings = self._settings

        def answer() -> Response:
            by_topic = self._brokers.distribution(visible)
            together: dict[str, set[int]] = {url: set() for url in self._brokers.status()}
            for led in by_topic.values():
                for url, partitions in led.items():
                    together.setdefault(url, set()).update(partitions)
            return json_response(
                {
                    "proxy_config": {
                        "broker_service": settings.broker_service,
                        "broker_count": settings.broker_count,
                        "virtual_nodes": settings.virtual_nodes,
                        "max_partitions": settings.max_partitions,
                        "health_interval_seconds": settings.health_interval / 1000,
                        "request_timeout_seconds": settings.request_timeout / 1000,
                        "connection_timeout_seconds": settings.connection_timeout / 1000,
                        "legacy": settings.legacy,
                    },
                    "broker_status": self._brokers.status(),
                    "partition_distribution": {url: sorted(found) for url, found in together.items()},
                    "partition_leaders": by_topic,
                    "timestamp": self._now(),
                }
            )

        return await asyncio.to_thread(answer)

    async def _stats(self, _request: Request, _caller: Caller) -> Response:
        metrics = self._metrics
        return json_response(
            {
                "produced": metrics.produced.value,
                "delivered": metrics.delivered.value,
                "streams": int(metrics.streams.value),
                "in_flight_bytes": int(metrics.in_flight_bytes.value),
                "buffered_bytes": int(metrics.buffered_bytes.value),
                "topics": len(self._metadata.image.topics),
            }
        )

    def _now(self) -> str:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def attach(doors: Doors, registry: Registry, settings: Settings, clock: Clock) -> Gateway:
    """The gateway of a node, for `broker.process.run`."""
    return Gateway(doors, settings.proxy, registry=registry, clock=clock, host=SystemHost())


def caller_of(request: Request) -> Caller:
    return Caller(client_id=request.header("user-agent")[:100], host=request.peer, listener="HTTP")
