"""Reads security settings from Kafka's properties, by the names of the Java client or of librdkafka."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.client.errors import ConfigurationError
from millstream.client.settings import servers
from millstream.client.wire.sasl import MECHANISMS
from millstream.client.wire.settings import Address, ClusterSettings, Protocol, Sasl, Security, Tls

DEFAULT_PORT = 9092
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")


def cluster_settings(
    bootstrap_servers: str | Iterable[str], client_id: str, extra: Mapping[str, str] | None, timeout_s: float
) -> ClusterSettings:
    """Calls are retried for `timeout_s`; a request that is under way then may take a little longer."""
    return ClusterSettings(
        addresses(servers(bootstrap_servers)),
        security_of(extra or {}),
        client_id,
        api_timeout_s=timeout_s,
        request_timeout_s=timeout_s + 5,
    )


def security_of(properties: Mapping[str, str]) -> Security:
    name = properties.get("security.protocol", Protocol.PLAINTEXT.value).upper()
    try:
        protocol = Protocol(name)
    except ValueError:
        choices = ", ".join(each.value for each in Protocol)
        raise ConfigurationError(f"security.protocol is {name!r}; choose one of {choices}") from None
    return Security(
        protocol,
        tls_of(properties) if protocol.has_tls else Tls(),
        sasl_of(properties) if protocol.has_sasl else None,
    )


def tls_of(properties: Mapping[str, str]) -> Tls:
    trust = _store(properties, "truststore")
    keys = _store(properties, "keystore")
    certificate_file = properties.get("ssl.certificate.location") or keys.location
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    return Tls(
        ca_file=properties.get("ssl.ca.location") or trust.location,
        ca_pem=properties.get("ssl.ca.pem") or trust.certificates,
        certificate_file=certificate_file,
        certificate_pem=properties.get("ssl.certificate.pem") or keys.certificates,
        # A PEM key store has certificate and key in one file, which the ssl module takes as they are.
        key_file=properties.get("ssl.key.location"),
        key_pem=properties.get("ssl.key.pem") or properties.get("ssl.keystore.key"),
        key_password=properties.get("ssl.key.password"),
        check_hostname=algorithm not in ("", "none"),
        verify=properties.get("enable.ssl.certificate.verification", "true").lower() != "false",
    )


@dataclass(frozen=True, slots=True)
class _Store:
    location: str | None
    certificates: str | None


def _store(properties: Mapping[str, str], name: str) -> _Store:
    prefix = f"ssl.{name}."
    location = properties.get(prefix + "location")
    certificates = properties.get(prefix + ("certificates" if name == "truststore" else "certificate.chain"))
    kind = properties.get(prefix + "type", "JKS").upper()
    if location is not None and kind != "PEM":
        raise ConfigurationError(
            f"{prefix}location is a {kind} file, which needs Java to be read; "
            f"convert it to PEM and set {prefix}type to PEM"
        )
    return _Store(location, certificates)


def sasl_of(properties: Mapping[str, str]) -> Sasl:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in MECHANISMS:
        raise ConfigurationError(
            f"sasl.mechanism is {mechanism}, which cannot be done here; use one of {', '.join(MECHANISMS)}"
        )
    login = jaas_options(properties.get("sasl.jaas.config", ""))
    username = properties.get("sasl.username") or login.get("username", "")
    password = properties.get("sasl.password") or login.get("password", "")
    endpoint = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    if mechanism == "OAUTHBEARER":
        username = _first(properties, "sasl.oauthbearer.client.id", login.get("clientid", ""))
        password = _first(properties, "sasl.oauthbearer.client.secret", login.get("clientsecret", ""))
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(
                "sasl.oauthbearer.token.endpoint.url must be the http(s) address of the token endpoint"
            )
    if not username:
        raise ConfigurationError(
            f"sasl.username is missing: SASL {mechanism} needs a user; set sasl.username and sasl.password, or"
            " sasl.jaas.config"
        )
    scope = _first(properties, "sasl.oauthbearer.scope", login.get("scope", ""))
    return Sasl(mechanism, username, password, endpoint, scope)


def _first(properties: Mapping[str, str], name: str, default: str) -> str:
    return properties.get(name) or default


def jaas_options(text: str) -> dict[str, str]:
    """The options of a login module: `...PlainLoginModule required username="u" password="p";`."""
    return {
        found[1].lower(): re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3]
        for found in _JAAS_OPTION.finditer(text)
    }


def librdkafka_security(properties: Mapping[str, str]) -> dict[str, Any]:
    """The same security settings under librdkafka's names."""
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


def addresses(servers: str) -> tuple[Address, ...]:
    """`HOST[:PORT]`, several separated by commas; an IPv6 host is in brackets."""
    found = []
    for server in servers.split(","):
        # Kafka allows a listener name in front (PLAINTEXT://).
        address = server.strip().rpartition("://")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ConfigurationError(
                f"{server.strip()!r} is not of the form HOST:PORT, such as 127.0.0.1:9092"
            )
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigurationError("no address is named; write HOST:PORT, such as 127.0.0.1:9092")
    return tuple(found)
