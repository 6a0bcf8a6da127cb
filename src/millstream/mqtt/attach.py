"""Attaches the MQTT door to a node."""

from collections.abc import Mapping

from millstream.config.errors import ConfigError
from millstream.config.mqtt_settings import MqttSettings
from millstream.config.settings import Settings
from millstream.doors.attached import Attach, AttachedDoor
from millstream.doors.doors import Doors
from millstream.http.messages import Handler
from millstream.http.routes import Route
from millstream.mqtt.door import Address, MqttDoor
from millstream.mqtt.limits import MqttLimits, SlowSubscribers
from millstream.mqtt.rules import rules_of
from millstream.mqtt.statistics import watch
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Registry
from millstream.runtime.clock import Clock
from millstream.runtime.host import SystemHost

log = get_logger("millstream.mqtt")


class NodeMqtt:
    """The door as a node starts and stops it."""

    def __init__(self, door: MqttDoor, settings: MqttSettings) -> None:
        self._door = door
        self._settings = settings
        self._addresses: dict[str, str] = {}

    @property
    def routes(self) -> Mapping[str, Handler | Route]:
        return {}

    def health(self) -> Mapping[str, object]:
        return {"mqtt": self._addresses}

    async def start(self) -> None:
        settings = self._settings
        try:
            bound = await self._door.start(_address(settings.listen), _address(settings.websocket_listen))
        except OSError as error:
            raise CannotListen(f"cannot listen for MQTT clients: {error.strerror or error}") from error
        self._addresses = {name: f"{host}:{port}" for name, (host, port) in bound.items()}
        log.info("listening for MQTT clients", **self._addresses)

    async def stop(self) -> None:
        await self._door.stop()


class CannotListen(OSError):
    """The address cannot be bound; the message says why."""


def attach_mqtt(settings: Settings) -> Attach:
    """Returns the function that makes the door. ConfigError for invalid rules."""
    mqtt = settings.mqtt
    rules = rules_of(mqtt)
    limits = limits_of(mqtt)

    def attach(doors: Doors, registry: Registry, _settings: Settings, clock: Clock) -> AttachedDoor:
        host = SystemHost()
        door = MqttDoor(
            doors, rules, limits, clock, lambda: host.new_id().hex, max_connections=mqtt.max_connections
        )
        watch(registry, door.values)
        return NodeMqtt(door, mqtt)

    return attach


def limits_of(settings: MqttSettings) -> MqttLimits:
    return MqttLimits(
        max_packet_bytes=settings.max_packet_size,
        receive_maximum=settings.receive_maximum,
        max_inflight=settings.max_inflight,
        max_queued=settings.max_queued,
        max_queued_bytes=settings.max_queued_bytes,
        max_unsent_bytes=settings.max_unsent_bytes,
        slow_subscribers=SlowSubscribers(settings.slow_subscribers),
        topic_alias_maximum=settings.topic_alias_maximum,
        max_subscriptions=settings.max_subscriptions,
        refused_filters=settings.refused_filters,
        max_queue_held=settings.max_queue_held,
        max_retained=settings.max_retained,
        max_retained_bytes=settings.max_retained_size,
        delivery_batch=settings.delivery_batch,
        tail_messages=settings.tail_messages,
        direct_queues=frozenset(settings.direct_queues),
        servers=_servers(settings.servers),
        moved_to=settings.moved_to,
        copies_overlapping=settings.overlapping_filters == "each",
        tells_unwanted=settings.tell_no_subscribers,
        explains=settings.reason_strings,
        max_session_expiry_s=settings.max_session_expiry // 1000,
        server_keep_alive_s=settings.server_keep_alive // 1000,
        connect_timeout_s=settings.connect_timeout / 1000,
    )


def _servers(texts: tuple[str, ...]) -> dict[int, str]:
    servers = {}
    for text in texts:
        number, equals, address = text.partition("=")
        if not equals or not number.strip().isdecimal() or not address.strip().rpartition(":")[2].isdecimal():
            raise ConfigError("mqtt.servers", f"{text!r} is not NODE_ID=HOST:PORT")
        servers[int(number)] = address.strip()
    return servers


def _address(text: str | None) -> Address | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
