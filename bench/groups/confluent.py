"""Real consumers (librdkafka), each polled by the same thread; what they own is asked there too."""

from confluent_kafka import Consumer


class ConfluentMember:
    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str, session_ms: int) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 100}
        self._consumer = Consumer(config)
        self._consumer.subscribe([topic])

    def poll(self) -> frozenset[int]:
        self._consumer.poll(0)
        return frozenset(place.partition for place in self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()
