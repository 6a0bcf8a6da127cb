"""The `kafka.*` options of a write as librdkafka's properties; the Java client's names are understood too."""

from collections.abc import Mapping
from typing import Any

from millstream.spark.kafka_properties import whole_number
from millstream.spark.security import security_of
from millstream.spark.wire.errors import OptionError
from millstream.spark.wire.settings import Sasl, Tls

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


def librdkafka_security(properties: Mapping[str, str]) -> dict[str, Any]:
    security = security_of(properties)
    made: dict[str, Any] = {"security.protocol": security.protocol.value}
    if security.protocol.has_tls:
        made |= _tls(security.tls)
    if security.sasl is not None:
        made |= _sasl(security.sasl)
    return made


def _tls(tls: Tls) -> dict[str, Any]:
    named = {
        "ssl.ca.location": tls.ca_file,
        "ssl.ca.pem": tls.ca_pem,
        "ssl.certificate.location": tls.certificate_file,
        "ssl.certificate.pem": tls.certificate_pem,
        "ssl.key.location": tls.key_file or (None if tls.key_pem else tls.certificate_file),
        "ssl.key.pem": tls.key_pem,
        "ssl.key.password": tls.key_password,
    }
    made: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    made["ssl.endpoint.identification.algorithm"] = "https" if tls.check_hostname else "none"
    made["enable.ssl.certificate.verification"] = tls.verify
    return made


def _sasl(sasl: Sasl) -> dict[str, Any]:
    if sasl.mechanism != "OAUTHBEARER":
        return {
            "sasl.mechanism": sasl.mechanism,
            "sasl.username": sasl.username,
            "sasl.password": sasl.password,
        }
    made = {
        "sasl.mechanism": sasl.mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": sasl.username,
        "sasl.oauthbearer.client.secret": sasl.password,
        "sasl.oauthbearer.token.endpoint.url": sasl.token_endpoint,
    }
    return {**made, "sasl.oauthbearer.scope": sasl.scope} if sasl.scope else made
