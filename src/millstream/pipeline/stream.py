"""A whole stream: the topic made sure of, a producer that never gives up, the points sent, and the account of it."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.client import Producer, ProducerConfig
from millstream.pipeline.gateway_producer import GatewayProducer
from millstream.pipeline.mqtt_producer import MqttProducer
from millstream.pipeline.sender import Sender
from millstream.pipeline.sources import Burst
from millstream.pipeline.streamer import Limits, Observer, Streamer, Summary
from millstream.pipeline.topics import ensure_topic

_NEVER_MS = 2**31 - 1
_SAY_EVERY_TRIES = 10


@dataclass(frozen=True, slots=True)
class Target:
    """Where points go; `partitions` count when the topic has to be created."""

    bootstrap: str
    topic: str
    partitions: int = 6
    compression: str = "lz4"
    url: str | None = None
    """Of a gateway or an MQTT listener, through which the points go instead."""


def run_stream(
    target: Target, bursts: Iterator[Burst], observer: Observer, stop: threading.Event, limits: Limits
) -> Summary:
    """Stream until the source or a limit ends it, or `stop` is set. Raises ClientError when the topic is refused."""
    if target.url is not None:
        kind = MqttProducer if target.url.startswith("mqtt://") else GatewayProducer
        through = kind(target.url, stop, _Waiting(observer).say)
        return Streamer(Sender(through, lambda: None), observer, stop, limits).run(bursts)
    if not _ensure(target, observer, stop):
        return Summary(0, 0, 0, 0.0)
    config = ProducerConfig(
        bootstrap_servers=target.bootstrap,
        client_id="millstream-telemetry",
        compression_type=target.compression,
        # As long as the producer itself retries, idempotence keeps a point from being stored twice.
        delivery_timeout_ms=_NEVER_MS,
    )
    producer = Producer(config).start()
    sender = Sender(producer, lambda: _ensure(target, observer, stop))
    summary = Streamer(sender, observer, stop, limits).run(bursts)
    if summary.is_complete:
        producer.close()
    return summary


class _Waiting:
    """Says why a stream waits, at the first try and every tenth."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.tries = 0

    def say(self, reason: str) -> None:
        if self.tries % _SAY_EVERY_TRIES == 0:
            self._observer.note(f"waiting: {reason}")
        self.tries += 1


def _ensure(target: Target, observer: Observer, stop: threading.Event) -> bool:
    """Whether the topic is there; False when the wait for it was ended by `stop`."""
    waiting = _Waiting(observer)
    found = ensure_topic(target.bootstrap, target.topic, target.partitions, on_waiting=waiting.say, stop=stop)
    if found and waiting.tries:
        observer.note(f"{target.bootstrap} answers")
    return found > 0
