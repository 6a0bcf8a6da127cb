"""The brokers as the gateway sees them: health checks, circuit breakers, leaders, and waiting for a leader."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec

from millstream.config.proxy_settings import ProxySettings
from millstream.doors import BrokerImage, Caller, Doors, MetadataImage, Place, TopicImage
from millstream.gateway.breaker import Breaker, BreakerState
from millstream.gateway.metrics import GatewayMetrics
from millstream.gateway.problems import NO_BROKERS, OF_THE_BROKER, UNAVAILABLE, busy
from millstream.http.messages import Problem
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError

_log = get_logger("millstream.gateway")

_LOOK_AGAIN_S = 0.1
_OPEN_VALUE = {BreakerState.CLOSED: 0.0, BreakerState.HALF_OPEN: 0.5, BreakerState.OPEN: 1.0}
_ADVICE_FOR_A_GATEWAY = "check broker_service (BROKER_SERVICE), the network, and /health of the brokers"
_ADVICE_FOR_A_NODE = "while a cluster is founded or nodes start, wait; else see `millstream cluster status`"
_PROBE = Caller(client_id="millstream-gateway", listener="HTTP")


class KnownBroker(msgspec.Struct):
    """A broker. `is_healthy` is from the last check or from the cluster."""

    url: str
    breaker: Breaker
    is_healthy: bool = True


class Brokers:
    def __init__(self, doors: Doors, settings: ProxySettings, metrics: GatewayMetrics) -> None:
        self._doors = doors
        self._settings = settings
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._known: dict[int, KnownBroker] = {}
        self._next_change: asyncio.Future[None] = self._loop.create_future()
        self._announcement_timer: asyncio.TimerHandle | None = None
        self._leaders: dict[str, int] = {}
        self._has_healthy = True
        self._checking: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None

    def start(self) -> None:
        self._discover(self._doors.metadata.image)
        self._note_healthy()
        self._unwatch = self._doors.metadata.watch(self._changed)
        self._checking = self._loop.create_task(keep_going(self._check_forever), name="gateway health checks")

    async def stop(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        if self._announcement_timer is not None:
            self._announcement_timer.cancel()

    # -- for pages and status calls

    @property
    def total(self) -> int:
        return len(self._known)

    @property
    def healthy(self) -> int:
        return sum(
            each.is_healthy and each.breaker.state is not BreakerState.OPEN for each in self._known.values()
        )

    def status(self) -> dict[str, bool]:
        return {
            each.url: each.is_healthy and each.breaker.state is not BreakerState.OPEN
            for each in self._known.values()
        }

    def url(self, broker: int) -> str:
        known = self._known.get(broker)
        return known.url if known is not None else f"broker-{broker}"

    def distribution(self, topics: Mapping[str, TopicImage]) -> dict[str, dict[str, list[int]]]:
        """The partitions that each broker leads, by topic and broker. May take long: call it off the loop."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, topic in topics.items():
            led: dict[str, list[int]] = {}
            for partition in topic.partitions:
                if partition.leader >= 0:
                    led.setdefault(self.url(partition.leader), []).append(partition.index)
            found[name] = led
        return found

    # -- sending

    async def ready(self, place: Place, size_bytes: int) -> int:
        """The leader to send to. Waits for a new one within the limits, then raises `Problem`."""
        leader = self._doors.view.leader(place)
        now = self._loop.time()
        if leader is not None and self._of(leader).breaker.allows(now):
            return leader
        gauge, settings = self._metrics.buffered_bytes, self._settings
        if gauge.value + size_bytes > settings.failover_buffer:
            self._metrics.shed.labels("failover buffer").value += 1
            raise busy("too many messages wait for a leader")
        if _log.debug_enabled:
            _log.debug("waiting for a leader", place=str(place), leader=leader)
        gauge.value += size_bytes
        try:
            async with asyncio.timeout(settings.failover_wait / 1000):
                return await self._next_leader(place)
        except TimeoutError:
            self._metrics.shed.labels("no leader").value += 1
            _log.warning("no broker to send to", place=str(place), leader=leader, healthy=self.healthy)
            if self.healthy == 0:
                raise busy(NO_BROKERS) from None
            if self._doors.view.leader(place) is None:
                raise busy(f"partition {place} has no leader yet") from None
            raise Problem(502, UNAVAILABLE) from None
        finally:
            gauge.value -= size_bytes

    async def _next_leader(self, place: Place) -> int:
        while True:
            self._announce_later()
            await asyncio.shield(self._next_change)
            leader = self._doors.view.leader(place)
            if leader is not None and self._of(leader).breaker.allows(self._loop.time()):
                return leader

    def succeeded(self, broker: int) -> None:
        self._of(broker).breaker.succeeded()
        self._metrics.broker_requests.labels(self.url(broker), "ok").value += 1

    def failed(self, broker: int, error: KafkaError) -> None:
        known = self._of(broker)
        self._metrics.broker_requests.labels(known.url, "error").value += 1
        if error.code in OF_THE_BROKER:
            known.breaker.failed(self._loop.time())
            _log.warning("broker request failed", broker=known.url, error=error.code.name)
        else:
            known.breaker.succeeded()  # it answered

    def abandoned(self, broker: int) -> None:
        self._of(broker).breaker.abandoned()

    def _note_healthy(self) -> None:
        """Log once that no broker is healthy, and once that one is again."""
        has_healthy = self.healthy > 0
        if has_healthy is not self._has_healthy:
            self._has_healthy = has_healthy
            if has_healthy:
                _log.info("brokers available again", healthy=self.healthy, known=self.total)
            else:
                advice = _ADVICE_FOR_A_GATEWAY if self._doors.view.node_id < 0 else _ADVICE_FOR_A_NODE
                _log.warning(NO_BROKERS, known=self.total, advice=advice)

    # -- changes in the cluster

    def _of(self, broker: int) -> KnownBroker:
        known = self._known.get(broker)
        if known is None:
            image = self._doors.metadata.image.brokers.get(broker)
            known = self._add(broker, _url(image) if image is not None else f"broker-{broker}")
        return known

    def _add(self, broker: int, url: str) -> KnownBroker:
        def changed(old: BreakerState, new: BreakerState) -> None:
            self._metrics.breaker_open.labels(url).value = _OPEN_VALUE[new]
            write = _log.warning if new is BreakerState.OPEN else _log.info
            write("circuit breaker changed", broker=url, was=old.value, now=new.value)
            self._note_healthy()
            self._announce_change()

        breaker = Breaker(self._settings.breaker_failures, self._settings.breaker_pause / 1000, changed)
        known = self._known[broker] = KnownBroker(url, breaker)
        self._metrics.broker_health.labels(url).value = 1
        self._metrics.breaker_open.labels(url).value = 0
        return known

    def _discover(self, image: MetadataImage) -> None:
        for broker_id, broker in image.brokers.items():
            known = self._known.get(broker_id)
            if known is None or known.url != _url(broker):
                if known is not None:
                    self._forget(broker_id)
                known = self._add(broker_id, _url(broker))
                _log.info("broker discovered", broker=known.url, id=broker_id)
            self._set_health(known, is_healthy=not broker.is_fenced)
        for gone in self._known.keys() - image.brokers.keys():
            _log.info("broker left", broker=self._known[gone].url, id=gone)
            self._forget(gone)

    def _forget(self, broker_id: int) -> None:
        url = self._known.pop(broker_id).url
        for family in (self._metrics.broker_health, self._metrics.breaker_open):
            family.remove(url)

    def _set_health(self, known: KnownBroker, *, is_healthy: bool) -> None:
        if known.is_healthy is not is_healthy:
            known.is_healthy = is_healthy
            self._metrics.broker_health.labels(known.url).value = int(is_healthy)
            write = _log.info if is_healthy else _log.warning
            write("broker health changed", broker=known.url, healthy=is_healthy)
            self._note_healthy()

    def _changed(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.brokers is not new.brokers:
            self._discover(new)
            self._note_healthy()
        if old.topics is not new.topics:
            self._note_failovers(old, new)
        self._announce_change()

    def _note_failovers(self, old: MetadataImage, new: MetadataImage) -> None:
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is None or before is topic:
                continue
            for was, now in zip(before.partitions, topic.partitions, strict=False):
                if was.leader != now.leader and was.leader >= 0:
                    to = self.url(now.leader) if now.leader >= 0 else None
                    _log.info("failover", place=f"{name}-{now.index}", left=self.url(was.leader), to=to)

    def _announce_change(self) -> None:
        change, self._next_change = self._next_change, self._loop.create_future()
        change.set_result(None)

    def _announce_later(self) -> None:
        """Look again soon: a leader may return without a metadata change, when its node is alive again."""
        if self._announcement_timer is None:

            def announce() -> None:
                self._announcement_timer = None
                self._announce_change()

            self._announcement_timer = self._loop.call_later(_LOOK_AGAIN_S, announce)

    # -- health checks

    async def _check_forever(self) -> None:
        while True:
            with contextlib.suppress(KafkaError):
                await self._check()
            await asyncio.sleep(self._settings.health_interval / 1000)

    async def _check(self) -> None:
        image = self._doors.metadata.image
        led, leaders = _one_led_by_each(image)
        taking_part = {broker.broker_id for broker in self._doors.view.brokers()}
        for broker_id, known in [*self._known.items()]:
            is_healthy = broker_id in taking_part and await self._answers(led.get(broker_id))
            self._metrics.health_checks.labels(known.url, "ok" if is_healthy else "failed").value += 1
            self._set_health(known, is_healthy=is_healthy)
        distribution = {known.url: leaders.get(broker_id, 0) for broker_id, known in self._known.items()}
        if distribution != self._leaders:
            self._leaders = distribution
            _log.info("partition distribution changed", leaders=distribution)
            most, least = max(distribution.values(), default=0), min(distribution.values(), default=0)
            if most > 2 * least + 2:
                _log.warning(
                    "partition distribution uneven", leaders=distribution,
                    advice="millstream cluster rebalance, or more virtual nodes with placement ring",
                )  # fmt: skip

    async def _answers(self, place: Place | None) -> bool:
        """Ask for the offsets of a partition that the broker leads. Without one, rely on the cluster."""
        if place is None:
            return True
        try:
            async with asyncio.timeout(self._settings.connection_timeout / 1000):
                await self._doors.partitions.offsets(_PROBE, place)
        except TimeoutError:
            return False
        except KafkaError as error:
            return error.code not in OF_THE_BROKER
        return True


def _url(broker: BrokerImage) -> str:
    if not broker.endpoints:
        return f"broker-{broker.broker_id}"
    return f"tcp://{broker.endpoints[0].host}:{broker.endpoints[0].port}"


def _one_led_by_each(image: MetadataImage) -> tuple[dict[int, Place], dict[int, int]]:
    led: dict[int, Place] = {}
    leaders: dict[int, int] = {}
    for name, topic in image.topics.items():
        for partition in topic.partitions:
            if partition.leader >= 0:
                led.setdefault(partition.leader, Place(name, partition.index))
                leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
    return led, leaders
