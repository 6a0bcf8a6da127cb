"""The `kafka.*` options of a write as librdkafka's properties; the Java client's names are understood too."""

from collections.abc import Mapping
from typing import Any

from millstream.spark.errors import OptionError
from millstream.spark.kafka_properties import librdkafka_security, whole_number

_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
}
_TAKEN_OUT = ("max.block.ms", "buffer.memory")
_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.")
_BYTES_PER_KB = 1024


def producer_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    if "transactional.id" in properties:
        raise OptionError("option kafka.transactional.id is not supported: writes are at least once")
    if properties.get("acks", "all") not in ("all", "-1"):
        raise OptionError(
            f"option kafka.acks is {properties['acks']!r}; the sink's guarantee needs all, which is its default"
        )
    made: dict[str, Any] = {
        "client.id": "millstream-spark",
        "acks": "all",
        "enable.idempotence": True,
        # Java's choice of partition for a key, so that mixed producers agree.
        "partitioner": "murmur2_random",
        "linger.ms": 20,
        "queue.buffering.max.messages": 500_000,
        **librdkafka_security(properties),
    }
    for name, value in properties.items():
        if name not in _TAKEN_OUT and not name.startswith(_SECURITY):
            made[_RENAMED.get(name, name)] = value
    if "buffer.memory" in properties:
        size = whole_number(properties, "buffer.memory", 0, least=_BYTES_PER_KB)
        made["queue.buffering.max.kbytes"] = size // _BYTES_PER_KB
    if str(made["enable.idempotence"]).lower() != "true":
        raise OptionError(
            "option kafka.enable.idempotence cannot be turned off: the sink's guarantee needs it"
        )
    return made


def max_block_s(properties: Mapping[str, str]) -> float:
    return whole_number(properties, "max.block.ms", 60_000, least=1) / 1000
